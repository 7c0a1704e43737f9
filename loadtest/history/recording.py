"""Measures how fast events are recorded, and for how long that blocks the event loop.

The recorder runs in a process of its own, with all modules that a replica imports:

    python -m loadtest.history.recording REDIS_SOCKET URL ROOM EVENTS

It prints when it has recorded the first batch, and the result at the end.
"""

import asyncio
import importlib
import json
import signal
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any

import uvloop
from sqlalchemy import func, select

from loadtest.history.lookups import Times, open_history, summarize
from sidecar.history.store.event_stream import EventStream
from sidecar.history.store.stays import History
from sidecar.history.store.tables import entries
from sidecar.history.worker import BATCH, PAUSE_S, Recorder
from sidecar.http.metrics import Metrics
from sidecar.kit.clock import StoreClock
from sidecar.rooms.redis_keys import room_key
from sidecar.rooms.service import WaitingRoom
from sidecar.rooms.settings import RoomSettings
from sidecar.rooms.store.scripts import RoomStore
from sidecar.storage.redis.connect import close, connect
from sidecar.storage.sql import database as sql
from sidecar.visitors.tokens import Tokens, new_visitor

#: The events of one stay, as a room's scripts write them.
_STEPS = (("joined", "new"), ("called", "head"), ("admitted", "claimed"), ("expired", "session"))
_TICK_S = 0.001
#: Events that are written for a recorder without an end when it has recorded all.
_REFILL = 40 * BATCH
#: Printed when the first batch is written.
STARTED = "started"


@dataclass(frozen=True, slots=True)
class Recording:
    """The result of one run of the recorder."""

    events: int
    seconds: float
    #: How long batches block the event loop.
    kept: Times

    @property
    def per_s(self) -> float:
        return self.events / self.seconds


async def fill(redis: Any, room: str, events: int) -> None:
    """Write the events of stays to a room's stream."""
    now_ms = int(time.time() * 1000)
    for start in range(0, events, 4 * BATCH):
        pipe = redis.pipeline(transaction=False)
        visitors = [new_visitor() for _ in range(min(BATCH, (events - start) // len(_STEPS)))]
        for kind, why in _STEPS:
            for n, visitor in enumerate(visitors):
                order = 1000 * now_ms + start + n
                event: dict[Any, Any] = {"kind": kind, "visitor": visitor, "why": why, "at": now_ms}
                if kind == "joined":
                    event |= {"order": order, "joined": now_ms, "position": n + 1}
                elif kind == "called":
                    event["position"] = 1
                pipe.xadd(room_key(room, "events"), event)
        await pipe.execute()


async def measure_event_bytes(socket: str, events: int) -> float:
    """Return the memory that an event takes in Redis until it is recorded."""
    redis: Any = connect(f"unix://{socket}", timeout_s=60)
    await fill(redis, "size", events)
    key = room_key("size", "events")
    size = await redis.memory_usage(key, samples=0)
    await redis.delete(key)
    await close(redis)
    return float(size) / events


def read_recording(output: str) -> Recording:
    """Return the result that a recorder printed last."""
    result = json.loads(output.splitlines()[-1])
    return Recording(result["events"], result["seconds"], Times(**result["kept"]))


async def record(socket: str, url: str, room: str, events: int) -> Recording:
    """Record events of one room, with pauses as a replica has them, into a migrated database.
    Record without an end if `events` is 0, until SIGTERM."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    redis: Any = connect(f"unix://{socket}", timeout_s=5)
    async with open_history(url) as history:
        await history.check()
        await fill(redis, room, events or _REFILL)
        recorder, at, stream = _create_recorder(redis, history, room)
        delays_ms: list[float] = []
        watching = asyncio.create_task(_watch_loop(delays_ms))
        blocked_ms, written, start_s = [], 0, time.perf_counter()
        while not stop.is_set():
            count = await recorder.record(at, stream)
            if count and not written:
                print(STARTED, flush=True)
            if not count and events:
                break
            if not count:
                await fill(redis, room, _REFILL)
            written += count
            blocked_ms.append(max(delays_ms, default=0.0))
            delays_ms.clear()
            await asyncio.sleep(PAUSE_S)
        seconds = time.perf_counter() - start_s
        watching.cancel()
        query = select(func.count()).select_from(entries).where(entries.c.room == room)
        async with sql.begin(history._engine) as connection:  # noqa: SLF001
            stays = int((await connection.execute(query)).scalar_one())
        if events and (written, stays) != (events, events // len(_STEPS)):
            raise RuntimeError(f"{events} events came, {written} went, {stays} stays")
    await close(redis)
    return Recording(written, seconds, summarize(blocked_ms))


async def _watch_loop(delays_ms: list[float]) -> None:
    """Add to `delays_ms` for how long the event loop is blocked."""
    while True:
        due_s = time.perf_counter() + _TICK_S
        await asyncio.sleep(_TICK_S)
        delays_ms.append(1000 * (time.perf_counter() - due_s))


def _create_recorder(
    redis: Any, history: History, name: str
) -> tuple[Recorder, WaitingRoom, EventStream]:
    settings, clock = RoomSettings(total_active_users=1), StoreClock()
    scripts = settings.get_script_settings(events_kept=10_000_000)
    store = RoomStore(redis, name, settings=scripts, clock=clock, timeout_s=5)
    room = WaitingRoom(name, settings, Tokens(name, ["k" * 32], clock), store, clock)
    stream = EventStream(redis, name, owner="one", timeout_s=5)
    return Recorder(history, Metrics()), room, stream


if __name__ == "__main__":
    importlib.import_module("sidecar.app.replica")
    address, database, name, number = sys.argv[1:]
    recording = uvloop.run(record(address, database, name, int(number)))
    print(json.dumps(asdict(recording)))
