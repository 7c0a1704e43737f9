"""A room beside its model, on redis-server and in memory."""

from __future__ import annotations

from contextlib import closing

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from tests.conftest import refuse_functions
from tests.support.room_machine import EXAMPLES, THOROUGH, Bench, RoomMachine


@pytest.mark.slow
@pytest.mark.timeout(900)  # where it fails, hypothesis takes minutes to find a short story
def test_a_room_does_what_the_model_says_and_keeps_every_promise(store_url):
    """Whatever visitors, operators, the clock and the store do, step by step."""
    # In memory the same scripts run, slowly.
    count = EXAMPLES // 3 if store_url.startswith("memory") else EXAMPLES
    with closing(Bench(store_url)) as bench:
        run_state_machine_as_test(
            lambda: RoomMachine(bench), settings=settings(THOROUGH, max_examples=count)
        )


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_same_where_redis_takes_no_functions(redis_socket):
    """By EVALSHA, as on Redis 6.2."""
    with closing(Bench(f"unix://{redis_socket}")) as bench:
        refuse_functions(bench.redis)
        run_state_machine_as_test(
            lambda: RoomMachine(bench), settings=settings(THOROUGH, max_examples=EXAMPLES // 4)
        )
