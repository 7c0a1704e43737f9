"""Base of the Hypothesis state machines of rooms, leases and targets, and their runner."""

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

#: Number of runs. If set, the runs are random (see conftest.py).
_EXAMPLES = os.environ.get("WAITROOM_TEST_EXAMPLES")

#: Chooses rarely, for steps that stop or empty the queue.
SELDOM = st.sampled_from([False, False, False, True])


class Bench:
    """A connection to Redis, and the event loop for its calls."""

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
    """A state machine with a unique name in Redis, and Redis' time."""

    def __init__(self, bench: Bench) -> None:
        super().__init__()
        self.bench = bench
        self.name = new_room_name()
        self.now = 1_800_000_000_000

    def run(self, call: Awaitable[Any]) -> Any:
        return self.bench.run(call)

    def gather(self, calls: Iterable[Awaitable[Any]]) -> list[Any]:
        """Make all calls in one batch, in order. Return their results."""

        async def ask() -> list[Any]:
            return list(await asyncio.gather(*calls))

        return self.run(ask())

    def delete(self, keys: Iterable[str]) -> None:
        self.run(self.bench.redis.delete(*keys))

    def go_to_one(self, moments: Iterable[int], which: int) -> bool:
        """Set the clock to a future timestamp among `moments`. Return False if there is none."""
        later = sorted({at for at in moments if at > self.now})
        if later:
            self.now = later[which % len(later)]
        return bool(later)


def latest(items: Sequence[Any], indices: Iterable[int]) -> list[Any]:
    """Return the items at these indices, which count back from the newest item."""
    return [items[-1 - i % len(items)] for i in indices]


def run_stories(
    machine: Callable[[Bench], RuleBasedStateMachine],
    url: str,
    *,
    examples: int,
    steps: int,
    by_functions: bool = True,
) -> None:
    """Run a state machine: a fifth of `examples` in memory, which is slow, a quarter by EVALSHA."""
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
