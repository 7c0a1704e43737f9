"""The measurement, part by part: fill a MariaDB, ask it, write into it and into two others."""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import uvloop

from loadtest.databases import LOADING, STOP_S, Database, open_database, size_mb
from loadtest.history.load import Loaded, load
from loadtest.history.lookups import (
    Plan,
    Sample,
    Taken,
    Times,
    add,
    explain,
    look_up,
    open_history,
    read_all,
    times,
)
from loadtest.history.recording import STARTED, Recording, bytes_per_event, run
from loadtest.history.stays import DAYS, sizes
from loadtest.machine import peak_memory_mb
from loadtest.redis_server import fill_line, fill_sessions, redis_server
from sidecar.kit.clock import StoreClock
from sidecar.rooms.settings import RoomSettings
from sidecar.rooms.store.scripts import RoomStore
from tests.support.databases import Mariadb
from tests.support.processes import WAITROOM, Process, wait_until
from tests.support.site import SECRET, SocketRedis


@dataclass(frozen=True, slots=True)
class Amount:
    stays: int = 10_000_000
    rooms: int = 1000
    partitions: int = 128
    #: The share of the stays that have events, each room's latest.
    with_events: float = 0.03
    #: Look-ups of each kind and room.
    lookups: int = 1000
    #: Look-ups while a recorder writes, whose stays make the queue longer all the time.
    written: int = 200
    restarts: int = 5
    #: Look-ups of each kind and room after a restart.
    cold: int = 60
    #: Visitors waiting in the live room that is looked up in Redis.
    waiting: int = 5000
    #: How long ago the periods of reports begin.
    periods: tuple[str, ...] = ("24h", f"{DAYS + 1}d")
    #: Events that a recorder writes in one run.
    events: int = 100_000
    rounds: int = 3
    databases: tuple[str, ...] = ("sqlite", "mariadb", "postgresql")
    #: Where the databases lie meanwhile; None: in the folder for temporary files.
    home: Path | None = field(default=None, compare=False)


WHOLE = Amount()
QUICK = Amount(
    stays=300_000, rooms=100, lookups=200, written=50, restarts=2, cold=20, events=20_000, rounds=1
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class RoomReport:
    """The cost of one `waitroom report`."""

    period: str
    stays: int
    seconds: float
    #: The most memory that the command had.
    memory_mb: float


@dataclass
class Result:
    amount: Amount
    loaded: Loaded
    samples: list[Sample]
    disk_mb: float
    #: Look-ups after restarts: the first of each kind and room, and all.
    first: Taken = field(default_factory=dict)
    cold: Taken = field(default_factory=dict)
    warm: Taken = field(default_factory=dict)
    #: Look-ups while a recorder writes into the hot room, and how many events a second it wrote.
    written: Taken = field(default_factory=dict)
    written_per_s: float = 0
    live: Times | None = None
    #: Plans with the title of their room.
    explained: list[tuple[str, Plan]] = field(default_factory=list)
    #: Runs by the kind of database.
    recorded: dict[str, list[Recording]] = field(default_factory=dict)
    bytes_per_event: float = 0
    reports: list[RoomReport] = field(default_factory=list)
    #: The machine's load when each part began.
    loads: dict[str, float] = field(default_factory=dict)

    def problems(self) -> list[str]:
        return [
            f"{title} room, {plan.lookup}: partitions {plan.partitions} are read, not one"
            for title, plan in self.explained
            if not plan.is_one_partition
        ]


def measure(amount: Amount) -> Result:
    with open_database("mariadb", amount.home) as mariadb, SocketRedis() as redis:
        assert isinstance(mariadb, Mariadb)
        result = _fill(amount, mariadb)
        _look_cold(result, mariadb)
        uvloop.run(_look_warm(result, mariadb.url))
        _look_while_written(result, mariadb, redis)
        _note(result, "report")
        for period in amount.periods:
            hot = result.samples[0].room
            result.reports.append(_make_report(mariadb, hot, period))
        _record(result, mariadb, redis)
    return result


def _note(result: Result, part: str) -> None:
    result.loads[part] = os.getloadavg()[0]
    print(f"{part} (load {result.loads[part]:.1f})", flush=True)


def _fill(amount: Amount, mariadb: Mariadb) -> Result:
    before = os.getloadavg()[0]
    mariadb.start(*LOADING)
    uvloop.run(_migrate(mariadb.url, amount.partitions))
    rooms = sizes(amount.stays, amount.rooms)
    chosen = {"hot": rooms[0], "middling": rooms[len(rooms) // 10], "small": rooms[-1]}
    loaded = load(
        mariadb,
        rooms,
        now_ms=int(time.time() * 1000),
        with_events=amount.with_events,
        sample={size.room: amount.lookups // 2 for size in chosen.values()},
    )
    # A server that was not filled in minutes has counted its rows by itself long before.
    count = [*mariadb.client, "history", "-e", "ANALYZE TABLE waitroom_entries, waitroom_events"]
    subprocess.run(count, check=True, stdout=subprocess.DEVNULL)
    samples = []
    for title, size in chosen.items():
        pairs = zip(loaded.some[size.room], loaded.latest[size.room], strict=False)
        samples.append(Sample(size.room, title, size.stays, [v for pair in pairs for v in pair]))
    result = Result(amount, loaded, samples, size_mb(mariadb.folder))
    result.loads["load"] = before
    print(f"{loaded.stays:,} stays in {loaded.seconds:.0f} s (load {before:.1f})", flush=True)
    return result


async def _migrate(url: str, partitions: int) -> None:
    async with open_history(url, partitions) as history:
        await history.migrate()


def _look_cold(result: Result, mariadb: Mariadb) -> None:
    """Look up other visitors after each restart, when nothing is in memory."""
    _note(result, "cold")
    for number in range(result.amount.restarts):
        mariadb.close(STOP_S)
        mariadb.start()
        start = number * result.amount.cold
        some = [
            Sample(s.room, s.title, s.stays, _slice(s.visitors, start, result.amount.cold))
            for s in result.samples
        ]
        taken = uvloop.run(_look(mariadb.url, some, number))
        add(result.cold, taken)
        add(result.first, {k: {t: v[:1] for t, v in rooms.items()} for k, rooms in taken.items()})


def _slice(visitors: Sequence[str], start: int, number: int) -> list[str]:
    return [visitors[i % len(visitors)] for i in range(start, start + number)]


async def _look(url: str, samples: Sequence[Sample], begin: int = 0, number: int = 0) -> Taken:
    async with open_history(url) as history:
        return await look_up(history, samples, begin=begin, number=number)


async def _look_warm(result: Result, url: str) -> None:
    amount = result.amount
    async with open_history(url) as history:
        await read_all(history, result.samples)
    _note(result, "warm")
    result.warm = await _look(url, result.samples, number=amount.lookups)
    async with open_history(url) as history:
        for sample in result.samples:
            result.explained += [(sample.title, plan) for plan in await explain(history, sample)]
    result.live = times(await _measure_live(amount.waiting, amount.lookups))


def _look_while_written(result: Result, mariadb: Mariadb, redis: SocketRedis) -> None:
    """Look up visitors while a recorder writes into the hot room without a pause."""
    _note(result, "while written")
    log = mariadb.folder / "recorder.log"
    command = [sys.executable, "-m", "loadtest.history.recording", str(redis.socket), mariadb.url,
               result.samples[0].room]  # fmt: skip
    with Process(command, log=log) as recorder:
        wait_until(lambda: STARTED in recorder.output, f"a recorder: {recorder.output}", 60)
        began = time.monotonic()
        result.written = uvloop.run(
            _look(mariadb.url, result.samples, number=result.amount.written)
        )
        seconds = time.monotonic() - began
        recorder.stop()
    result.written_per_s = int(log.read_text().split()[-1]) / seconds


def _make_report(mariadb: Mariadb, room: str, period: str) -> RoomReport:
    """Run `waitroom report` over the time since `period` ago, such as 24h."""
    config, out = mariadb.folder / "waitroom.toml", mariadb.folder / "report.json"
    config.write_text(
        f'secret_keys = ["{SECRET}"]\nhistory = "{mariadb.url}"\n'
        f"[rooms.{room}]\ntotal_active_users = 300\n"
    )
    command = [WAITROOM, "report", "--config", str(config), room,
               "--from", period, "--format", "json"]  # fmt: skip
    began, memory_mb = time.monotonic(), 0.0
    with out.open("wb") as file:
        process = subprocess.Popen(command, stdout=file)
        while process.poll() is None:
            memory_mb = max(memory_mb, peak_memory_mb(process.pid))
            time.sleep(0.02)
    seconds = time.monotonic() - began
    if process.returncode:
        raise RuntimeError(f"waitroom report ended with {process.returncode}")
    return RoomReport(period, json.loads(out.read_text())["stays"], seconds, memory_mb)


async def _measure_live(waiting: int, number: int) -> list[float]:
    """Return how long Redis takes to find a visitor among `waiting`, ms, `number` times."""
    durations_ms = []
    async with redis_server() as server:
        await fill_sessions(server.redis, "hot", 1000)
        line = await fill_line(server.redis, "hot", waiting)
        settings = RoomSettings(total_active_users=1000).for_scripts()
        store = RoomStore(server.redis, "hot", settings=settings, clock=StoreClock(), timeout_s=5)
        for i in range(number):
            visitor = line[i * 7919 % len(line)][1].visitor
            began = time.perf_counter()
            place = await store.lists.find(visitor)
            durations_ms.append(1000 * (time.perf_counter() - began))
            if place.position is None:
                raise RuntimeError(f"{visitor} does not wait")
            await asyncio.sleep(0)
    return durations_ms


def _record(result: Result, mariadb: Mariadb, redis: SocketRedis) -> None:
    """Record into each database in turn. MariaDB is full already."""
    amount = result.amount
    result.bytes_per_event = uvloop.run(bytes_per_event(str(redis.socket), amount.events))
    with ExitStack() as stack:
        chosen: list[Database] = []
        for name in amount.databases:
            if name == mariadb.kind:
                chosen.append(mariadb)
                continue
            server = stack.enter_context(open_database(name, amount.home))
            uvloop.run(_migrate(server.url, amount.partitions))
            chosen.append(server)
        _note(result, "record")
        for number in range(amount.rounds):
            for server in chosen:
                done = run(str(redis.socket), server.url, f"record-{number}", amount.events)
                result.recorded.setdefault(server.kind, []).append(done)
                print(f"{server.kind:12}{done.per_s:10,.0f} events/s", flush=True)
