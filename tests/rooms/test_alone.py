"""Visitors whom a replica let in without Redis stay, and are counted where they exceed the cap."""

from sidecar.visitors.model import Pass, QueueOutcome
from sidecar.visitors.tokens import new_visitor


def alone(now_ms) -> Pass:
    """Return a pass that a replica gave to a newcomer without Redis."""
    return Pass(
        new_visitor(), now_ms * 1000, now_ms, 0,
        started_ms=now_ms, renewed_ms=0, expires_ms=now_ms + 10_000,
    )  # fmt: skip


async def test_whoever_was_let_in_above_the_cap_stays(make_room_store, turn):
    """Of 23 visitors in one batch at a cap of 5 each gets a session, and the excess is counted."""
    store = make_room_store(total_active_users=5, session_duration=10)
    passes = [alone(turn()) for _ in range(23)]
    turn.forward(3)
    for pass_ in passes:
        renewed = await store.renew(pass_)
        assert (renewed.outcome, renewed.expires_ms) == (QueueOutcome.ADMITTED, turn() + 10_000)
    shot = await store.snapshot()
    assert (shot.active, shot.counters["over_cap"]) == (23, 18)
