"""The measurement, part by part: fills a MariaDB, asks it, writes into it, and two others."""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import uvloop

from loadtest.databases import Mariadb, Postgresql, RedisServer, Server, Sqlite
from loadtest.history.command import make_report
from loadtest.history.live import measure_live
from loadtest.history.load import load
from loadtest.history.lookups import (
    Sample,
    Taken,
    add,
    explain,
    look_up,
    open_history,
    read_all,
    times,
)
from loadtest.history.recording import STARTED, bytes_per_event, run
from loadtest.history.result import Amount, Result
from loadtest.history.stays import sizes
from tests.support.processes import Process, wait_until


def measure_all(amount: Amount, home: Path) -> Result:
    """Databases lie in `home` meanwhile."""
    with Mariadb(home) as mariadb, RedisServer() as redis:
        result = _fill(amount, mariadb)
        _look_cold(result, mariadb)
        uvloop.run(_look_warm(result, mariadb.url))
        _look_while_written(result, mariadb, redis)
        _note(result, "report")
        for period in amount.periods:
            hot = result.samples[0].room
            result.reports.append(make_report(mariadb.url, hot, period, mariadb.folder))
        _record(result, mariadb, redis, home)
    return result


def _note(result: Result, part: str) -> None:
    result.loads[part] = os.getloadavg()[0]
    print(f"{part} (load {result.loads[part]:.1f})", flush=True)


def _fill(amount: Amount, mariadb: Mariadb) -> Result:
    before = os.getloadavg()[0]
    mariadb.start(loading=True)
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
    result = Result(amount, loaded, samples, mariadb.size_mb())
    result.loads["load"] = before
    print(f"{loaded.stays:,} stays in {loaded.seconds:.0f} s (load {before:.1f})", flush=True)
    return result


async def _migrate(url: str, partitions: int) -> None:
    async with open_history(url, partitions) as history:
        await history.migrate()


def _look_cold(result: Result, mariadb: Mariadb) -> None:
    """Each time just after a start, when nothing is in memory; other visitors each time."""
    _note(result, "cold")
    for number in range(result.amount.restarts):
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
    result.live = times(await measure_live(amount.waiting, amount.lookups))


def _look_while_written(result: Result, mariadb: Mariadb, redis: RedisServer) -> None:
    """A recorder writes into the hot room without a pause."""
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


def _record(result: Result, mariadb: Mariadb, redis: RedisServer, home: Path) -> None:
    """One database after the other, as many rounds: MariaDB is the one that is full already."""
    amount = result.amount
    result.bytes_per_event = uvloop.run(bytes_per_event(str(redis.socket), amount.events))
    kinds = {kind.kind: kind for kind in (Sqlite, Postgresql)}
    with ExitStack() as stack:
        chosen: list[Server] = []
        for name in amount.databases:
            if name == mariadb.kind:
                chosen.append(mariadb)
                continue
            server = stack.enter_context(kinds[name](home))
            server.start()
            uvloop.run(_migrate(server.url, amount.partitions))
            chosen.append(server)
        _note(result, "record")
        for number in range(amount.rounds):
            for server in chosen:
                done = run(str(redis.socket), server.url, f"record-{number}", amount.events)
                result.recorded.setdefault(server.kind, []).append(done)
                print(f"{server.kind:12}{done.per_s:10,.0f} events/s", flush=True)
