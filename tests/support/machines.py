"""The base class of the Hypothesis state machines for rooms, leases and targets, and a function
that runs them."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import closing
from random import Random
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from sidecar.storage.redis.connect import close, connect
from tests.support.rooms import new_room_name, refuse_functions

#: Number of examples per machine. If it is set, examples are random (see tests/conftest.py).
_EXAMPLES = os.environ.get("WAITROOM_TEST_EXAMPLES")

#: Is True in a quarter of the cases, for steps that stop or empty the queue.
SELDOM = st.sampled_from([False, False, False, True])


class Bench:
    """A connection to Redis, and an event loop in which async calls run to their end."""

    def __init__(self, url: str) -> None:
        self.runner = asyncio.Runner()
        self.redis = connect(url, timeout_s=5)
        self.random = Random(0)

    def draw(self) -> float:
        return self.random.random()

    def run(self, awaitable):
        return self.runner.run(awaitable)

    def close(self) -> None:
        self.run(close(self.redis))
        self.runner.close()


class StoreMachine(RuleBasedStateMachine):
    """A state machine that tests one object in Redis (`name`), with Redis' time in ms (`now`)."""

    def __init__(self, bench: Bench) -> None:
        super().__init__()
        self.bench = bench
        self.name = new_room_name()
        self.now = 1_800_000_000_000

    def run(self, call: Awaitable[Any]) -> Any:
        return self.bench.run(call)

    def gather(self, calls: Iterable[Awaitable[Any]]) -> list[Any]:
        """Run all calls concurrently, so that the store sends one batch. Return their results."""

        async def ask() -> list[Any]:
            return list(await asyncio.gather(*calls))

        return self.run(ask())

    def delete(self, keys: Iterable[str]) -> None:
        self.run(self.bench.redis.delete(*keys))

    def advance_to_one(self, moments: Iterable[int], which: int) -> bool:
        """Advance the clock to one of the timestamps in `moments` that are still in the future.
        Return False if none is."""
        later = sorted({at for at in moments if at > self.now})
        if later:
            self.now = later[which % len(later)]
        return bool(later)


def pick_latest(items: Sequence[Any], indices: Iterable[int]) -> list[Any]:
    """Return the items at these indices. They count back from the newest item, and wrap around."""
    return [items[-1 - i % len(items)] for i in indices]


def run_machine(
    machine: Callable[[Bench], RuleBasedStateMachine],
    url: str,
    *,
    examples: int,
    steps: int,
    by_functions: bool = True,
) -> None:
    """Run a state machine for a number of examples.

    Run only a fifth of them with the store in memory, because it is slow, and a quarter if scripts
    are sent by EVALSHA instead of as functions (`by_functions` is false).
    """
    count = int(_EXAMPLES or examples)
    count = count // 5 if url.startswith("memory") else count
    how = settings(
        max_examples=count if by_functions else count // 4,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    with closing(Bench(url)) as bench:
        if not by_functions:
            refuse_functions(bench.redis)
        run_state_machine_as_test(lambda: machine(bench), settings=how)
