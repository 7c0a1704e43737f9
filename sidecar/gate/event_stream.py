"""Server-sent events for waiting visitors: their position, and that they are called.

A stream is a browser that polls, without the requests: each `status` is a heartbeat. The turn is
claimed by it. A cookie cannot be given in mid-stream, so the browser gets the pass with its next
request, which has the ticket still.
"""

import asyncio
import contextlib
import math
import random
from collections.abc import Iterator

import structlog
from aiohttp import web

from sidecar.gate.app_keys import gate_of
from sidecar.gate.check import count_answer
from sidecar.gate.contract import Gate, label
from sidecar.gate.cookies import read_bearer, read_token, set_cookie
from sidecar.gate.metrics import GateMetrics
from sidecar.gate.page import status_document
from sidecar.gate.schemas import CookieGiven
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
from sidecar.visitors.model import State, Ticket, Token

#: A comment is sent after so long a silence, so that nobody between takes it for a dead line.
KEEP_ALIVE_S = 15.0
#: When to try again where there are as many streams as there may be, seconds.
RETRY_S = 10
#: A visitor's tabs and devices. With a stream more the oldest ends: nobody can take them all.
MAX_PER_VISITOR = 4
_KEEP_ALIVE = b":\n\n"
#: A browser whose stream broke opens another after so many ms: not all at once.
_RETRY_MS = (2_000, 5_000)
_HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",  # another nginx in front passes each event on at once
}
#: A place is kept, and there is more to tell.
_GOES_ON = {State.WAITING, State.CLOSED}

log = structlog.get_logger()


class Streams(LongPolls):
    """`limit` at most."""

    look_s = 1.0

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.limit = limit
        #: By visitor, the oldest first.
        self._of: dict[str, list[asyncio.Event]] = {}

    @contextlib.contextmanager
    def one_of(self, visitor: str, over: asyncio.Event) -> Iterator[None]:
        """Within the block the stream is the visitor's newest."""
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
        token = read_token(request.headers, room)
        answer = await _beat(request, room, token)
        refusal = _refusal(answer)
        if refusal is not None:
            return refusal
        response = web.StreamResponse(headers=_HEADERS)
        if answer.token is not None:
            response.headers["Set-Cookie"] = set_cookie(request.headers, room, answer.token)
            token = answer.token
        visitor = token.visitor if isinstance(token, Ticket) else ""  # "": one answer is all
        await response.prepare(request)
        with contextlib.suppress(ConnectionResetError), streams.one_of(visitor, over):
            try:
                retry_ms = random.randint(*_RETRY_MS)  # noqa: S311 - spreads, and decides nothing
                await response.write(f"retry: {retry_ms}\n\n".encode())
                await _tell(request, response, room, token, answer, over)
            except Exception as error:
                if isinstance(error, ConnectionResetError):
                    raise
                log.exception("events")  # too late for another answer
    return response


async def _beat(request: web.Request, room: Gate, token: Token | None) -> Answer:
    class_name = request.headers.get("X-Waitroom-Class", "")  # nginx's word, as at /check
    bearer = read_bearer(request.headers, room, class_name=class_name)
    answer = await room.check(token, may_join=False, from_page=True, bearer=bearer)
    count_answer(request.app[METRICS], room, "events", answer)
    return answer


def _refusal(answer: Answer) -> web.Response | None:
    """As the status endpoint refuses."""
    if answer.store_unavailable and answer.joined_ms is None:
        return problem(503, "The store does not answer", retry_after=STORE_RETRY_S)
    limited_ms = answer.standing.limited_ms if answer.standing else 0
    if limited_ms and answer.state is State.WAITING:
        return problem(429, "Too many polls", retry_after=math.ceil(limited_ms / 1000))
    return None


async def _tell(  # noqa: PLR0913, PLR0917 - what one stream is
    request: web.Request,
    response: web.StreamResponse,
    room: Gate,
    token: Token | None,
    answer: Answer,
    over: asyncio.Event,
) -> None:
    """From the first answer until there is nothing more to tell."""
    while True:
        document = status_document.document(room, answer)
        await response.write(event_text("status", document))
        if answer.state is State.ADMITTED:
            # The waiting page's address, which hands the pass over and leads on.
            path = f"/_waitroom/{room.name}/"
            said = {"room": room.name, "visitor": answer.visitor, "path": path}
            await response.write(event_text("called", said))
            return
        if answer.state not in _GOES_ON or not isinstance(token, Ticket):
            return
        if not await _rest(response, document["refresh_after_seconds"], over):
            return
        if is_gone(request):  # nobody there, so no heartbeat
            return
        answer = await _beat(request, room, token)
        if isinstance(answer.token, Ticket):
            # Signed anew, which the browser gets as a cookie when it opens the next stream.
            await response.write(event_text("status", status_document.document(room, answer)))
            return


async def _rest(response: web.StreamResponse, seconds: float, over: asyncio.Event) -> bool:
    """Until the next heartbeat is due; whether there is to be one."""
    while seconds > 0:
        if await wait_for(over, min(seconds, KEEP_ALIVE_S)):
            return False
        seconds -= KEEP_ALIVE_S
        if seconds > 0:
            await response.write(_KEEP_ALIVE)
    return True
