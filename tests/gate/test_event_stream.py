"""Server-sent events: heartbeats without requests, and the turn."""

import asyncio
import contextlib
import json
import re
from dataclasses import dataclass, field

import pytest

from sidecar.gate import event_stream as events
from sidecar.gate.event_stream import MAX_VISITOR_STREAMS, STREAMS
from sidecar.http import long_poll
from sidecar.kit.errors import StoreUnavailableError
from sidecar.rooms.service import TICKET_RENEW_MS
from sidecar.visitors.verdict_lifetime import RELEASE_HOLD_MS
from tests.support.receiver import until
from tests.support.replica import cookie_of

#: A poll a second, and as many as there are.
QUICK = {"heartbeat_interval": 1, "poll_limit": 1_000_000}
#: By how much faster a second goes by here.
FASTER = 20


@pytest.fixture(autouse=True)
def faster(monkeypatch):
    """No test waits for a second: tests/nginx has streams that take their time."""
    wait_for = events.wait_for
    monkeypatch.setattr(events, "wait_for", lambda over, seconds: wait_for(over, seconds / FASTER))
    monkeypatch.setattr(events, "KEEP_ALIVE_S", events.KEEP_ALIVE_S * FASTER)


@dataclass
class Stream:
    """A stream as a browser reads it."""

    reply: object
    texts: list[str] = field(default_factory=list)

    async def next(self) -> tuple[str, dict]:
        """The next event: its kind and what it says. EOFError where there is none."""
        while True:
            text = (await asyncio.wait_for(self.reply.content.readuntil(b"\n\n"), 15)).decode()
            if not text:
                raise EOFError
            self.texts.append(text)
            lines = dict(line.partition(": ")[::2] for line in text.strip().splitlines())
            if "event" in lines:
                return lines["event"], json.loads(lines["data"])

    async def rest(self) -> list[tuple[str, dict]]:
        """All until it ends."""
        found = []
        with contextlib.suppress(EOFError):
            while True:
                found.append(await self.next())
        return found


async def open_stream(site, cookie: str | None = None) -> Stream:
    headers = {"Cookie": cookie} if cookie else {}
    path = f"/_waitroom/{site.room.name}/events"
    return Stream(await site.edge.get(path, headers=headers))


@pytest.fixture
async def full(replica):
    """A replica with streams whose one slot is taken, and one who waits."""
    site = await replica(event_streams=2, **QUICK)
    site.first = await site.enters()
    site.ticket = cookie_of(await site.check())
    site.streams = site.edge.app[STREAMS]
    return site


async def free_the_slot(site) -> None:
    path = f"/_waitroom/{site.room.name}/leave"
    await site.edge.post(path, headers={"Cookie": site.first})
    site.turn.forward(RELEASE_HOLD_MS / 1000 + 1)


def heartbeats(site) -> float:
    registry = site.metrics.registry
    labels = {"room": site.room.name, "door": "events", "state": "waiting"}
    return registry.get_sample_value("waitroom_requests_total", labels) or 0


def open_streams(site) -> float:
    registry = site.metrics.registry
    return registry.get_sample_value("waitroom_event_streams", {"room": site.room.name})


async def test_a_stream_tells_what_status_tells_and_then_the_turn(full):
    """A stream sends the status document until `called`; then the ticket admits its visitor."""
    stream = await open_stream(full, full.ticket)
    assert (stream.reply.status, stream.reply.content_type) == (200, "text/event-stream")
    assert stream.reply.headers["Cache-Control"] == "no-store"
    kind, first = await stream.next()
    polled = await (await full.status(full.ticket)).json()
    assert (kind, set(first)) == ("status", set(polled))
    assert (first["state"], first["position"]) == ("waiting", 1)
    kind, second = await stream.next()
    assert (kind, second["position"]) == ("status", 1)
    await free_the_slot(full)
    (kind, admitted), (last, said) = (await stream.rest())[-2:]
    assert (kind, admitted["state"], last) == ("status", "admitted", "called")
    assert said == {
        "room": full.room.name,
        "visitor": full.room.tokens.read(full.ticket.partition("=")[2]).visitor,
        "path": f"/_waitroom/{full.room.name}/",
    }
    # I expect no cookie in mid-stream, and the session to be there: claimed, and once.
    assert "Set-Cookie" not in stream.reply.headers
    snapshot = await full.room.refresh()
    assert (snapshot.active, snapshot.provisional) == (1, 0)
    entered = await full.check(full.ticket)
    assert (entered.status, "=p~" in entered.headers["Set-Cookie"]) == (204, True)
    # The page that `called` names leads on, and hands the pass over too.
    page = await full.edge.get(
        said["path"] + "?next=/cart",
        headers={"Cookie": full.ticket, "Accept": "text/html"},
        allow_redirects=False,
    )
    assert (page.status, page.headers["Location"]) == (303, "/cart")
    assert (await full.room.refresh()).active == 1


async def test_who_opens_it_when_the_turn_has_come_gets_the_pass_with_it(full):
    """A stream that opens when the turn has come brings the pass as a cookie."""
    await free_the_slot(full)
    stream = await open_stream(full, full.ticket)
    assert [kind for kind, _ in await stream.rest()] == ["status", "called"]
    cookie = stream.reply.headers["Set-Cookie"].partition(";")[0]
    assert "=p~" in cookie
    assert (await full.check(cookie)).status == 204
    # Whoever is inside hears the same.
    stream = await open_stream(full, cookie)
    assert [kind for kind, _ in await stream.rest()] == ["status", "called"]


async def test_a_stream_is_a_heartbeat(full):
    """A stream keeps the place for as long as it lasts, and no longer."""
    stream = await open_stream(full, full.ticket)
    await stream.next()
    full.turn.forward(100)
    await stream.next()
    full.turn.forward(100)
    await stream.next()
    assert (await full.room.store.sweep()).waiting == 0
    stream.reply.close()
    await until(lambda: open_streams(full) == 0, "the end")
    full.turn.forward(190)  # it polled seldom
    assert (await full.room.store.sweep()).waiting == 1


@pytest.fixture
async def slow(replica, request):
    """A waiting visitor with a long interval."""
    interval = {"heartbeat_interval": FASTER * request.param, "heartbeat_timeout": 7200}
    site = await replica(total_active_users=0, event_streams=1, **interval)
    site.ticket = cookie_of(await site.check())
    site.streams = site.edge.app[STREAMS]
    return site


@pytest.mark.parametrize("slow", [100], indirect=True)
async def test_who_hangs_up_is_gone_before_the_next_heartbeat(slow, monkeypatch):
    """Nobody waits for it to be due: the stream makes room for another."""
    monkeypatch.setattr(slow.streams, "check_interval_s", 0.02)
    monkeypatch.setattr(events, "KEEP_ALIVE_S", 3600 * FASTER)  # a comment would notice it too
    stream = await open_stream(slow, slow.ticket)
    await stream.next()
    assert (open_streams(slow), heartbeats(slow)) == (1, 1)
    stream.reply.close()
    await until(lambda: open_streams(slow) == 0, "the end")
    assert heartbeats(slow) == 1
    assert slow.streams._tasks == []


@pytest.mark.parametrize("slow", [0.5], indirect=True)
async def test_who_hangs_up_has_no_heartbeat(slow):
    """A browser that hung up sends no heartbeat, even if that is noticed only when one is due."""
    stream = await open_stream(slow, slow.ticket)
    await stream.next()
    slow.streams._tasks[0].cancel()
    stream.reply.close()
    await until(lambda: open_streams(slow) == 0, "the end")
    assert heartbeats(slow) == 1


async def test_without_a_ticket_there_is_one_answer(full):
    """No place is taken, and nothing waited for."""
    for cookie in (None, "waitroom_x=y", full.ticket + "x"):
        stream = await open_stream(full, cookie)
        ((kind, document),) = await stream.rest()
        assert (kind, document["state"]) == ("status", "not_queued")
    assert (await full.room.refresh()).waiting == 1


async def test_a_place_that_is_gone_ends_the_stream(full):
    """A visitor who leaves on another tab, or is released, is told so."""
    stream = await open_stream(full, full.ticket)
    await stream.next()
    await full.edge.post(f"/_waitroom/{full.room.name}/leave", headers={"Cookie": full.ticket})
    assert (await stream.rest())[-1][1]["state"] == "not_queued"


async def test_there_are_no_more_than_the_setting_says(full):
    """The next one is told to come back; when one ends there is a place for it."""
    others = [await open_stream(full, full.ticket) for _ in range(2)]
    for other in others:
        await other.next()
    refused = (await open_stream(full, full.ticket)).reply
    assert (refused.status, refused.content_type) == (503, "application/problem+json")
    assert int(refused.headers["Retry-After"]) > 0
    assert open_streams(full) == 2
    others[0].reply.close()
    await until(lambda: open_streams(full) == 1, "the end of one")
    assert (await open_stream(full, full.ticket)).reply.status == 200


async def test_the_oldest_of_a_visitors_streams_ends_when_there_are_too_many(replica):
    """Nobody can take them all: with a fifth the first ends, and nobody else's."""
    site = await replica(event_streams=20, total_active_users=0, **QUICK)
    streams = site.edge.app[STREAMS]
    other, ticket = [cookie_of(await site.check()) for _ in range(2)]
    others = await open_stream(site, other)
    theirs = [await open_stream(site, ticket) for _ in range(MAX_VISITOR_STREAMS + 2)]
    for stream in theirs[:2]:
        told = await asyncio.wait_for(stream.rest(), 10)
        assert {document["state"] for _, document in told} == {"waiting"}
    assert open_streams(site) == 1 + MAX_VISITOR_STREAMS
    # I expect one that was closed to count no longer.
    theirs[3].reply.close()
    await until(lambda: open_streams(site) == MAX_VISITOR_STREAMS, "the end of one")
    theirs.append(await open_stream(site, ticket))
    for stream in (others, theirs[2], *theirs[4:]):
        for _ in range(3):
            assert (await stream.next())[1]["state"] == "waiting"
    assert open_streams(site) == 1 + MAX_VISITOR_STREAMS
    for stream in (others, theirs[2], *theirs[4:]):
        stream.reply.close()
    await until(lambda: open_streams(site) == 0, "the end of all")
    assert streams._stop_events == {}


async def test_by_default_there_are_none(replica):
    """404, with the setting's name; for an unknown room its own 404."""
    site = await replica()
    refused = (await open_stream(site)).reply
    assert refused.status == 404
    assert "event_streams" in (await refused.json())["detail"]
    reply = await site.edge.get("/_waitroom/nope/events")
    assert (reply.status, (await reply.json())["title"]) == (404, "Unknown room")
    for method in ("POST", "HEAD"):
        reply = await site.edge.request(method, f"/_waitroom/{site.room.name}/events")
        assert reply.status == 405


async def test_a_silence_is_filled(full, monkeypatch):
    """Comments, which browsers hide, fill a silence."""
    monkeypatch.setattr(events, "KEEP_ALIVE_S", 0.005 * FASTER)
    stream = await open_stream(full, full.ticket)
    for _ in range(2):
        await stream.next()
    assert re.fullmatch(r"retry: [2-5]\d{3}\n\n", stream.texts[0])
    assert stream.texts.count(":\n\n") >= 5


async def test_a_replica_that_stops_ends_its_streams(full):
    """A replica that stops ends its streams at once, and opens no other."""
    stream = await open_stream(full, full.ticket)
    await stream.next()
    await long_poll.close(full.edge.app)
    assert await asyncio.wait_for(stream.rest(), 5) == []
    assert (await open_stream(full, full.ticket)).reply.status == 503
    assert open_streams(full) == 0


async def test_a_ticket_that_is_signed_anew_comes_with_the_next_stream(replica):
    """A cookie cannot be given in mid-stream, and a ticket must not grow old in one."""
    site = await replica(total_active_users=0, event_streams=1, **QUICK)
    ticket = cookie_of(await site.check())
    stream = await open_stream(site, ticket)
    await stream.next()
    for _ in range(TICKET_RENEW_MS // 100_000 + 1):
        site.turn.forward(100)
        await site.status(ticket)
    assert {document["state"] for _, document in await stream.rest()} == {"waiting"}
    again = await open_stream(site, ticket)
    assert "=t~" in again.reply.headers["Set-Cookie"]
    assert (await again.next())[1]["position"] == 1


async def test_too_many_polls_are_too_many_streams(replica):
    """A visitor who opens too many streams is refused, and keeps place and streams."""
    site = await replica(event_streams=20, heartbeat_interval=3600 / 2, heartbeat_timeout=3600,
                         poll_limit=3)  # fmt: skip
    await site.check()
    ticket = cookie_of(await site.check())
    replies = [(await open_stream(site, ticket)).reply for _ in range(6)]
    assert [reply.status for reply in replies] == [200] * 4 + [429] * 2
    assert open_streams(site) == 4
    assert int(replies[-1].headers["Retry-After"]) >= 1


async def test_a_failing_store_pauses_and_another_error_ends_the_stream(full, monkeypatch):
    """While Redis is unavailable the place is kept; another error writes no second response."""
    stream = await open_stream(full, full.ticket)
    await stream.next()
    errors = [RuntimeError("not foreseen"), StoreUnavailableError("gone")]

    async def fail(_ticket, **_):
        raise errors.pop()

    monkeypatch.setattr(full.room.store, "beat", fail)
    _, document = await stream.next()
    assert (document["state"], document["paused"]) == ("waiting", True)
    assert await stream.rest() == []
    assert open_streams(full) == 0
