"""Gets the verdict of a room or leased resource about a visitor's request, and counts it."""

import time

from aiohttp import web

from sidecar.gate.contract import GATES, Gate, get_label
from sidecar.gate.visitor_request import VisitorRequest
from sidecar.http.auth_request import log_unknown
from sidecar.http.metrics import METRICS
from sidecar.rooms.metrics import RoomMetrics
from sidecar.visitors.answer import Answer
from sidecar.visitors.model import Pass

#: The values of `state` in responses and metrics for an unknown room or resource.
UNKNOWN_ROOM = "unknown-room"
UNKNOWN_RESOURCE = "unknown-resource"


async def get_verdict(
    request: web.Request,
    room: Gate,
    visitor_request: VisitorRequest,
    endpoint: str,
    *,
    may_join: bool = False,
) -> Answer:
    """Return the verdict about a request, and count it. With `may_join`, a newcomer joins."""
    started_s = time.perf_counter()
    metrics = request.app[METRICS]
    bearer = visitor_request.get_bearer(room, may_join=may_join)
    if bearer.grant_result:
        metrics.of(RoomMetrics).grants.labels(room.name, bearer.grant_result).inc()
    answer = await room.check(
        visitor_request.token,
        may_join=may_join,
        from_page=visitor_request.is_from_page,
        bearer=bearer,
    )
    metrics.requests.count(get_label(room), endpoint, answer.uncounted or answer.state)
    metrics.requests.observe(endpoint, time.perf_counter() - started_s)
    if answer.failed_open:
        metrics.of(RoomMetrics).fail_open_admissions.labels(room.name).inc()
    pass_ = answer.token
    # The wait is recorded with the first pass of a visitor who waited.
    if isinstance(pass_, Pass) and pass_.joined_ms < pass_.started_ms == pass_.renewed_ms:
        waited_s = (pass_.started_ms - pass_.joined_ms) / 1000
        metrics.of(RoomMetrics).wait_seconds.labels(room.name).observe(waited_s)
    return answer


def count_unknown(request: web.Request, name: str, endpoint: str) -> str:
    """Count a request for an unknown room or resource, and return the state to report.

    An unknown room is logged, because the proxy's configuration is wrong. An unknown resource of a
    known template is not, because visitors can make up such names."""
    template = request.app[GATES].resources.find_template_name(name)
    state = UNKNOWN_RESOURCE if template else UNKNOWN_ROOM
    if not template:
        log_unknown(name, "room")
    request.app[METRICS].requests.count(template, endpoint, state)
    return state
