"""A room beside its model, on redis-server and in memory."""

import pytest

from tests.support.machines import run_machine
from tests.support.room_machine import RoomMachine


@pytest.mark.slow
@pytest.mark.timeout(900)  # where it fails, hypothesis takes minutes to find a short story
def test_a_room_does_what_the_model_says_and_keeps_every_promise(store_url):
    """The room equals its model after each random step."""
    run_machine(RoomMachine, store_url, examples=200, steps=50)
