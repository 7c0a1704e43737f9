"""Server-sent events for waiting visitors: their position, and that they are called.

A stream is a browser that polls, without the requests: each `status` is a heartbeat. The turn is
claimed by it. A cookie cannot be given in mid-stream, so the browser gets the pass with its next
request, which has the ticket still.
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, Iterator

import structlog
from aiohttp import web

from sidecar.gate.app_keys import gate_of
from sidecar.gate.ask import ask
from sidecar.gate.contract import Gate, label
from sidecar.gate.cookies import set_cookie
from sidecar.gate.metrics import GateMetrics
from sidecar.gate.page import status_document
from sidecar.gate.schemas import CookieGiven
from sidecar.gate.status import poll_refusal
from sidecar.gate.visitor_request import VisitorRequest
from sidecar.http.endpoint import ANYBODY, Endpoints
from sidecar.http.json_text import event_text
from sidecar.http.long_poll import LongPolls, is_gone
from sidecar.http.metrics import METRICS
from sidecar.http.models import NO_JSON
from sidecar.http.problem_kinds import GENERAL
from sidecar.http.problems import STORE_RETRY_S, problem
from sidecar.kit.tasks import wait_for
from sidecar.rooms.schemas.common import UNKNOWN_ROOM, RoomAddress
from sidecar.visitors.answer import Answer
from sidecar.visitors.model import State, Ticket

#: A comment is sent after this silence, so that no proxy takes the connection for a dead one.
KEEP_ALIVE_S = 15.0
#: When to try again after "Too many event streams", seconds.
RETRY_S = 10
#: A visitor's tabs and devices. One more stream ends the oldest: nobody can take them all.
MAX_PER_VISITOR = 4
_KEEP_ALIVE = b":\n\n"
#: A browser whose stream broke opens another after a random time between these, ms.
_RETRY_MS = (2_000, 5_000)
_HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",  # another nginx in front passes each event on at once
}
#: The states in which a stream goes on.
_GOES_ON = {State.WAITING, State.CLOSED}

log = structlog.get_logger()


class Streams(LongPolls):
    """The open streams of a replica, `limit` at most."""

    look_s = 1.0

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.limit = limit
        #: Visitor -> the events that end their streams, the oldest first.
        self._of: dict[str, list[asyncio.Event]] = {}

    @contextlib.contextmanager
    def one_of(self, visitor: str, over: asyncio.Event) -> Iterator[None]:
        """Count the block as the visitor's newest stream; end the oldest if there are too many."""
        theirs = self._of.setdefault(visitor, [])
        theirs.append(over)
        if len(theirs) > MAX_PER_VISITOR:
            theirs.pop(0).set()
        try:
            yield
        finally:
            if over in theirs:
                theirs.remove(over)
                if not theirs:
                    del self._of[visitor]


STREAMS = web.AppKey("streams", Streams)


ENDPOINTS = Endpoints("visitor")


@ENDPOINTS.get(
    "/_waitroom/{room}/events",
    ANYBODY,
    parameters=RoomAddress,
    replies={200: (NO_JSON, "Server-sent events.", CookieGiven)},
    other_media={"text/event-stream": "`status` and `called`."},
    problems=(UNKNOWN_ROOM, GENERAL[404], GENERAL[429], GENERAL[503]),
    is_hand_made=True,
    allow_head=False,
)
async def stream_events(request: web.Request) -> web.StreamResponse:
    """Stream the visitor's state as server-sent events.

    `status` has the same document as the status endpoint. It comes whenever a poll would be due,
    and keeps the place. `called` comes when the turn has come, with `room`, `visitor` and `path`.
    Go there, or load the site again, with the same cookie. Then the stream ends. Comments in
    between keep the connection open.

    Only where `event_streams` is set. It takes no place: without one there is one `status`, and the
    end. Open a stream again that ends before `called`, unless the state was `not_queued`.
    """
    room = gate_of(request)
    streams, metrics = request.app[STREAMS], request.app[METRICS]
    if streams.limit == 0:
        detail = "Set event_streams, how many a replica serves at a time. Polling status works."
        return problem(404, "There are no event streams", detail=detail)
    if streams.is_closed:
        return problem(503, "Stopping", retry_after=STORE_RETRY_S)
    if len(streams) >= streams.limit:
        metrics.requests.count(label(room), "events", "too-many")
        return problem(503, "Too many event streams", detail="Poll status.", retry_after=RETRY_S)
    gauge = metrics.of(GateMetrics).event_streams.labels(label(room))
    with gauge.track_inprogress(), streams.opened(request) as over:
        visitor_request = VisitorRequest.from_page(request, room)
        answer = await ask(request, room, visitor_request, "events")
        refusal = poll_refusal(answer)
        if refusal is not None:
            return refusal
        response = web.StreamResponse(headers=_HEADERS)
        if answer.token is not None:
            response.headers["Set-Cookie"] = set_cookie(request.headers, room, answer.token)
            visitor_request.token = answer.token
        token = visitor_request.token
        visitor = token.visitor if isinstance(token, Ticket) else ""  # "": one answer is all
        await response.prepare(request)
        with contextlib.suppress(ConnectionResetError), streams.one_of(visitor, over):
            events = _events(request, room, visitor_request, answer, over)
            try:
                async with contextlib.aclosing(events):
                    async for event in events:
                        await response.write(event)
            except ConnectionResetError:
                raise
            except Exception:
                log.exception("events")  # too late for another answer
    return response


async def _events(
    request: web.Request,
    room: Gate,
    visitor_request: VisitorRequest,
    answer: Answer,
    over: asyncio.Event,
) -> AsyncGenerator[bytes, None]:
    """Yield the stream from the first answer until there is nothing more to tell."""
    retry_ms = random.randint(*_RETRY_MS)  # noqa: S311 - spreads, and decides nothing
    yield f"retry: {retry_ms}\n\n".encode()
    while True:
        document = status_document.build_document(room, answer)
        yield event_text("status", document)
        if answer.state is State.ADMITTED:
            # The waiting page's address, which hands the pass over and leads on.
            path = f"/_waitroom/{room.name}/"
            called = {"room": room.name, "visitor": answer.visitor, "path": path}
            yield event_text("called", called)
            return
        if answer.state not in _GOES_ON or not isinstance(visitor_request.token, Ticket):
            return
        seconds = document["refresh_after_seconds"]
        while seconds > 0:
            if await wait_for(over, min(seconds, KEEP_ALIVE_S)):
                return
            seconds -= KEEP_ALIVE_S
            if seconds > 0:
                yield _KEEP_ALIVE
        if is_gone(request):  # nobody is there, so this is no heartbeat
            return
        answer = await ask(request, room, visitor_request, "events")
        if isinstance(answer.token, Ticket):
            # A ticket signed anew, which the browser gets as a cookie with the next stream.
            yield event_text("status", status_document.build_document(room, answer))
            return
