"""What the handlers find in their application."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from sidecar.base.metrics import Metrics
from sidecar.base.settings import Settings
from sidecar.base.stamps import Stamps
from sidecar.core.leases import Leases
from sidecar.core.leaving import LeaveLimit
from sidecar.core.limits import Limits
from sidecar.core.repeats import Repeats
from sidecar.core.rooms import Rooms
from sidecar.web.live import Live
from sidecar.web.operators import Operators
from sidecar.web.page import Page

if TYPE_CHECKING:
    from sidecar.core.jobs import Jobs
    from sidecar.store.history import History

ROOMS = web.AppKey("rooms", Rooms)
LEASES = web.AppKey("leases", Leases)
LIMITS = web.AppKey("limits", Limits)
METRICS = web.AppKey("metrics", Metrics)
SETTINGS = web.AppKey("settings", Settings)
#: Missing where no history is kept.
HISTORY: web.AppKey[History] = web.AppKey("history", object)  # type: ignore[arg-type] # to import it costs a third of the start
#: Missing where there are no targets.
JOBS: web.AppKey[Jobs] = web.AppKey("jobs", object)  # type: ignore[arg-type] # as the history
#: A name for the store of an edge listener's process, where it is in memory; empty: it is not.
MEMORY = web.AppKey("memory", str)
PAGE = web.AppKey("page", Page)
REPEATS = web.AppKey("repeats", Repeats)
STAMPS = web.AppKey("stamps", Stamps)
LEAVE_LIMIT = web.AppKey("leave_limit", LeaveLimit)
OPERATORS = web.AppKey("operators", Operators)
LIVE = web.AppKey("live", Live)
#: Set when the replica was told to stop; a list because an application is frozen by then.
STOPPING = web.AppKey("stopping", list[bool])
