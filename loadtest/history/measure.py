"""`make bench-history`: what the history costs at ten million stays (docs/history.md)."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import cycle, islice
from pathlib import Path

import uvloop

from loadtest import databases, redis_server
from loadtest.amount import option
from loadtest.history import lookups, recording
from loadtest.history.load import DAYS, Loaded, load, pick_visitors, sizes
from loadtest.redis_server import fill_line, fill_sessions, room_store
from loadtest.report import Report
from sidecar.history.lookups import find_visitor
from sidecar.rooms.settings import RoomSettings
from tests.support.databases import Mariadb
from tests.support.processes import WAITROOM, Process, wait_until
from tests.support.site import SECRET, SocketRedis


@dataclass(frozen=True, slots=True)
class Amount:
    """How much is measured."""

    stays: int = option(10_000_000, "another number than ten million")
    rooms: int = 1000
    partitions: int = 128
    #: The share of the stays that have events, each room's latest.
    with_events: float = 0.03
    #: Look-ups of each kind and room.
    lookups: int = 1000
    #: Look-ups of each kind and room while a recorder writes, which makes the queue longer.
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
    #: The databases beside MariaDB.
    others: tuple[str, ...] = ("sqlite", "postgresql")
    #: None: the folder for temporary files.
    home: Path | None = option(  # noqa: RUF009 - a field
        None, "where the databases lie meanwhile", compare=False, type=Path
    )


WHOLE = Amount()
QUICK = Amount(
    stays=300_000, rooms=100, lookups=200, written=50, restarts=2, cold=20, events=20_000, rounds=1
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ReportCost:
    """The cost of one `waitroom report`."""

    period: str
    stays: int
    seconds: float
    #: The most memory that the command had.
    memory_mb: float


@dataclass
class Result:
    """Everything that was measured."""

    amount: Amount
    loaded: Loaded
    samples: list[lookups.Sample]
    disk_mb: float
    #: Look-ups after restarts: the first of each kind and room, and all.
    first: lookups.Durations = field(default_factory=dict)
    cold: lookups.Durations = field(default_factory=dict)
    warm: lookups.Durations = field(default_factory=dict)
    #: Look-ups while a recorder writes into the hot room, and how many events a second it wrote.
    written: lookups.Durations = field(default_factory=dict)
    written_per_s: float = 0
    live: lookups.Times | None = None
    #: Plans with the title of their room.
    explained: list[tuple[str, lookups.Plan]] = field(default_factory=list)
    #: Runs by the kind of database.
    recorded: dict[str, list[recording.Recording]] = field(default_factory=dict)
    bytes_per_event: float = 0
    reports: list[ReportCost] = field(default_factory=list)
    #: The machine's load when each part began.
    loads: dict[str, float] = field(default_factory=dict)

    def problems(self) -> list[str]:
        """Describe the look-ups that read more than one partition."""
        return [
            f"{title} room, {plan.lookup}: partitions {plan.partitions} are read, not one"
            for title, plan in self.explained
            if not plan.is_one_partition
        ]

    def times(self, part: str) -> Iterator[tuple[str, str, lookups.Times]]:
        """Yield kind, room and statistics of the look-ups in a part, such as "warm"."""
        durations: lookups.Durations = getattr(self, part)
        for (kind, room), durations_ms in durations.items():
            yield kind, room, lookups.summarize(durations_ms)

    def begin(self, part: str) -> None:
        """Note and print the machine's load at the beginning of a part."""
        self.loads[part] = os.getloadavg()[0]
        print(f"{part} (load {self.loads[part]:.1f})", flush=True)


def measure_reports(amount: Amount) -> Iterator[Report]:
    home = amount.home or Path(tempfile.gettempdir())
    need_gb, free_gb = 3 + 0.7 * amount.stays / 1e6, shutil.disk_usage(home).free / 1e9
    if free_gb < need_gb:
        sys.exit(f"{home} has {free_gb:.0f} GB, {need_gb:.0f} are needed: --home")
    yield report(measure(amount))


def measure(amount: Amount) -> Result:
    """Fill a MariaDB, look up visitors in it, and record into it and into the other databases."""
    with databases.open_database("mariadb", amount.home) as mariadb, SocketRedis() as redis:
        assert isinstance(mariadb, Mariadb)
        result = _fill(amount, mariadb)
        _measure_cold(result, mariadb)
        uvloop.run(_measure_warm(result, mariadb.url))
        _measure_while_written(result, mariadb, redis)
        result.begin("report")
        for period in amount.periods:
            result.reports.append(_measure_report(mariadb, result.samples[0].room, period))
        _measure_recorder(result, mariadb, redis)
    return result


def _fill(amount: Amount, mariadb: Mariadb) -> Result:
    load_before = os.getloadavg()[0]
    mariadb.start(*databases.LOADING)
    uvloop.run(_migrate(mariadb.url, amount.partitions))
    rooms = sizes(amount.stays, amount.rooms)
    chosen = {"hot": rooms[0], "middling": rooms[len(rooms) // 10], "small": rooms[-1]}
    now_ms = int(time.time() * 1000)
    loaded = load(mariadb, rooms, now_ms=now_ms, with_events=amount.with_events)
    samples = [
        lookups.Sample(
            size.room, title, size.stays, pick_visitors(mariadb, size.room, amount.lookups)
        )
        for title, size in chosen.items()
    ]
    result = Result(amount, loaded, samples, databases.size_mb(mariadb.folder))
    result.loads["load"] = load_before
    print(f"{loaded.stays:,} stays in {loaded.seconds:.0f} s (load {load_before:.1f})", flush=True)
    return result


async def _migrate(url: str, partitions: int) -> None:
    async with lookups.open_history(url, partitions) as history:
        await history.migrate()


def _measure_cold(result: Result, mariadb: Mariadb) -> None:
    """Look up other visitors after each restart, when the database has nothing in memory."""
    result.begin("cold")
    count = result.amount.cold
    for number in range(result.amount.restarts):
        mariadb.close(databases.STOP_S)
        mariadb.start()
        start = number * count
        samples = [
            replace(s, visitors=list(islice(cycle(s.visitors), start, start + count)))
            for s in result.samples
        ]
        durations = uvloop.run(lookups.look_up(mariadb.url, samples, begin=number, number=count))
        for key, durations_ms in durations.items():
            result.cold.setdefault(key, []).extend(durations_ms)
            result.first.setdefault(key, []).append(durations_ms[0])


async def _measure_warm(result: Result, url: str) -> None:
    amount = result.amount
    async with lookups.open_history(url) as history:
        for sample in result.samples:
            for visitor in sample.visitors:  # so that the database has all their rows in memory
                await find_visitor(history, sample.room, visitor)
    result.begin("warm")
    result.warm = await lookups.look_up(url, result.samples, number=amount.lookups)
    async with lookups.open_history(url) as history:
        for sample in result.samples:
            result.explained += [
                (sample.title, plan) for plan in await lookups.explain(history, sample)
            ]
    result.live = lookups.summarize(await _measure_live(amount.waiting, amount.lookups))


def _measure_while_written(result: Result, mariadb: Mariadb, redis: SocketRedis) -> None:
    """Look up visitors while a recorder writes into the hot room without a pause."""
    result.begin("while written")
    with _start_recorder(redis, mariadb, result.samples[0].room, 0) as recorder:
        wait_until(lambda: recording.STARTED in recorder.output, "a recorder", 60, of=recorder)
        looking_up = lookups.look_up(mariadb.url, result.samples, number=result.amount.written)
        result.written = uvloop.run(looking_up)
        recorder.stop()
    result.written_per_s = recording.read_recording(recorder.output).per_s


def _start_recorder(
    redis: SocketRedis, database: databases.Database, room: str, events: int
) -> Process:
    command = [sys.executable, "-m", "loadtest.history.recording", str(redis.socket), database.url,
               room, str(events)]  # fmt: skip
    return Process(command, log=database.folder / f"recorder-{room}.log")


def _measure_report(mariadb: Mariadb, room: str, period: str) -> ReportCost:
    """Run `waitroom report` over the time since `period` ago, such as 24h."""
    config, out = mariadb.folder / "waitroom.toml", mariadb.folder / "report.json"
    config.write_text(
        f'secret_keys = ["{SECRET}"]\nhistory = "{mariadb.url}"\n'
        f"[rooms.{room}]\ntotal_active_users = 300\n"
    )
    command = [WAITROOM, "report", "--config", str(config), room,
               "--from", period, "--format", "json"]  # fmt: skip
    start_s = time.monotonic()
    with out.open("wb") as file:
        process = subprocess.Popen(command, stdout=file)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.monotonic() - start_s
    if process.returncode:
        raise RuntimeError(f"waitroom report ended with {process.returncode}")
    stays = json.loads(out.read_text())["stays"]
    return ReportCost(period, stays, seconds, usage.ru_maxrss / 1024)


async def _measure_live(waiting: int, number: int) -> list[float]:
    """Return how long Redis takes to find a visitor among `waiting`, ms, `number` times."""
    durations_ms = []
    async with redis_server.start() as server:
        await fill_sessions(server.redis, "hot", 1000)
        line = await fill_line(server.redis, "hot", waiting)
        store = room_store(server.redis, "hot", RoomSettings(total_active_users=1000))
        for i in range(number):
            visitor = line[i * 7919 % len(line)][1].visitor
            start_s = time.perf_counter()
            place = await store.lists.find(visitor)
            durations_ms.append(1000 * (time.perf_counter() - start_s))
            if place.position is None:
                raise RuntimeError(f"{visitor} does not wait")
            await asyncio.sleep(0)
    return durations_ms


def _measure_recorder(result: Result, mariadb: Mariadb, redis: SocketRedis) -> None:
    """Record into each database in turn. MariaDB is already full."""
    amount = result.amount
    result.bytes_per_event = uvloop.run(
        recording.measure_event_bytes(str(redis.socket), amount.events)
    )
    with ExitStack() as stack:
        servers: list[databases.Database] = [mariadb]
        for kind in amount.others:
            servers.append(stack.enter_context(databases.open_database(kind, amount.home)))
            uvloop.run(_migrate(servers[-1].url, amount.partitions))
        result.begin("record")
        for number in range(amount.rounds):
            for database in servers:
                with _start_recorder(
                    redis, database, f"record-{number}", amount.events
                ) as recorder:
                    wait_until(lambda: not recorder.running, "the events", 600)
                run = recording.read_recording(recorder.output)
                result.recorded.setdefault(database.kind, []).append(run)
                print(f"{database.kind:12}{run.per_s:10,.0f} events/s", flush=True)


def report(result: Result) -> Report:
    values = {
        "result": result, "amount": result.amount, "days": DAYS, "settings": databases.SETTINGS[0],
        "versions": databases.versions(), "statements": _format_statements(result),
        "names": {"sqlite": "SQLite", "mariadb": "MariaDB", "postgresql": "PostgreSQL"},
    }  # fmt: skip
    return Report("history", values, result, problems=result.problems())


def _format_statements(result: Result) -> dict[str, str]:
    """Return the look-up of each explained statement, which has a line for each condition."""
    statements: dict[str, str] = {}
    for _, plan in result.explained:
        text = plan.statement.replace("waitroom_entries.", "").replace("waitroom_events.", "")
        lines = (line.strip() for line in text.replace(" AND ", "\n  AND ").splitlines())
        statements.setdefault("\n".join(lines), plan.lookup)
    return statements
