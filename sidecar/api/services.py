"""What a replica serves."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sidecar.leases.resource import Resources
from sidecar.leases.service import Leases
from sidecar.limits.service import Limits

if TYPE_CHECKING:
    from sidecar.history.store.stays import History
    from sidecar.jobs.service import Jobs
    from sidecar.kit.metrics import Metrics
    from sidecar.rooms.service import Rooms


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """Both listeners stand on these. None: it is not configured."""

    rooms: Rooms
    metrics: Metrics
    leases: Leases = field(default_factory=Leases)
    #: The same leases, as proxies guard them.
    resources: Resources = field(default_factory=Resources)
    limits: Limits = field(default_factory=Limits)
    jobs: Jobs | None = None
    history: History | None = None
