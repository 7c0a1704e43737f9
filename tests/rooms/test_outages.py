"""Nobody is silent while nobody can be heard; who is called and gone is passed over soon."""

import json

import pytest

from sidecar.kit.clock import StoreClock
from sidecar.rooms.settings import RoomSettings
from sidecar.rooms.store.scripts import RoomStore
from sidecar.visitors.model import QueueOutcome
from sidecar.visitors.verdict_lifetime import OUTAGE_MS
from tests.support.rooms import new_room_name
from tests.support.visitors import admit_unconfirmed, beat_all, go_in, queue

WAITING, ADMITTED = QueueOutcome.WAITING, QueueOutcome.ADMITTED
#: Within this a page asks again that found nobody there: 60 s, 5 % late, and the request.
BACKOFF_S = 65
#: So long no session is over after an outage: replicas tell whom they kept inside.
TELLING_S = 2
LONGEST_GAP_S = OUTAGE_MS / 1000


@pytest.fixture
def make_store(redis, turn):
    """Return a function that makes the store of a room whose outages are detected."""

    def make(**settings) -> RoomStore:
        file = RoomSettings(**{"total_active_users": 1, "session_duration": 10, **settings})
        return RoomStore(
            redis, new_room_name(), settings=file.get_script_settings(), clock=StoreClock(),
            now_ms=turn, timeout_s=5,
        )  # fmt: skip

    return make


async def full_room(store, waiting):
    """Fill a room and its queue. Return the tickets of the waiting visitors, who have polled."""
    await go_in(store)
    tickets = await queue(store, waiting)
    await beat_all(store, tickets)
    return tickets


async def test_the_head_is_called_after_an_outage_and_nobody_behind_it(make_store, turn):
    """Visitors behind the head who poll first are not called before the head."""
    store = make_store()
    first, second, third = await full_room(store, 3)
    turn.forward(150)
    assert (await store.beat(third)).ahead == 2
    turn.forward(TELLING_S)
    assert (await store.beat(third)).ahead == 1
    assert (await store.beat(first)).outcome is ADMITTED
    assert (await store.beat(second)).outcome is WAITING


async def test_a_first_cookie_that_could_not_be_shown_is_not_too_late(make_store, turn):
    """During an outage an unused session does not expire."""
    store = make_store(session_duration=300)
    first = await admit_unconfirmed(store)
    [ticket] = await queue(store, 1)
    turn.forward(40)
    assert (await store.beat(ticket)).outcome is WAITING
    turn.forward(4)
    assert (await store.beat(ticket)).outcome is WAITING
    assert (await store.renew(first)).outcome is ADMITTED
    turn.forward(BACKOFF_S)
    assert (await store.beat(ticket)).outcome is WAITING


async def test_the_head_has_until_its_page_has_asked_again(make_store, turn):
    """Afterwards the silent head is skipped."""
    store = make_store()
    _, second = await full_room(store, 2)
    turn.forward(150)
    for _ in range(BACKOFF_S):
        assert (await store.beat(second)).outcome is WAITING
        turn.forward(1)
    assert (await store.beat(second)).outcome is ADMITTED


async def test_who_was_called_before_an_outage_keeps_the_slot(make_store, turn):
    """This holds also if the visitor's time to arrive ended during the outage."""
    for outage in (LONGEST_GAP_S + 0.001, 150):
        store = make_store(session_duration=5, claim_window=8, heartbeat_interval=1)
        called, behind = await full_room(store, 2)
        turn.forward(4.9)
        await beat_all(store, [called, behind])
        turn.forward(4.9)
        assert (await store.snapshot()).provisional == 1
        turn.forward(outage)
        assert (await store.beat(behind)).outcome is WAITING
        turn.forward(4)
        await store.sweep()
        turn.forward(4)
        assert (await store.beat(called)).outcome is ADMITTED


async def test_the_sweep_spares_whom_nobody_could_hear(make_store, turn):
    """Places are spared for heartbeat_timeout after the outage, and for as long as a page backs
    off."""
    store = make_store(total_active_users=1, heartbeat_timeout=30, session_duration=3600)
    await full_room(store, 3)
    turn.forward(600)
    for _ in range(BACKOFF_S + 1):
        assert (await store.sweep()).waiting == 0
        turn.forward(1)
    assert (await store.sweep()).waiting == 3


async def test_a_pause_of_a_few_seconds_is_no_outage(make_store, turn):
    """A visitor whose heartbeat is overdue then counts as silent."""
    store = make_store(claim_window=5)
    _, second = await full_room(store, 2)
    for _ in range(4):
        turn.forward(LONGEST_GAP_S)
        reply = await store.beat(second)
    assert reply.outcome is ADMITTED


# A called visitor who is gone ------------------------------------------------------------------


async def passes_on_after(store, turn, seconds, *, refresh_s):
    """Return after which time a slot goes to the next visitor, if the called visitor polled every
    so many seconds and is gone."""
    gone, behind = await full_room(store, 2)
    store_reply = await store.beat(gone)
    turn.forward(store_reply.refresh_ms / 1000)
    await store.configure({"total_active_users": 2})
    assert store_reply.refresh_ms == refresh_s * 1000
    assert (await store.snapshot()).provisional == 1
    turn.forward(seconds - 0.001)
    assert (await store.beat(behind)).outcome is WAITING
    turn.forward(0.001)
    assert (await store.beat(behind)).outcome is ADMITTED
    return gone


@pytest.mark.parametrize(("refresh_s", "seconds"), [(1, 10), (3, 10), (4, 12), (7, 21), (12, 30)])
async def test_the_slot_goes_on_after_three_missed_polls(make_room_store, turn, refresh_s, seconds):
    """The time is at least 10 s and at most claim_window."""
    store = make_room_store(heartbeat_interval=refresh_s, session_duration=3600)
    await passes_on_after(store, turn, seconds, refresh_s=refresh_s)


async def test_who_was_passed_over_is_first_when_they_are_back(make_room_store, turn):
    """A skipped visitor only waits for the next slot."""
    store = make_room_store(heartbeat_interval=1, session_duration=20)
    gone = await passes_on_after(store, turn, 10, refresh_s=1)
    last = (await queue(store, 1))[0]
    assert [reply.ahead for reply in await beat_all(store, [last, gone])] == [1, 0]


async def test_a_call_that_a_webhook_tells_holds_for_claim_window(make_room_store, turn):
    """A visitor who gets a mail may have no page that polls."""
    store = make_room_store(heartbeat_interval=1, session_duration=3600, claim_window=60)
    store._settings = json.dumps(json.loads(store._settings) | {"tells_called": True})
    await passes_on_after(store, turn, 60, refresh_s=1)
