"""All declared endpoints."""

from __future__ import annotations

from sidecar.history.endpoints import ENDPOINTS as _HISTORY
from sidecar.jobs.endpoints.jobs import ENDPOINTS as _JOBS
from sidecar.jobs.endpoints.targets import ENDPOINTS as _TARGETS
from sidecar.leases.endpoints import ENDPOINTS as _LEASES
from sidecar.limits.endpoints import ENDPOINTS as _LIMITS
from sidecar.lottery.endpoints import ENDPOINTS as _LOTTERY

#: Of the edge listener.
EDGE = (*_LOTTERY,)
#: Of the ops listener.
OPS = (*_HISTORY, *_LEASES, *_LIMITS)
#: Of the ops listener, where there are targets.
JOBS = (*_JOBS, *_TARGETS)
