"""A scenario that runs the state machine of rooms (room_machine.py) for hours of simulated time."""

import asyncio
import time
from contextlib import closing
from unittest.mock import patch

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.faults.verdict import Row
from tests.faults.world import Scale
from tests.support.machines import Bench
from tests.support.redis_servers import RedisServer
from tests.support.room_machine import RoomMachine

SEEDS, STORIES, STEPS = 40, 5, 50
START_MS = 1_800_000_000_000
_FEW = settings(
    max_examples=STORIES, stateful_step_count=STEPS, deadline=None, database=None,
    phases=[Phase.generate], suppress_health_check=list(HealthCheck),
)  # fmt: skip


async def churn(scale: Scale) -> Row:
    return await asyncio.to_thread(_churn, 4 if scale.quick else SEEDS)


def _churn(seeds: int) -> Row:
    row = Row("an hour of churn in simulated time, 40 random seeds")
    began = time.monotonic()
    hours, stories = 0.0, 0
    with (
        RedisServer() as redis,
        closing(Bench(redis.url)) as bench,
        patch("sidecar.rooms.store.scripts._random_float", bench.draw),
    ):
        for number in range(seeds):
            try:
                simulated, machines = _run_hour(bench, number)
            except Exception as error:  # noqa: BLE001 - whatever a story ends with
                row.broken.append(f"seed {number}: {type(error).__name__}: {error}"[:500])
                continue
            hours += simulated
            stories += machines
    row.seconds = time.monotonic() - began
    row.notes.append(
        f"{seeds} seeds, an hour or more by the injected clock each, {hours:.0f} in all: {stories}"
        f" stories of up to {STEPS} steps; after every step the store equals the model and the"
        " promises are checked (tests/support/room_machine.py)"
    )
    return row


def _run_hour(bench: Bench, number: int) -> tuple[float, int]:
    """Run the state machine until an hour of simulated time has passed. Return the simulated hours
    and the number of runs."""
    machines: list[RoomMachine] = []

    def make() -> RoomMachine:
        machines.append(RoomMachine(bench))
        return machines[-1]

    hours, turn = 0.0, 0
    while hours < 1:
        run_state_machine_as_test(seed(1000 * number + turn)(make), settings=_FEW)
        hours = sum(machine.now - START_MS for machine in machines) / 3_600_000
        turn += 1
    return hours, len(machines)
