"""After the store was emptied: nobody is called until who was there has had time to be back."""

import asyncio

import pytest

from sidecar.kit.clock import MAX_LAG_MS
from sidecar.kit.errors import StoreError
from sidecar.rooms.redis_keys import room_key
from sidecar.visitors.model import QueueOutcome
from sidecar.visitors.tokens import new_visitor
from sidecar.visitors.verdict_lifetime import RELEASE_HOLD_MS, RESPONSE_MS
from tests.support.visitors import beat_all, call_in_batches, go_in, lose, pass_of, queue

WAITING, ADMITTED, GONE = QueueOutcome.WAITING, QueueOutcome.ADMITTED, QueueOutcome.GONE


async def emptied(redis, store, turn):
    """Let a replica know the room, and delete the room's keys."""
    await store.snapshot()
    turn.forward(1)
    await lose(redis, store)


async def stage(store):
    return (await store.snapshot()).recovery_stage


async def test_calls_go_on_after_the_window_in_the_old_order(redis, open_room, turn):
    """Visitors are called in the order of their tickets, in whatever order they came back."""
    store, _, tickets = await open_room(waiting=3, recovery_window=20)
    await emptied(redis, store, turn)
    replies = await beat_all(store, [tickets[2], tickets[0], tickets[1]])
    assert [reply.ahead for reply in replies] == [2, 0, 1]
    assert {reply.wait_ms for reply in replies} == {None}
    turn.forward(20)
    replies = await beat_all(store, tickets)
    assert [reply.outcome for reply in replies] == [ADMITTED, WAITING, WAITING]


async def test_a_cookie_alone_tells_that_the_store_was_emptied(make_room_store, turn):
    """Replicas that restarted too learn it from the first visitor."""
    store = make_room_store(total_active_users=1, recovery_window=20)
    store.record_room_existed_since(turn.now_ms - 60_000)
    assert (await store.enter(new_visitor())).outcome is WAITING
    assert await stage(store) == 2


@pytest.mark.parametrize(
    ("settings", "near_s", "seconds"),
    [
        ({}, None, 65),  # no replica was there before: pages back off, for 60 s at most
        ({"heartbeat_interval": 3}, None, 65),
        ({"heartbeat_interval": 100, "heartbeat_timeout": 300}, None, 107),
        ({}, 2, 5),  # nginx keeps verdicts for some seconds
        ({}, 0, 5),
        ({}, 7, 14),
        ({"session_duration": 3600}, 45, 90),
        ({"heartbeat_interval": 1000, "heartbeat_timeout": 2400}, 1000, 2000),
        ({"recovery_window": 0}, None, 0),
        ({"recovery_window": 20}, 2, 20),
    ],
)
async def test_the_window_is_twice_the_longest_refresh_that_was_told_near_the_head(
    redis, make_room_store, turn, settings, near_s, seconds
):
    store = make_room_store(total_active_users=1, **settings)
    store.set_longest_refresh_near_head(None if near_s is None else near_s * 1000)
    await emptied(redis, store, turn)
    shot = await store.snapshot()
    assert shot.recovers_until_ms == shot.born_ms + seconds * 1000
    if seconds:
        turn.forward(seconds - 0.001)
        assert await stage(store) == 2
        turn.forward(0.001)
    assert await stage(store) < 2


async def test_positions_are_told_when_everybody_had_time_to_be_back(redis, make_room_store, turn):
    """Visitors at the end of the queue poll once a minute."""
    store = make_room_store(total_active_users=1, recovery_window=20)
    await emptied(redis, store, turn)
    assert await stage(store) == 2
    turn.forward(20)
    assert await stage(store) == 1
    turn.forward(44.999)
    assert await stage(store) == 1
    turn.forward(0.001)
    assert await stage(store) == 0


async def test_what_a_replica_promised_by_itself_is_waited_for_once(make_room_store, turn):
    """Nobody is called into the slot of a visitor whom a replica admitted without Redis."""
    store = make_room_store(total_active_users=1, recovery_window=20)
    await store.snapshot()
    turn.forward(100)
    store.mark_unreported_admissions(turn.now_ms)
    let_in = pass_of(new_visitor(), await make_room_store(total_active_users=1).enter("x" * 22))
    turn.forward(5)
    assert (await store.enter(new_visitor())).outcome is WAITING
    assert (await store.renew(let_in)).outcome is ADMITTED
    until = (await store.snapshot()).recovers_until_ms
    turn.forward(3)
    assert (await store.snapshot()).recovers_until_ms == until


async def test_a_pass_whose_slot_was_given_away_has_a_ticket_that_counts(redis, open_room, turn):
    """The visitor waits again, so the ticket is not void."""
    store, _, [ticket] = await open_room(
        waiting=1, total_active_users=1, session_duration=10, recovery_window=0
    )
    turn.forward(14)
    pass_ = pass_of(ticket.visitor, await store.beat(ticket))
    await lose(redis, store, "active", "admitted")
    await go_in(store)
    assert (await store.renew(pass_)).outcome is WAITING
    await lose(redis, store, "waiting", "due")
    assert (await store.beat(ticket)).outcome is not QueueOutcome.GONE


async def test_an_emptied_store_is_reminded(redis, make_room_store, turn):
    """Revocations, run-time settings and the epoch are written again, unless they were changed
    since."""
    store = make_room_store(total_active_users=5)
    await store.restore_lost_data(
        {"gone": 7}, {"total_active_users": 2, "queue_all": None}, epoch=9
    )
    shot = await store.snapshot()
    assert shot.revoked == {"gone": 7}
    assert shot.overrides == {"total_active_users": 2, "queue_all": None}
    assert shot.epoch == 9
    await store.restore_lost_data({"gone": 8}, {"total_active_users": 3}, epoch=4)
    shot = await store.snapshot()
    assert (shot.revoked, shot.overrides["total_active_users"], shot.epoch) == ({"gone": 7}, 2, 9)


async def test_an_address_has_no_more_places_than_allowed(make_room_store, turn):
    """Places and sessions count until they end."""
    store = make_room_store(total_active_users=1, max_places_per_address=2, session_duration=10)
    ours = [await store.enter(new_visitor(), address="a") for _ in range(2)]
    assert [reply.outcome for reply in ours] == [ADMITTED, WAITING]
    assert (await store.enter(new_visitor(), address="a")).outcome is QueueOutcome.FULL
    assert (await store.enter(new_visitor(), address="ab")).outcome is WAITING
    assert (await store.enter(new_visitor())).outcome is WAITING
    turn.forward(31)  # nobody polled, and the session is over
    await store.sweep()
    assert (await store.enter(new_visitor(), address="a")).outcome is not QueueOutcome.FULL


async def test_the_sweep_forgets_addresses(redis, make_room_store, turn):
    """The next sweep forgets addresses without places; nothing grows."""
    store = make_room_store(total_active_users=0, max_places_per_address=1)
    await call_in_batches(lambda n: store.enter(new_visitor(), address=f"a{n}"), range(250))
    addresses = room_key(store._name, "addresses")
    assert await redis.zcard(addresses) == 250
    turn.forward(31)
    for _ in range(2):  # those whom the first removes while it looks, the second forgets
        while (await store.sweep()).has_more:
            pass
    assert await redis.zcard(addresses) == 0


async def test_a_store_that_was_frozen_gives_nothing_to_who_has_gone(make_room_store, turn):
    """The call waited in its socket until the client gave up."""
    store = make_room_store(total_active_users=1)
    asked_ms = turn.now_ms
    assert store._find_deadline_ms() == asked_ms + 5000 + MAX_LAG_MS
    store._find_deadline_ms = lambda: asked_ms + 1000
    turn.forward(1)
    assert (await store.enter(new_visitor())).outcome is ADMITTED
    turn.forward(0.001)
    assert (await store.enter(new_visitor())).outcome is GONE
    shot = await store.snapshot()
    assert (shot.active, shot.waiting) == (1, 0)


async def test_of_a_batch_only_those_are_let_in_whose_client_still_waits(make_room_store, turn):
    """The deadline counts from the client's request, not from the sending of the batch."""
    store = make_room_store(total_active_users=9)
    release = hold_back(store)
    first = asyncio.create_task(store.enter(new_visitor()))
    await settle()
    early = asyncio.create_task(store.enter(new_visitor()))
    await settle()
    turn.forward(2)
    later = asyncio.create_task(store.enter(new_visitor()))
    await settle()
    turn.forward((RESPONSE_MS + 1) / 1000 - 2)
    release()
    assert [(await task).outcome for task in (first, early, later)] == [GONE, GONE, ADMITTED]
    assert (await store.snapshot()).active == 1


async def test_a_reply_that_no_client_waits_for_is_an_error(make_room_store, monkeypatch):
    """The room then takes the slot back, as after a missing reply."""
    store = make_room_store()
    monkeypatch.setattr("sidecar.rooms.store.scripts.RESPONSE_MS", 0)
    with pytest.raises(StoreError, match="no client waited"):
        await store.enter(new_visitor())


def hold_back(store):
    """Let the store's scripts wait until the returned function is called."""
    gate, run = asyncio.Event(), store._run

    async def held(*args, **options):
        await gate.wait()
        return await run(*args, **options)

    store._run = held
    return gate.set


async def settle():
    """Let all tasks run until they wait."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_slot_that_nobody_was_told_of_is_free_at_once(open_room):
    """No client has a pass for this slot."""
    store, unseen, [ticket] = await open_room(waiting=1)
    assert await store.leave(unseen.visitor, why="unseen")
    assert not await store.leave(unseen.visitor, why="unseen")
    assert (await store.beat(ticket)).outcome is ADMITTED
    shot = await store.snapshot()
    assert (shot.active, shot.provisional) == (1, 0)


# Older data --------------------------------------------------------------------------------------


async def rewind(redis, store, steps):
    """Restore the keys to their contents before the steps, as after a restart without a journal."""
    before = {}
    for name in ("waiting", "due", "active", "admitted", "revoked", "spent"):
        key = room_key(store._name, name)
        before[key] = await redis.zrange(key, 0, -1, withscores=True)
    stats = room_key(store._name, "stats")
    numbers = await redis.hgetall(stats)
    await steps()
    for key, members in before.items():
        await redis.delete(key)
        if members:
            await redis.zadd(key, dict(members))
    await redis.delete(stats)
    await redis.hset(stats, mapping=numbers)


async def test_whom_a_store_with_older_data_does_not_know_is_inside_again(
    redis, make_room_store, turn
):
    """Their slots look free while another visitor waits and polls first."""
    store = make_room_store(total_active_users=2, recovery_window=20)
    first, second = [await go_in(store) for _ in range(2)]
    [one, other, last] = await queue(store, 3)
    await beat_all(store, [one, other, last])
    await store.snapshot()
    admitted = []

    async def steps():
        turn.forward(1)
        await store.leave(first.visitor)
        await store.leave(second.visitor)
        turn.forward(RELEASE_HOLD_MS / 1000)
        for ticket in (one, other):
            standing = await store.beat(ticket)
            assert standing.outcome is ADMITTED
            admitted.append(pass_of(ticket.visitor, standing))
        turn.forward(12)
        await store.beat(last)
        await store.snapshot()

    await rewind(redis, store, steps)
    shot = await store.snapshot()
    assert (shot.recovery_stage, shot.counters["behind"]) == (2, 1)
    await store.leave(first.visitor)
    await store.leave(second.visitor)
    turn.forward(RELEASE_HOLD_MS / 1000)
    assert (await store.beat(last)).outcome is WAITING
    for pass_ in admitted:
        assert (await store.renew(pass_)).outcome is ADMITTED
    turn.forward(20)
    assert (await store.beat(last)).outcome is WAITING
    shot = await store.snapshot()
    assert (shot.counters["behind"], shot.active) == (1, 2)


async def test_who_was_released_before_is_known_to_a_store_with_older_data(redis, replica):
    site = await replica(total_active_users=2, recovery_window=3)
    await site.enters()
    cookie = await site.enters()
    await site.room.refresh()

    async def steps():
        site.turn.forward(1)
        await site.edge.post(f"/_waitroom/{site.room.name}/leave", headers={"Cookie": cookie})
        await site.room.refresh()

    await rewind(site.room.store._redis, site.room.store, steps)
    await site.room.refresh()
    site.turn.forward(RELEASE_HOLD_MS / 1000)
    assert (await site.check(cookie)).status == 204  # somebody new: the slot is free
    assert (await site.room.refresh()).active == 2
    assert await site.room.store._redis.zcard(room_key(site.room.name, "revoked")) == 1
