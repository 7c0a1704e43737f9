"""How soon those who wait go on: contended leases beside redis-py's lock, the result of an instant
job, and ten thousand waiting holders on one replica."""

import asyncio
import multiprocessing
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

from loadtest.callers import Connection, prepare
from loadtest.generator import raise_limits
from loadtest.machine import memory_mb
from loadtest.report import Report, Target
from loadtest.rounds import Rounds
from tests.support.processes import WAITROOM
from tests.support.service import TOKEN, Service
from tests.support.target import run_target
from waitroom import Client

PROCESSES, GRANTS, HOLD_S = 3, 6, 0.05
RULES = """
jobs = "sqlite:///{folder}/jobs.db"

[targets]
instant = {{url = "{url}", private = true, concurrency = 4}}

[leases]
contended = {{term = "60s"}}
crowded = {{term = "1h"}}
"""
LEASE, LOCK = "Waitroom's lease", "redis-py's lock"


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
    contended: Rounds[str, Contended]
    jobs_ms: list[float] = field(default_factory=list)
    crowd: Crowd | None = None


def measure_reports(amount: Amount) -> Iterator[Report]:
    figures = Figures(Rounds(amount.rounds))
    with TemporaryDirectory() as name, run_target(Path(name)) as target:
        rules = RULES.format(folder=name, url=target.url)
        with Service(rules, replicas=1) as service:
            service.run(
                "worker", [WAITROOM, "run-jobs", "--config", str(service.folder / "replica-0.toml")]
            )
            url, store = service.urls[0], service.store
            holders = [(LEASE, partial(_hold_leases, url)), (LOCK, partial(_hold_locks, store))]
            for turn in figures.contended.turns(holders):
                for name_of_lock, hold in turn:
                    figures.contended.add(name_of_lock, _contend(hold))
                figures.jobs_ms += _run_jobs(url, amount.jobs)
            figures.crowd = asyncio.run(_crowd(amount, url, store, service.replicas[0].pid))
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
    raise_limits()
    redis: Any = Redis.from_url(store)

    def count_calls() -> int:
        return int(redis.info("commandstats")["cmdstat_fcall"]["calls"])

    path = "leases/crowded/a"
    owner = await Connection.open(url)
    await owner.ask(prepare("POST", path, {"holder": "h0"}))
    before_mb = memory_mb(pid)
    waiting = []
    for number in range(1, amount.waiters + 1):
        holder = await Connection.open(url)
        holder.send(prepare("POST", f"{path}?wait=60", {"holder": f"h{number}"}))
        waiting.append(holder)
        if number % 100 == 0:
            await owner.ask(prepare("GET", f"{path}?holder=nobody"))
    megabytes = memory_mb(pid) - before_mb
    calls, began_s = count_calls(), time.monotonic()
    await asyncio.sleep(amount.idle_s)
    per_s = (count_calls() - calls) / (time.monotonic() - began_s)
    gaps_ms = []
    for number in range(amount.releases):
        released_s = time.monotonic()
        owner.send(prepare("DELETE", f"{path}?holder=h{number}"))
        granted = await waiting[number].read()
        gaps_ms.append((time.monotonic() - released_s) * 1000)
        if b'"granted"' not in granted:
            raise RuntimeError(f"the next holder was told {granted!r}")
        await owner.read()
    for connection in (owner, *waiting):
        connection.close()
    return Crowd(amount.waiters, megabytes, per_s, median(gaps_ms))


# The report --------------------------------------------------------------------------------------


def _report(amount: Amount, figures: Figures) -> Report:
    gap_ms = figures.contended.median(LEASE, "gap_ms")
    job_ms = median(figures.jobs_ms)
    targets = [
        Target("leases: idle gap between two holders", "≤ 30 ms", gap_ms <= 30, f"{gap_ms:.1f} ms"),
        Target("jobs: an instant call's result", "≤ 60 ms", job_ms <= 60, f"{job_ms:.1f} ms"),
    ]
    problems = [f"{t.what}: {t.figure}, wanted {t.wanted}" for t in targets if not t.is_reached]
    values = {
        "amount": amount, "contended": figures.contended, "crowd": figures.crowd, "job_ms": job_ms,
        "processes": PROCESSES, "grants": GRANTS, "hold_s": HOLD_S, "names": (LEASE, LOCK),
    }  # fmt: skip
    return Report("waits", values, figures, {}, problems, targets)
