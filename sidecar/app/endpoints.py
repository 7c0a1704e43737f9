"""The declared endpoints of all features (rooms, leases, limits, jobs, …), by listener."""

from types import ModuleType

from sidecar.app import health as ready
from sidecar.dashboard import operators, search
from sidecar.gate import check, claim_link, event_stream, forward_auth, leave, status
from sidecar.gate.page import about, opening_file, responses
from sidecar.history import endpoints as history
from sidecar.http import health
from sidecar.http.endpoint import Endpoint
from sidecar.jobs.endpoints import check_permit, jobs, targets
from sidecar.leases import endpoints as leases
from sidecar.limits import endpoints as limits
from sidecar.limits import nginx_check as check_limit
from sidecar.lottery import endpoints as lottery
from sidecar.rooms.endpoints import changes, operator, transfer, visitors
from sidecar.webhooks import endpoints as webhooks


def _list_endpoints(*modules: ModuleType) -> tuple[Endpoint, ...]:
    return tuple(endpoint for module in modules for endpoint in module.ENDPOINTS)


_ROOMS = (operator, changes, visitors, transfer)
#: Endpoints of the edge listener, for proxies and for visitors.
PROXY = _list_endpoints(check, check_limit, check_permit, responses, forward_auth)
VISITOR = _list_endpoints(status, leave, about, opening_file, event_stream, claim_link, lottery)
#: Endpoints of the ops listener.
OPS = _list_endpoints(health, ready, *_ROOMS, operators, search, history, leases, limits, webhooks)
#: Endpoints that the ops listener has only if there are targets.
JOBS = _list_endpoints(jobs, targets)
