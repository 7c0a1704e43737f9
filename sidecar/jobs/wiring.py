"""The wiring of jobs: what a replica and a runner have of them."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import secrets
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING

import aiohttp
import structlog
from aiohttp import web

from sidecar.jobs.metrics import JobMetrics
from sidecar.jobs.permits import Permits
from sidecar.jobs.service import Jobs
from sidecar.jobs.store.job_store import JobStore
from sidecar.jobs.store.pubsub import announce
from sidecar.jobs.store.target_queue import TargetStore
from sidecar.jobs.targets import Target, Targets
from sidecar.jobs.worker.callbacks import call_back_forever
from sidecar.jobs.worker.reconciler import Keeper
from sidecar.jobs.worker.target_call import Egress
from sidecar.jobs.worker.target_worker import Lane
from sidecar.jobs.worker.wake_ups import SETTINGS, News
from sidecar.kit.clock import StoreClock
from sidecar.kit.errors import ConfigError, DatabaseError, StoreError
from sidecar.kit.http import health as ops
from sidecar.kit.http.app_keys import METRICS
from sidecar.kit.metrics import Metrics
from sidecar.kit.redis.connect import close, connect
from sidecar.kit.sql.database import open_database
from sidecar.kit.tasks import keep_at_work, stop_workers
from sidecar.queue.grants import Grants

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from sidecar.jobs.settings import TargetSettings
    from sidecar.kit.redis.connect import Store
    from sidecar.settings import Settings

#: Between two tries to reach the database when it is away at the start, seconds.
RETRY_S = 1.0
#: For so long a start waits for it, seconds: rooms can do without.
START_S = 5.0

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Office:
    """What belongs to jobs in one process."""

    jobs: Jobs
    keeper: Keeper
    news: News
    metrics: Metrics


@contextlib.asynccontextmanager
async def office(settings: Settings, redis: Store, metrics: Metrics) -> AsyncIterator[Office]:
    """Keeps the lines within the block. Raises ConfigError for a database that cannot be opened;
    one that does not answer is waited for, and until then its callers are told so."""

    def make(name: str, target: TargetSettings) -> Target:
        clock = StoreClock()
        store = TargetStore(
            redis, name, clock=clock, observer=metrics.observer, timeout_s=settings.store_timeout
        )
        return Target(
            name,
            target,
            store,
            Grants(name, settings.keys_of_grants, "target"),
            Permits(name, settings.secret_keys, clock),
            clock,
        )

    async def tell(name: str) -> None:
        """Whoever does not hear of it looks by themselves after a while."""
        word = f"{SETTINGS}{name}"
        news.tell(word)
        with contextlib.suppress(StoreError):
            await announce(redis, word, timeout_s=settings.store_timeout)

    news = News(redis, timeout_s=settings.store_timeout)
    database = JobStore(open_database(settings.jobs_database, setting="jobs"))
    jobs = Jobs(Targets(settings.targets, database, make, tell), database, metrics)
    keeper = Keeper(
        jobs, redis, metrics, news,
        replica=secrets.token_urlsafe(9), timeout_s=settings.store_timeout,
    )  # fmt: skip

    async def keep() -> None:
        await _wait_for(database)
        await keeper.run()

    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(database.close)
        with contextlib.suppress(TimeoutError, DatabaseError):
            async with asyncio.timeout(START_S):
                await _wait_for(database)
                await jobs.targets.refresh()
        workers = (("job news", news.run), ("keeper of jobs", keep))
        tasks = [asyncio.create_task(keep_at_work(*worker)) for worker in workers]
        stack.push_async_callback(stop_workers, *tasks)
        yield Office(jobs, keeper, news, metrics)


async def _wait_for(database: JobStore) -> None:
    said = ""
    while True:
        try:
            await database.check()
        except DatabaseError as error:
            if str(error) != said:
                said = str(error)
                log.error("jobs_database_away", error=said, hint="jobs wait until it answers")
            await asyncio.sleep(RETRY_S)
        else:
            return


async def run_jobs(settings: Settings, *, most: int, grace_s: float, listen: str = "") -> None:
    """Makes the calls of all targets, `most` at a time of each, until SIGTERM or SIGINT; then
    begins no more, and gives those under way so many seconds. `listen`: where its health and its
    metrics are told; empty: nowhere.

    Raises ConfigError.
    """
    if not settings.jobs_database:
        raise ConfigError(["targets: there is none, such as [targets.images] with a url"])
    if settings.store.startswith("memory://"):
        raise ConfigError(
            ["store: a runner and the replicas share a store: set redis:// or another server"]
        )
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    metrics = Metrics(JobMetrics)
    redis = connect(settings.store, timeout_s=settings.store_timeout)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(close, redis)
        within = await stack.enter_async_context(office(settings, redis, metrics))
        egress = Egress()
        stack.push_async_callback(egress.close)
        session = await stack.enter_async_context(
            aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar())
        )
        task = asyncio.create_task(
            keep_at_work("callbacks", lambda: call_back_forever(within.jobs, session, metrics))
        )
        stack.push_async_callback(stop_workers, task)
        if listen:
            await _tell_health(stack, metrics, listen)
        runner = Runner(within, egress, most=most)
        # As a replica does: no collection need look at what stays.
        gc.collect()
        gc.freeze()
        log.info("running_jobs", targets=sorted(settings.targets), at_a_time=most)
        await runner.run(stop, grace_s=grace_s)


async def _tell_health(stack: contextlib.AsyncExitStack, metrics: Metrics, listen: str) -> None:
    app = web.Application()
    app[METRICS] = metrics
    app.add_routes([web.get("/healthz", ops.healthz), web.get("/metrics", ops.metrics)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    host, _, port = listen.rpartition(":")
    try:
        await web.TCPSite(runner, host.strip("[]"), int(port)).start()
    except OSError as error:
        raise ConfigError([f"--listen: {listen}: {error.strerror or error}"]) from None


class Runner:
    """A lane for each target, those that come at run time too."""

    def __init__(self, within: Office, egress: Egress, *, most: int) -> None:
        self._office = within
        self._egress = egress
        self._most = most
        self._lanes: dict[str, tuple[Lane, asyncio.Task[None]]] = {}
        #: Of targets that are gone, or others of the same name: their calls go on.
        self._ending: list[tuple[Lane, asyncio.Task[None]]] = []

    async def run(self, stop: asyncio.Event, *, grace_s: float = 0.0, look_s: float = 1.0) -> None:
        """Until `stop`; then until its calls are over, for so many seconds."""
        try:
            while not stop.is_set():
                self._look()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(look_s):
                        await stop.wait()
            under_way = sum(len(lane) for lane, _ in self._lanes.values())
            log.info("stopping", under_way=under_way, grace_seconds=grace_s)
            for lane, _ in self._lanes.values():
                lane.stop()
            if tasks := [task for _, task in (*self._lanes.values(), *self._ending)]:
                await asyncio.wait(tasks, timeout=grace_s)
        finally:
            await stop_workers(*(task for _, task in (*self._lanes.values(), *self._ending)))

    def _look(self) -> None:
        targets = {target.name: target for target in self._office.jobs.targets}
        self._ending = [(lane, task) for lane, task in self._ending if not task.done()]
        for name, (lane, task) in list(self._lanes.items()):
            if lane.target is not targets.get(name):
                lane.stop()
                self._ending.append((lane, task))
                del self._lanes[name]
            elif task.done():
                if not task.cancelled() and (error := task.exception()) is not None:
                    log.error("lane_failed", target=name, exc_info=error)
                del self._lanes[name]
        for name, target in targets.items():
            if name not in self._lanes and "offline" in target.settings.kinds:
                office_ = self._office
                lane = Lane(
                    target, office_.jobs, self._egress, office_.metrics, office_.news,
                    most=self._most,
                )  # fmt: skip
                self._lanes[name] = lane, asyncio.create_task(lane.run())
