"""Starts and stops the services of jobs in a replica, and runs a worker (`waitroom run-jobs`)."""

import asyncio
import contextlib
import gc
import secrets
import signal
from collections.abc import AsyncIterator, Iterator
from functools import partial

import structlog
from aiohttp import web

from sidecar.http import health as ops
from sidecar.http.listeners import open_http_listeners
from sidecar.http.metrics import METRICS, Metrics
from sidecar.jobs.changes import JobChanges
from sidecar.jobs.estimate import estimate_wait_s
from sidecar.jobs.metrics import JobMetrics
from sidecar.jobs.permits import Permits
from sidecar.jobs.service import Jobs
from sidecar.jobs.settings import TargetSettings
from sidecar.jobs.store.job_store import LOCK_TIMEOUT_S, JobStore
from sidecar.jobs.store.target_queue import TargetStore
from sidecar.jobs.targets import Target, TargetRegistry
from sidecar.jobs.wake_ups import WakeUps
from sidecar.jobs.worker.callbacks import call_back_forever
from sidecar.jobs.worker.reconciler import Reconciler
from sidecar.jobs.worker.target_call import Egress
from sidecar.jobs.worker.target_worker import WorkerPool
from sidecar.kit.clock import StoreClock
from sidecar.kit.egress import open_session
from sidecar.kit.errors import DatabaseError, InputError
from sidecar.kit.tasks import Worker, start_workers
from sidecar.settings.model import Settings
from sidecar.storage.redis.connect import Store, close, connect
from sidecar.storage.redis.leader_lease import LeaderLease
from sidecar.storage.redis.pub_sub import Subscriber
from sidecar.storage.sql.database import open_database
from sidecar.visitors.grants import Grants
from sidecar.webhooks.target_events import TargetQueue

#: The pause between attempts to reach the database, in seconds.
RETRY_S = 1.0
#: How long a start waits for the database, in seconds. Then it continues without the database,
#: because rooms do not need it.
START_S = 5.0

log = structlog.get_logger()


@contextlib.asynccontextmanager
async def open_job_services(
    settings: Settings, redis: Store, metrics: Metrics, subscriber: Subscriber
) -> AsyncIterator[tuple[Jobs, WakeUps]]:
    """Run the services of jobs within the `async with` block, and let `subscriber` pass wake-ups to
    them. While the database is unavailable, requests about jobs get errors. Raises InputError if
    the database's URL is invalid."""
    timeout_s = settings.store_timeout

    def make_target(name: str, target: TargetSettings) -> Target:
        clock = StoreClock()
        store = TargetStore(
            redis, name, clock=clock, observer=metrics.observer, timeout_s=timeout_s
        )
        grants = Grants(name, settings.keys_of_grants, "target")
        permits = Permits(name, settings.secret_keys, clock)
        return Target(name, target, store, grants, permits, clock)

    wake_ups = WakeUps(redis, subscriber, timeout_s=timeout_s)
    url = settings.jobs_database
    store = JobStore(open_database(url, setting="jobs", lock_timeout_s=LOCK_TIMEOUT_S))
    targets = TargetRegistry(settings.targets, store, make_target, wake_ups.announce)
    jobs = Jobs(targets, store, metrics, JobChanges(redis, timeout_s=timeout_s))
    lease = partial(LeaderLease, redis, owner=secrets.token_urlsafe(9), timeout_s=timeout_s)
    reconciler = Reconciler(jobs, wake_ups, lease)

    async def reconcile() -> None:
        await _wait_for_database(store)
        await reconciler.run()

    workers = {"job wake-ups": wake_ups.run, "reconciler": reconcile}
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(store.close)
        with contextlib.suppress(TimeoutError, DatabaseError):
            async with asyncio.timeout(START_S):
                await _wait_for_database(store)
                await jobs.targets.refresh()
        start_workers(stack, workers)
        yield jobs, wake_ups


def read_target_queues(jobs: Jobs) -> Iterator[TargetQueue]:
    """Yield the queues of all targets, as the reconciler last read them."""
    for target in jobs.targets:
        state, settings = jobs.metrics.targets.find(target.name), target.settings
        if state is not None and state.is_ready:
            yield TargetQueue(
                target.name,
                state.now_ms,
                state.waiting,
                state.active,
                settings.concurrency,
                None if settings.paused else estimate_wait_s(settings, state, state.waiting + 1),
                settings.notify_above,
            )


async def _wait_for_database(store: JobStore) -> None:
    last_error = ""
    while True:
        try:
            return await store.check()
        except DatabaseError as error:
            if str(error) != last_error:
                last_error = str(error)
                log.error("jobs_database_away", error=last_error, hint="jobs wait until it answers")
            await asyncio.sleep(RETRY_S)


async def run_jobs(settings: Settings, *, max_calls: int, grace_s: float, listen: str = "") -> None:
    """Run a worker, which makes the HTTP calls of jobs, until SIGTERM or SIGINT. Then wait up to
    `grace_s` for calls in progress. Raises InputError if the settings do not allow a worker.

    `max_calls` is the maximum number of concurrent calls to one target. `listen` is the HOST:PORT
    for health and metrics, or "" to disable them.
    """
    if not settings.jobs_database:
        raise InputError(["targets: there is none, such as [targets.images] with a url"])
    if settings.store.startswith("memory://"):
        raise InputError(
            ["store: a worker and the replicas share a store: set redis:// or another server"]
        )
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    metrics = Metrics(JobMetrics)
    redis = connect(settings.store, timeout_s=settings.store_timeout)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(close, redis)
        subscriber = Subscriber(redis)
        jobs, wake_ups = await stack.enter_async_context(
            open_job_services(settings, redis, metrics, subscriber)
        )
        egress = Egress()
        stack.push_async_callback(egress.close)
        session = await stack.enter_async_context(open_session(is_private=True))
        workers: dict[str, Worker] = {
            "subscriber": subscriber.run,
            "callbacks": lambda: call_back_forever(jobs, session),
        }
        start_workers(stack, workers)
        if listen:
            app = web.Application()
            app[METRICS] = metrics
            app.add_routes([endpoint.route() for endpoint in ops.ENDPOINTS])
            await open_http_listeners(stack, (app, web.AppRunner, "--listen", listen))
        pool = WorkerPool(jobs, wake_ups, egress, max_calls=max_calls)
        # Exclude all objects from garbage collection, which would pause the worker.
        gc.collect()
        gc.freeze()
        log.info("running_jobs", targets=sorted(settings.targets), at_a_time=max_calls)
        await pool.run(stop, grace_s=grace_s)
