"""Runs a whole job system in the test's process, without separate workers and replicas.

Queues are in the test session's redis-server, and jobs in SQLite. `fail` lets a step of it fail.
"""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable
from functools import partial
from itertools import chain, repeat
from pathlib import Path
from typing import Any
from unittest.mock import DEFAULT, AsyncMock

import pytest

from sidecar.http.metrics import Metrics
from sidecar.jobs.call_result import CallResult
from sidecar.jobs.changes import JobChanges
from sidecar.jobs.model import Job, NewJob
from sidecar.jobs.permits import Permits
from sidecar.jobs.service import Jobs
from sidecar.jobs.settings import TargetSettings
from sidecar.jobs.store.job_store import LOCK_TIMEOUT_S, JobStore
from sidecar.jobs.store.target_queue import QueuePlace, QueueState, TargetStore
from sidecar.jobs.targets import Target, TargetRegistry
from sidecar.jobs.wake_ups import WakeUps
from sidecar.jobs.worker.reconciler import Reconciler
from sidecar.jobs.worker.target_worker import TargetWorker
from sidecar.kit.clock import StoreClock
from sidecar.storage.redis.connect import Store, close, connect
from sidecar.storage.redis.leader_lease import LeaderLease
from sidecar.storage.redis.pub_sub import Subscriber
from sidecar.storage.sql import database as sql
from sidecar.visitors.grants import Grants
from tests.support.rooms import RedisTime, new_room_name

_numbers = itertools.count()


async def until(condition: Callable[[], bool], *, seconds: float = 20) -> None:
    """Wait until `condition()` is True. Raise TimeoutError after `seconds`."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.002)


def fail(
    monkeypatch: pytest.MonkeyPatch, part: object, name: str, error: Exception, times: int
) -> AsyncMock:
    """Let the first calls of a method raise an error. Return the mock, which counts all calls."""
    results = chain(repeat(error, times), repeat(DEFAULT))
    method = AsyncMock(wraps=getattr(part, name), side_effect=results)
    monkeypatch.setattr(part, name, method)
    return method


class Line(TargetStore):
    """A target's queue. `claims` counts the claims of reconcilers (index 0) and of workers (index
    1) that have returned. After the first of them, the time of Redis is known.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.claims = [0, 0]

    async def claim(self, n: int, settings: TargetSettings) -> Any:
        claimed = await super().claim(n, settings)
        self.claims[n > 0] += 1
        return claimed


class Egress:
    """Makes calls that last until `over` is set. `called` has the ids of called jobs, and `most` is
    the highest number of calls in progress at the same time."""

    def __init__(self) -> None:
        self.over = asyncio.Event()
        self.called: list[str] = []
        self.open = self.most = 0

    async def open_connections(self, _settings: TargetSettings, count: int) -> int:
        return count

    async def call(self, _settings: TargetSettings, job: Job, **_: Any) -> CallResult:
        self.called.append(job.id)
        self.open += 1
        self.most = max(self.most, self.open)
        try:
            await self.over.wait()
        finally:
            self.open -= 1
        return CallResult("answered", status=200, body=b"ok", size=2)


class Bench:
    """The parts of a job system, in this process."""

    def __init__(self, redis: Store, database: JobStore) -> None:
        self.redis, self.store, self.metrics = redis, database, Metrics()
        self.time = RedisTime()
        #: Names of targets whose settings changed, as announced to other processes.
        self.changed: list[str] = []
        self.targets = TargetRegistry({}, database, self._make, self._announce)
        self.jobs = Jobs(self.targets, database, self.metrics, JobChanges(redis, timeout_s=5))
        self.subscriber = Subscriber(redis)
        self.wake_ups = WakeUps(
            redis, self.subscriber, timeout_s=5, now_us=lambda: self.time() * 1000
        )
        self.reconciler = Reconciler(
            self.jobs, self.wake_ups, partial(LeaderLease, redis, owner="one", timeout_s=5)
        )
        self.egress = Egress()

    async def _announce(self, name: str) -> None:
        self.changed.append(name)

    def _make(self, name: str, settings: TargetSettings) -> Target:
        clock = StoreClock()
        line = Line(
            self.redis, name, clock=clock, now_us=lambda: self.time() * 1000, timeout_s=5
        )  # fmt: skip
        return Target(
            name, settings, line, Grants(name, []), Permits(name, ["k" * 32], clock), clock
        )

    async def target(self, **settings: Any) -> Target:
        """Create a target with a new name, whose queue is ready for calls."""
        target = await self.make(new_room_name(), **settings)
        await target.store.mark_ready(0)
        return target

    async def make(self, name: str, **settings: Any) -> Target:
        """Create a target with this name, or change its settings."""
        settings = {"url": "http://target.example/", "methods": ["GET"], **settings}
        target, _ = await self.targets.change(name, settings)
        return target

    async def submit(self, target: Target, **order: Any) -> str:
        """Submit a job with these fields. Return its id."""
        view, _ = await self.jobs.submit("service", NewJob(target.name, **order))
        return view.job.id

    def worker(self, target: Target, *, most: int = 5) -> TargetWorker:
        return TargetWorker(target, self.jobs, self.egress, self.wake_ups, max_calls=most)  # type: ignore[arg-type]

    async def lose_line(self, target: Target) -> None:
        """Delete the target's queue, as if Redis was emptied, and let the reconciler rebuild it."""
        keys = [key async for key in self.redis.scan_iter(match=f"*{{target:{target.name}}}*")]
        assert keys
        await self.redis.delete(*keys)
        claimed = await target.store.claim(0, target.settings)
        assert not claimed.is_ready
        await self.reconciler.queues.rebuild(target, detected_us=claimed.detected_us)

    async def row(self, id_: str) -> Job:
        """Return a job's row in the database."""
        found = await self.store.jobs.find(id_)
        assert found is not None
        return found

    async def line(self, target: Target) -> QueueState:
        """Return the state of a target's queue in Redis."""
        line, _ = await target.store.inspect([], target.settings)
        return line

    async def place(self, target: Target, id_: str) -> QueuePlace:
        """Return a job's place in a target's queue."""
        _, [place] = await target.store.inspect([id_], target.settings)
        return place


@contextlib.asynccontextmanager
async def bench(socket: Path, folder: Path, url: str = "") -> AsyncIterator[Bench]:
    """Yield a Bench on the redis-server at `socket`, with the database at `url`, or a new one in
    `folder`."""
    url = url or f"sqlite:///{folder}/jobs{next(_numbers)}.db"
    database = JobStore(sql.open_database(url, lock_timeout_s=LOCK_TIMEOUT_S))
    redis = connect(f"unix://{socket}", timeout_s=5)
    try:
        await database.migrate()
        yield Bench(redis, database)
    finally:
        await close(redis)
        await database.close()


@contextlib.asynccontextmanager
async def running(work: Any) -> AsyncIterator[asyncio.Task[None]]:
    """Run a coroutine as a task, within a `with` block."""
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
