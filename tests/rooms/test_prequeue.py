"""What a pre-queue must not do besides: tell lots, let an address draw often, spoil a measure."""

import pytest

from sidecar.rooms.redis_keys import room_key
from sidecar.rooms.store.scripts import Lot
from sidecar.visitors.model import QueueOutcome
from sidecar.visitors.tokens import new_visitor
from tests.support.joiners import claim, join
from tests.support.rooms import RedisTime
from tests.support.visitors import queue

START = RedisTime().now_ms
SALE = {
    "name": "sale",
    "prequeue_from": START,
    "opens_at": START + 600_000,
    "closes_at": START + 700_000,
}


@pytest.fixture
def shop(make_room_store):
    def make(**settings):
        return make_room_store(**{"total_active_users": 1, "events": (SALE,), **settings})

    return make


async def test_an_address_draws_as_often_as_it_may_have_places(shop, turn):
    """A lapsed place can be restored with its lot, so it counts until the opening. A place that was
    given up does not count."""
    store = shop(max_places_per_address=1, claim_window=5, heartbeat_timeout=10)

    async def draws():
        return await store.enter(new_visitor(), address="here", lot=Lot(0.5, START))

    first = new_visitor()
    assert (
        await store.enter(first, address="here", lot=Lot(0.2, START))
    ).outcome is QueueOutcome.WAITING
    turn.forward(60)
    assert (await store.sweep()).waiting == 1
    assert (await draws()).outcome is QueueOutcome.FULL
    await store.leave(first)
    assert (await draws()).outcome is QueueOutcome.WAITING


async def test_no_event_of_a_pre_queue_tells_a_lot(shop, redis, turn):
    """History and webhooks read the events of joining, leaving and sweeping."""
    store = shop(claim_window=5, heartbeat_timeout=10)
    gone, *others = [await join(store, lot=Lot(lot, START)) for lot in (0.3, 0.1, 0.2)]
    await store.leave(gone.visitor)
    turn.forward(60)
    await store.sweep()
    await store.beat(others[0])
    events = await redis.xrange(room_key(store._name, "events"))
    assert [e[b"kind"] for _, e in events][-4:] == [b"left", b"expired", b"expired", b"joined"]
    assert not any({b"order", b"position"} & e.keys() for _, e in events)


async def test_who_is_swept_after_the_close_has_not_given_up(shop, redis, turn):
    """Visitors who left because of the close do not count in the estimate."""
    store = shop(total_active_users=0, claim_window=5, heartbeat_timeout=10)
    turn.forward(600)
    await queue(store, 5)
    turn.forward(101)
    assert (await store.sweep()).waiting == 5
    assert not float(await redis.hget(room_key(store._name, "stats"), "drops") or 0)


@pytest.mark.parametrize("method", ["fifo", "random"])
async def test_a_grant_that_a_lost_reply_used_is_given_back(make_room_store, method):
    """The grant is valid again only if it gave the class of the lost place."""
    store = make_room_store(
        total_active_users=0, queueing_method=method, classes={"vip": {"priority": 1}}
    )
    once = claim("vip", "a")
    lost, other = new_visitor(), new_visitor()
    assert (await store.enter(lost, claim=once)).is_classed
    assert not (await store.enter(other, claim=once)).is_classed
    await store.undo_enter(other, once)
    assert not (await store.enter(new_visitor(), claim=once)).is_classed
    await store.undo_enter(lost, once)
    assert (await store.enter(new_visitor(), claim=once)).is_classed
