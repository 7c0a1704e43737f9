"""The declared endpoints of all features (rooms, leases, limits, jobs, …), by listener."""

from sidecar.app.health import ENDPOINTS as _READY
from sidecar.dashboard.operators import ENDPOINTS as _OPERATORS
from sidecar.dashboard.search import ENDPOINTS as _SEARCH
from sidecar.gate.check import ENDPOINTS as _CHECK
from sidecar.gate.claim_link import ENDPOINTS as _CLAIM
from sidecar.gate.event_stream import ENDPOINTS as _EVENTS
from sidecar.gate.forward_auth import ENDPOINTS as _GATE
from sidecar.gate.leave import ENDPOINTS as _LEAVE
from sidecar.gate.page.about import ENDPOINTS as _ABOUT
from sidecar.gate.page.opening_file import ENDPOINTS as _OPENING
from sidecar.gate.page.responses import ENDPOINTS as _PAGE
from sidecar.gate.status import ENDPOINTS as _STATUS
from sidecar.history.endpoints import ENDPOINTS as _HISTORY
from sidecar.http.health import ENDPOINTS as _HEALTH
from sidecar.jobs.endpoints.check_permit import ENDPOINTS as _CHECK_PERMIT
from sidecar.jobs.endpoints.jobs import ENDPOINTS as _JOBS
from sidecar.jobs.endpoints.targets import ENDPOINTS as _TARGETS
from sidecar.leases.endpoints import ENDPOINTS as _LEASES
from sidecar.limits.endpoints import ENDPOINTS as _LIMITS
from sidecar.limits.nginx_check import ENDPOINTS as _CHECK_LIMIT
from sidecar.lottery.endpoints import ENDPOINTS as _LOTTERY
from sidecar.rooms.endpoints import changes, operator, transfer, visitors
from sidecar.webhooks.endpoints import ENDPOINTS as _WEBHOOKS

#: Endpoints of the edge listener, for proxies and for visitors.
PROXY = (*_CHECK, *_CHECK_LIMIT, *_CHECK_PERMIT, *_PAGE, *_GATE)
VISITOR = (*_STATUS, *_LEAVE, *_ABOUT, *_OPENING, *_EVENTS, *_CLAIM, *_LOTTERY)
_ROOMS = (
    *operator.ENDPOINTS,
    *changes.ENDPOINTS,
    *visitors.ENDPOINTS,
    *transfer.ENDPOINTS,
)
#: Endpoints of the ops listener.
OPS = (*_HEALTH, *_READY, *_ROOMS, *_OPERATORS, *_SEARCH, *_HISTORY, *_LEASES, *_LIMITS, *_WEBHOOKS)
#: Endpoints that the ops listener has only if there are targets.
JOBS = (*_JOBS, *_TARGETS)
