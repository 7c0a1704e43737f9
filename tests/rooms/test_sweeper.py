"""The sweep: what it removes, and who does it."""

import asyncio

import pytest

from sidecar.http.metrics import Metrics
from sidecar.kit.clock import StoreClock
from sidecar.kit.tasks import stop_workers
from sidecar.rooms.service import WaitingRoom, WaitingRooms
from sidecar.rooms.settings import RoomSettings
from sidecar.rooms.store.scripts import RoomStore
from sidecar.rooms.worker import sweep, sweep_forever
from sidecar.visitors.tokens import Tokens
from tests.support.receiver import until
from tests.support.rooms import new_room_name, without_outages
from tests.support.visitors import beat_all, go_in, queue


@pytest.fixture
def make_room(redis, turn):
    def make(*, name: str | None = None, real_time: bool = False, **settings) -> WaitingRoom:
        file = RoomSettings(**{"total_active_users": 1, **settings})
        name, clock = name or new_room_name(), StoreClock()
        store = RoomStore(
            redis, name, settings=without_outages(file), clock=clock,
            now_ms=None if real_time else turn, timeout_s=5,
        )  # fmt: skip
        return WaitingRoom(name, file, Tokens(name, ["k" * 32], clock), store, clock)

    return make


async def test_the_silent_are_swept_whatever_their_number(make_room, turn):
    """2,500 overdue places are removed in batches of a thousand, and places with polls stay."""
    room = make_room()
    metrics = Metrics()
    await go_in(room.store)
    tickets = await queue(room.store, 2501)
    await beat_all(room.store, tickets)
    turn.forward(150)
    await room.store.beat(tickets[1000])
    turn.forward(100)
    assert await sweep(room, metrics) == 2500
    snapshot = await room.store.snapshot()
    assert (snapshot.waiting, snapshot.counters["expired_swept"]) == (1, 2500)
    assert metrics.registry.get_sample_value(
        "waitroom_swept_total", {"room": room.name, "kind": "waiting"}
    ) == 2500  # fmt: skip


async def test_one_replica_sweeps_in_an_interval(make_room):
    """The leader lease expires, so a holder that died stops nobody."""
    name = new_room_name()
    first, second = make_room(name=name), make_room(name=name)
    assert await first.store.acquire_leader_lease("sweeping", seconds=0.2)
    assert not await second.store.acquire_leader_lease("sweeping", seconds=0.2)
    await asyncio.sleep(0.25)
    assert await second.store.acquire_leader_lease("sweeping", seconds=0.2)


async def test_the_sweeper_runs_by_itself(make_room):
    """It sweeps once in each sweep_interval, until it is cancelled."""
    room = make_room(real_time=True, sweep_interval=1)
    metrics = Metrics()
    task = asyncio.create_task(sweep_forever(WaitingRooms([room]), metrics))
    label = {"room": room.name}

    def has_swept_again() -> bool:
        return (metrics.registry.get_sample_value("waitroom_sweeps_total", label) or 0) >= 2

    await until(has_swept_again, "the second sweep")
    await stop_workers(task)
    assert task.cancelled()
