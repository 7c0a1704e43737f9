"""Whom a replica let in, or kept in, while it could not ask: they stay when the store knows."""

from dataclasses import replace

from sidecar.visitors.model import Pass, QueueOutcome
from sidecar.visitors.tokens import new_visitor
from sidecar.visitors.verdict_lifetime import SESSION_GRACE_MS
from tests.support.visitors import go_in

WAITING, ADMITTED, GONE = QueueOutcome.WAITING, QueueOutcome.ADMITTED, QueueOutcome.GONE


def alone(now_ms, *, visitor="", order=0, joined_ms=0, seconds=10) -> Pass:
    """Return a pass that a replica gave without Redis, to a newcomer or a waiting visitor."""
    return Pass(
        visitor or new_visitor(), order or now_ms * 1000, joined_ms or now_ms, 0,
        started_ms=now_ms, renewed_ms=0, expires_ms=now_ms + seconds * 1000,
    )  # fmt: skip


async def over_cap(store):
    shot = await store.snapshot()
    return shot.active, shot.counters.get("over_cap", 0)


async def test_whoever_was_let_in_above_the_cap_stays(make_room_store, turn):
    """Of 23 visitors in one batch at a cap of 5 each gets a session, and the excess is counted."""
    store = make_room_store(total_active_users=5, session_duration=10)
    passes = [alone(turn()) for _ in range(23)]
    turn.forward(3)
    for pass_ in passes:
        renewed = await store.renew(pass_)
        assert (renewed.outcome, renewed.expires_ms) == (ADMITTED, turn() + 10_000)
    assert await over_cap(store) == (23, 18)


async def test_nobody_is_called_until_the_room_is_below_its_cap(open_room, turn):
    """Neither waiting visitors nor newcomers are admitted above the cap."""
    store, first, [ticket] = await open_room(waiting=1, session_duration=10)
    await store.renew(alone(turn()))
    turn.forward(5)
    late = await store.renew(alone(turn()))
    await store.leave(first.visitor)
    assert late.outcome is ADMITTED
    turn.forward(5 + SESSION_GRACE_MS / 1000)
    assert (await store.beat(ticket)).outcome is WAITING
    assert (await store.snapshot()).active == 1
    turn.forward(5)
    assert (await store.beat(ticket)).outcome is ADMITTED


async def test_an_insider_who_was_kept_in_alone_stays(open_room, turn):
    """A replica extended the pass, while Redis gave the slot to another visitor."""
    store, pass_, _ = await open_room(session_duration=10)
    turn.forward(8)
    kept = replace(pass_, renewed_ms=0, expires_ms=turn() + 10_000)
    turn.forward(7)
    await go_in(store)
    assert (await store.renew(kept)).outcome is ADMITTED
    assert await over_cap(store) == (2, 1)


async def test_whoever_left_is_not_let_back_in(make_room_store, turn):
    """A pass that a replica gave is revoked like any other pass."""
    store = make_room_store(total_active_users=3)
    pass_ = alone(turn())
    await store.renew(pass_)
    await store.leave(pass_.visitor)
    assert (await store.renew(pass_)).outcome is GONE


async def test_a_room_below_its_cap_counts_nobody_as_too_many(make_room_store, turn):
    store = make_room_store(total_active_users=2)
    for _ in range(2):
        await store.renew(alone(turn()))
    assert await over_cap(store) == (2, 0)
