"""Server-sent events that tell waiting visitors their position, and when they are called.

A stream replaces the browser's polls: each `status` event counts as a heartbeat, and can claim a
call. Once a stream has begun, it cannot set a cookie, so the browser keeps its ticket and gets the
pass with its next request."""

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, Iterator

import structlog
from aiohttp import web

from sidecar.gate.ask import get_verdict
from sidecar.gate.contract import Gate, get_gate, get_label
from sidecar.gate.cookies import format_cookie
from sidecar.gate.page import status_document
from sidecar.gate.polls import refuse_poll
from sidecar.gate.schemas import CookieHeader
from sidecar.gate.visitor_request import VisitorRequest
from sidecar.http.endpoint import ANYBODY, Endpoints
from sidecar.http.json_text import encode_event
from sidecar.http.long_poll import LongPolls, is_gone
from sidecar.http.metrics import METRICS, MetricSet, gauge
from sidecar.http.models import NO_JSON
from sidecar.http.problem_kinds import GENERAL
from sidecar.http.problems import STORE_RETRY_S, problem
from sidecar.kit.tasks import wait_for
from sidecar.rooms.schemas.common import UNKNOWN_ROOM, RoomAddress
from sidecar.visitors.answer import Answer
from sidecar.visitors.model import Ticket, VisitorState

#: After so many seconds without an event a comment is sent, so that no proxy closes the stream.
KEEP_ALIVE_S = 15.0
#: The Retry-After of the error "Too many event streams", in seconds.
RETRY_S = 10
#: The maximum number of streams of a visitor. A further stream ends the oldest one, so that one
#: visitor cannot use up the streams of a replica.
MAX_VISITOR_STREAMS = 4
_KEEP_ALIVE = b":\n\n"
#: A browser reopens a broken stream after a random time in this range, in ms.
_RETRY_MS = (2_000, 5_000)
_HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",  # another nginx in front must not delay events
}
#: The states in which a stream continues.
_CONTINUING_STATES = {VisitorState.WAITING, VisitorState.CLOSED}

log = structlog.get_logger()


class Streams(LongPolls):
    """The open event streams of a replica. There are at most `limit`."""

    check_interval_s = 1.0

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.limit = limit
        #: The events that stop the streams of each visitor, oldest stream first.
        self._stop_events: dict[str, list[asyncio.Event]] = {}

    @contextlib.contextmanager
    def count_stream(self, visitor: str, stop: asyncio.Event) -> Iterator[None]:
        """Count a visitor's new stream while the block runs. End the oldest of too many streams."""
        stops = self._stop_events.setdefault(visitor, [])
        stops.append(stop)
        if len(stops) > MAX_VISITOR_STREAMS:
            stops.pop(0).set()
        try:
            yield
        finally:
            if stop in stops:
                stops.remove(stop)
                if not stops:
                    del self._stop_events[visitor]


STREAMS = web.AppKey("streams", Streams)


class GateMetrics(MetricSet):
    """The metrics of gates, except those of their requests (http/metrics.py)."""

    event_streams = gauge("waitroom_event_streams", "Open streams of server-sent events.", "room")


ENDPOINTS = Endpoints("visitor")


@ENDPOINTS.get(
    "/_waitroom/{room}/events",
    ANYBODY,
    parameters=RoomAddress,
    replies={200: (NO_JSON, "Server-sent events.", CookieHeader)},
    other_media={"text/event-stream": "The events `status` and `called`."},
    problems=(UNKNOWN_ROOM, GENERAL[404], GENERAL[429], GENERAL[503]),
    bypasses_models=True,
    allow_head=False,
)
async def stream_events(request: web.Request) -> web.StreamResponse:
    """Stream the visitor's state as server-sent events.

    A `status` event contains the same document as the status endpoint. It is sent whenever a poll
    would be due, and keeps the place. A `called` event is sent when the visitor is called,
    with `room`, `visitor` and `path`. Then request that path, or load the site again, with the same
    cookie. The stream ends after `called`. Comments between events keep the connection open.

    There are streams only if `event_streams` is set. A stream does not join the queue: visitors
    without a place get one `status`, and the stream ends. If a stream ends before `called`, open
    another, unless the state was `not_queued`."""
    room = get_gate(request)
    streams, metrics = request.app[STREAMS], request.app[METRICS]
    if streams.limit == 0:
        detail = "Set event_streams, how many a replica serves at a time. Polling status works."
        return problem(404, "There are no event streams", detail=detail)
    if streams.is_closed:
        return problem(503, "Stopping", retry_after=STORE_RETRY_S)
    if len(streams) >= streams.limit:
        metrics.requests.count(get_label(room), "events", "too-many")
        return problem(503, "Too many event streams", detail="Poll status.", retry_after=RETRY_S)
    open_streams = metrics.of(GateMetrics).event_streams.labels(get_label(room))
    with open_streams.track_inprogress(), streams.keep_open(request) as stop:
        visitor_request = VisitorRequest.from_page(request, room)
        answer = await get_verdict(request, room, visitor_request, "events")
        refusal = refuse_poll(answer)
        if refusal is not None:
            return refusal
        response = web.StreamResponse(headers=_HEADERS)
        if answer.token is not None:
            response.headers["Set-Cookie"] = format_cookie(request.headers, room, answer.token)
            visitor_request.token = answer.token
        token = visitor_request.token
        # Without a ticket the stream ends at once.
        visitor = token.visitor if isinstance(token, Ticket) else ""
        await response.prepare(request)
        with contextlib.suppress(ConnectionResetError), streams.count_stream(visitor, stop):
            events = _generate_events(request, room, visitor_request, answer, stop)
            try:
                async with contextlib.aclosing(events):
                    async for event in events:
                        await response.write(event)
            except ConnectionResetError:
                raise
            except Exception:
                log.exception("events")  # too late for an error response
    return response


async def _generate_events(
    request: web.Request,
    room: Gate,
    visitor_request: VisitorRequest,
    answer: Answer,
    stop: asyncio.Event,
) -> AsyncGenerator[bytes, None]:
    """Yield a stream's events and comments, until the visitor is called or the state is final."""
    retry_ms = random.randint(*_RETRY_MS)  # noqa: S311 - only spreads requests
    yield f"retry: {retry_ms}\n\n".encode()
    while True:
        document = status_document.build_document(room, answer)
        yield encode_event("status", document)
        if answer.state is VisitorState.ADMITTED:
            # The path of the waiting page, which sets the pass cookie and redirects to the site.
            path = f"/_waitroom/{room.name}/"
            called = {"room": room.name, "visitor": answer.visitor, "path": path}
            yield encode_event("called", called)
            return
        if answer.state not in _CONTINUING_STATES or not isinstance(visitor_request.token, Ticket):
            return
        seconds = document["refresh_after_seconds"]
        while seconds > 0:
            if await wait_for(stop, min(seconds, KEEP_ALIVE_S)):
                return
            seconds -= KEEP_ALIVE_S
            if seconds > 0:
                yield _KEEP_ALIVE
        if is_gone(request):  # a closed connection must not count as a heartbeat
            return
        answer = await get_verdict(request, room, visitor_request, "events")
        if isinstance(answer.token, Ticket):
            # There is a new ticket. End the stream: the response of the next one sets the cookie.
            yield encode_event("status", status_document.build_document(room, answer))
            return
