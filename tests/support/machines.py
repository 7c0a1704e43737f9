"""Runs the state machines of rooms, leases and targets against a store."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import closing
from random import Random

from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from sidecar.kit.redis.connect import close, connect
from tests.support.rooms import refuse_functions

#: How many stories; WAITROOM_TEST_EXAMPLES=2000 looks longer.
_EXAMPLES = os.environ.get("WAITROOM_TEST_EXAMPLES")


class Bench:
    """A store, and the event loop in which it is asked."""

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


def run_stories(
    machine: Callable[[Bench], RuleBasedStateMachine],
    url: str,
    *,
    examples: int,
    steps: int,
    by_functions: bool = True,
) -> None:
    """In memory a third of them: the same scripts run, slowly. By EVALSHA a quarter."""
    count = int(_EXAMPLES or examples)
    count = count // 3 if url.startswith("memory") else count
    how = settings(
        max_examples=count if by_functions else count // 4,
        stateful_step_count=steps,
        deadline=None,
        derandomize=os.environ.get("CI") == "true",
        suppress_health_check=list(HealthCheck),
    )
    with closing(Bench(url)) as bench:
        if not by_functions:
            refuse_functions(bench.redis)
        run_state_machine_as_test(lambda: machine(bench), settings=how)
