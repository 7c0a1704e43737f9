"""A room beside its model, on redis-server and in memory."""

from contextlib import closing

import pytest

from tests.support.machines import Bench, run_machine
from tests.support.room_machine import RoomMachine


@pytest.mark.slow
@pytest.mark.timeout(900)  # where it fails, hypothesis takes minutes to find a short story
def test_a_room_does_what_the_model_says_and_keeps_every_promise(store_url):
    """The room equals its model after each random step."""
    run_machine(RoomMachine, store_url, examples=200, steps=50)


def test_one_who_is_skipped_may_join_again_in_the_same_step(store_url):
    """A visitor who polls rarely is skipped with a reservation. If the same batch has another
    request to join by this visitor, the visitor is at the head again, and the order holds."""
    with closing(Bench(store_url)) as bench:
        room = RoomMachine(bench)
        room.open(seed=0, minute_ms=1848, cap=4, values={"poll_limit": 1, "opening": None})
        room.enter(newcomers=1, again=[])
        room.go_to_an_end(which=77, off_ms=0, sweeps=True)
        room.enter(newcomers=4, again=[64])
        room.go_to_an_end(which=8, off_ms=-1, sweeps=True)
        room.enter(newcomers=4, again=[41, 52])
        room.wait_and_poll(seconds=1)
        room.enter(newcomers=4, again=[25], knows=False)
        room.poll([4, 78, 61, 88, 65])
        room.go_to_an_end(which=98, off_ms=1, sweeps=False)
        before = room.keys.waiting
        room.enter(newcomers=3, again=[59], knows=False)
        waiting = room.keys.waiting
        head = min(before, key=before.get)
        assert min(waiting, key=waiting.get) == head
        assert waiting[head] == before[head]
        assert any(kind == "called" for kind, _, _ in room.keys.events)
        room.teardown()
