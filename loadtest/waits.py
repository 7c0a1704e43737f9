"""How soon those who wait go on: contended leases beside redis-py's lock, the result of an instant
job, and ten thousand waiting holders on one replica."""

import argparse
import asyncio
import multiprocessing
import os
import re
import resource
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from redis import Redis

from loadtest.report import NOT_MEASURED, Report, Target, bold, table
from loadtest.rounds import describe_loads
from tests.support.processes import WAITROOM
from tests.support.service import TOKEN, Service
from tests.support.target import run_target
from waitroom import Client

__all__ = ["QUICK", "WHOLE", "add_options", "measure_reports"]

PROCESSES, GRANTS, HOLD_S = 3, 6, 0.05
RULES = """
jobs = "sqlite:///{folder}/jobs.db"

[targets]
instant = {{url = "{url}", private = true, concurrency = 4}}

[leases]
contended = {{term = "60s"}}
crowded = {{term = "1h"}}
"""
_HOW = (
    f"{PROCESSES} processes take one lease {GRANTS} times each and hold it for "
    f"{HOLD_S * 1000:g} ms, with the blocking client and with redis-py's lock (its default sleep). "
    "The gap is the time from the end of one hold to the beginning of the next. A job's call "
    "answers at once; its time is from the submission to the result, by `jobs.submit` and "
    "`jobs.wait`. One replica and one redis-server on this machine; medians of {rounds} rounds. "
    "{loads}"
)


@dataclass(frozen=True, slots=True)
class Amount:
    rounds: int = 5
    jobs: int = 50
    waiters: int = 10_000
    releases: int = 50
    idle_s: float = 10.0


WHOLE = Amount()
QUICK = Amount(rounds=1, jobs=20, waiters=1_000, releases=20, idle_s=5.0)


@dataclass(frozen=True, slots=True)
class Contended:
    """One round of contended leases."""

    seconds: float
    gap_ms: float
    worst_gap_ms: float


@dataclass(frozen=True, slots=True)
class Crowd:
    """Many holders that wait on one replica."""

    waiters: int
    megabytes: float
    heartbeat_calls_per_s: float
    gap_ms: float


@dataclass(slots=True)
class Figures:
    ours: list[Contended] = field(default_factory=list)
    lock: list[Contended] = field(default_factory=list)
    jobs_ms: list[float] = field(default_factory=list)
    crowd: Crowd | None = None
    loads: list[float] = field(default_factory=list)


def add_options(_: argparse.ArgumentParser) -> None:
    """Add no options."""


def measure_reports(amount: Amount) -> Iterator[Report]:
    figures = Figures()
    with TemporaryDirectory() as name, run_target(Path(name)) as target:
        rules = RULES.format(folder=name, url=target.url)
        with Service(rules, replicas=1) as service:
            service.run(
                "worker", [WAITROOM, "run-jobs", "--config", str(service.folder / "replica-0.toml")]
            )
            url, store = service.urls[0], service._store  # noqa: SLF001
            for _ in range(amount.rounds):
                figures.loads.append(os.getloadavg()[0])
                figures.lock.append(_contend(partial(_hold_locks, store)))
                figures.ours.append(_contend(partial(_hold_leases, url)))
                figures.jobs_ms += _run_jobs(url, amount.jobs)
            pid = service.replicas[0].pid
            figures.crowd = asyncio.run(_crowd(amount, url, store, pid))
    yield _report(amount, figures)


# Contended leases --------------------------------------------------------------------------------


def _hold_leases(url: str, barrier: Any, held: Any) -> None:
    with Client(url, token=TOKEN) as client:
        client.request("GET", "/v1/leases")
        barrier.wait()
        for _ in range(GRANTS):
            with client.lease("contended", "a", wait=60):
                _hold(held)


def _hold_locks(store: str, barrier: Any, held: Any) -> None:
    with Redis.from_url(store) as redis:
        redis.ping()
        barrier.wait()
        for _ in range(GRANTS):
            with redis.lock("loadtest:lock", timeout=60):
                _hold(held)


def _hold(held: Any) -> None:
    began_s = time.monotonic()
    time.sleep(HOLD_S)
    held.put((began_s, time.monotonic()))


def _contend(work: Any) -> Contended:
    spawn = multiprocessing.get_context("spawn")
    barrier, held = spawn.Barrier(PROCESSES), spawn.Queue()
    processes = [spawn.Process(target=work, args=(barrier, held)) for _ in range(PROCESSES)]
    for process in processes:
        process.start()
    spans = sorted(held.get(timeout=120) for _ in range(PROCESSES * GRANTS))
    for process in processes:
        process.join()
    gaps = [(later[0] - earlier[1]) * 1000 for earlier, later in pairwise(spans)]
    if min(gaps) < 0:
        raise RuntimeError("two held the resource at the same time")
    return Contended(spans[-1][1] - spans[0][0], median(gaps), max(gaps))


# Jobs --------------------------------------------------------------------------------------------


def _run_jobs(url: str, number: int) -> list[float]:
    times_ms = []
    with Client(url, token=TOKEN) as client:
        for _ in range(number):
            began_s = time.monotonic()
            job = client.jobs.wait(client.jobs.submit("instant", path="ok")["id"], wait=60)
            if job["state"] != "completed":
                raise RuntimeError(f"the job is {job['state']}")
            times_ms.append((time.monotonic() - began_s) * 1000)
    return times_ms[2:]  # the first ones open connections


# A crowd -----------------------------------------------------------------------------------------


async def _crowd(amount: Amount, url: str, store: str, pid: int) -> Crowd:
    """Let holders wait with open requests, then release the lease from holder to holder."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 65_536)), hard))
    host, port = url.removeprefix("http://").split(":")
    redis: Any = Redis.from_url(store)
    head = f"HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {TOKEN}\r\n"

    async def send(writer: asyncio.StreamWriter, line: str, body: bytes = b"") -> None:
        writer.write(f"{line} {head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        await writer.drain()

    async def read(reader: asyncio.StreamReader) -> bytes:
        answer = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: (\d+)", answer)
        return await reader.readexactly(int(length[1]) if length else 0)

    def calls() -> int:
        return int(redis.info("commandstats")["cmdstat_fcall"]["calls"])

    reader, writer = await asyncio.open_connection(host, port)
    path = "/v1/leases/crowded/a"
    await send(writer, f"POST {path}", b'{"holder": "h0"}')
    await read(reader)
    before_kb = _read_memory_kb(pid)
    waiting = []
    for number in range(1, amount.waiters + 1):
        pair = await asyncio.open_connection(host, port)
        await send(pair[1], f"POST {path}?wait=60", f'{{"holder": "h{number}"}}'.encode())
        waiting.append(pair)
        if number % 100 == 0:
            await send(writer, f"GET {path}?holder=nobody")
            await read(reader)
    megabytes = (_read_memory_kb(pid) - before_kb) / 1024
    count, began_s = calls(), time.monotonic()
    await asyncio.sleep(amount.idle_s)
    per_s = (calls() - count) / (time.monotonic() - began_s)
    gaps_ms = []
    for number in range(amount.releases):
        released_s = time.monotonic()
        await send(writer, f"DELETE {path}?holder=h{number}")
        granted = await read(waiting[number][0])
        gaps_ms.append((time.monotonic() - released_s) * 1000)
        if b'"granted"' not in granted:
            raise RuntimeError(f"the next holder was told {granted!r}")
        await read(reader)
    for _, each in [*waiting, (reader, writer)]:
        each.close()
    return Crowd(amount.waiters, megabytes, per_s, median(gaps_ms))


def _read_memory_kb(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return int(status.partition("VmRSS:")[2].split()[0])


# The report --------------------------------------------------------------------------------------


def _report(amount: Amount, figures: Figures) -> Report:
    rows = [
        [
            name,
            f"{median(run.seconds for run in runs):.2f} s",
            f"{median(run.gap_ms for run in runs):.1f} ms",
            f"{max(run.worst_gap_ms for run in runs):.0f} ms",
        ]
        for name, runs in (("Waitroom's lease", figures.ours), ("redis-py's lock", figures.lock))
    ]
    gap_ms = median(run.gap_ms for run in figures.ours)
    job_ms = median(figures.jobs_ms)
    targets = [
        Target("leases: idle gap between two holders", "≤ 30 ms", gap_ms <= 30, f"{gap_ms:.1f} ms"),
        Target("jobs: an instant call's result", "≤ 60 ms", job_ms <= 60, f"{job_ms:.1f} ms"),
    ]
    problems = [f"{t.what}: {t.figure}, wanted {t.wanted}" for t in targets if not t.is_reached]
    return Report(
        "waits",
        "How soon those who wait go on",
        [
            _HOW.format(rounds=amount.rounds, loads=describe_loads(figures.loads)),
            table([f"{PROCESSES * GRANTS} grants", "all", "median gap", "worst gap"], rows),
            f"An instant job: {job_ms:.1f} ms from submission to result.",
            _describe_crowd(figures.crowd),
            *bold(problems),
        ],
        figures,
        targets=targets,
    )


def _describe_crowd(crowd: Crowd | None) -> str:
    if crowd is None:
        return NOT_MEASURED
    return (
        f"**{crowd.waiters:,} waiting holders of one resource on one replica**, each with an open "
        f"request: {crowd.megabytes:.0f} MB more memory of the replica, and "
        f"{crowd.heartbeat_calls_per_s:.0f} Redis calls a second for all heartbeats. A release "
        f"asks Redis about the next holder alone, who has the lease after {crowd.gap_ms:.1f} ms."
    )
