"""Runs a replica: starts its services, background workers and listeners, and later stops them."""

import asyncio
import contextlib
import gc
import os
import secrets
import signal
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import TYPE_CHECKING

import structlog
from aiohttp import web

from sidecar.app.reload import Reloader
from sidecar.app.routes import Services, create_edge_app, create_ops_app
from sidecar.dashboard.operators import share_forever, share_once
from sidecar.gate.event_stream import GateMetrics
from sidecar.gate.site_headers import SiteHeaders
from sidecar.gate.stamps import Stamps
from sidecar.history.metrics import HistoryMetrics
from sidecar.history.store.event_stream import EventStream
from sidecar.history.worker import record_forever, tidy_forever
from sidecar.http.auth.ended_sessions import EndedSessions
from sidecar.http.auth.operators import Operators
from sidecar.http.fast_path import FastRunner
from sidecar.http.listeners import listen_for_reports, open_http_listeners
from sidecar.http.metrics import Metrics
from sidecar.jobs.metrics import JobMetrics
from sidecar.jobs.redis_keys import CHANGES_CHANNEL
from sidecar.jobs.service import Jobs
from sidecar.kit.clock import StoreClock
from sidecar.kit.errors import InputError
from sidecar.kit.extras import require
from sidecar.kit.share import find_share
from sidecar.kit.systemd import notify_systemd
from sidecar.kit.tasks import Worker, start_workers
from sidecar.kit.templates import Templates
from sidecar.leases.metrics import LeaseMetrics
from sidecar.leases.redis_keys import lease_key
from sidecar.leases.service import Leases, TemplateLeases
from sidecar.leases.settings import LeaseSettings
from sidecar.leases.store import LeaseStore
from sidecar.leases.visitor_leases import Resources
from sidecar.leases.worker import sweep_leases_forever
from sidecar.limits.metrics import LimitMetrics
from sidecar.limits.service import Limit, Limits
from sidecar.limits.settings import LimitSettings
from sidecar.limits.store import LimitStore
from sidecar.limits.worker import refresh_limits_forever
from sidecar.lottery.service import Draws
from sidecar.lottery.store import DrawsStore
from sidecar.rooms.adaptive.metrics import AdaptiveMetrics
from sidecar.rooms.adaptive.reports import SiteReports
from sidecar.rooms.adaptive.worker import adapt_forever
from sidecar.rooms.metrics import RoomMetrics
from sidecar.rooms.service import WaitingRoom, WaitingRooms
from sidecar.rooms.settings import EVENTS_KEPT, RoomSettings
from sidecar.rooms.store.scripts import RoomStore
from sidecar.rooms.worker import refresh_forever, refresh_once, sweep_forever
from sidecar.settings.model import Settings
from sidecar.storage.redis.connect import Store, close, connect
from sidecar.storage.redis.eviction import watch_eviction
from sidecar.storage.redis.pub_sub import Subscriber
from sidecar.visitors.grants import Grants
from sidecar.visitors.tokens import Tokens
from sidecar.webhooks.calls import CallDetector
from sidecar.webhooks.deliveries import Deliveries
from sidecar.webhooks.metrics import WebhookMetrics
from sidecar.webhooks.room_events import RoomDetector
from sidecar.webhooks.sender import send_forever
from sidecar.webhooks.service import ConfiguredWebhook, Webhooks
from sidecar.webhooks.target_events import TargetDetector

if TYPE_CHECKING:  # SQL is an extra
    from sidecar.history.store.stays import History

#: The metrics of each feature that a replica exports at /metrics.
PRODUCT_METRICS = (
    RoomMetrics,
    AdaptiveMetrics,
    GateMetrics,
    LeaseMetrics,
    LimitMetrics,
    JobMetrics,
    HistoryMetrics,
    WebhookMetrics,
)

log = structlog.get_logger()


async def serve(settings: Settings, load: Callable[[], Settings]) -> None:
    """Run one replica until SIGTERM or SIGINT. At SIGHUP, read the settings again with `load` and
    apply those that need no restart. Raises InputError if it cannot listen."""
    stop, reload_is_due = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    had_terminal = _has_terminal()

    def hang_up() -> None:
        # A terminal that is closed sends SIGHUP too.
        (stop if had_terminal and not _has_terminal() else reload_is_due).set()

    loop.add_signal_handler(signal.SIGHUP, hang_up)
    stopping: list[bool] = []
    for warning in settings.warnings:
        log.warning("settings_warning", hint=warning)
    async with (
        run_replica(settings, stopping) as rooms,
        notify_systemd(os.environ) as tell,
        contextlib.AsyncExitStack() as stack,
    ):
        log.info(
            "serving",
            edge=settings.edge_listen,
            ops=settings.ops_listen,
            rooms=sorted(settings.rooms),
            leases=sorted(settings.leases),
            limits=sorted(settings.limits),
            targets=sorted(settings.targets),
            store=remove_secrets(settings.store),
        )
        # Exclude the objects created so far from garbage collection, which would pause for 20 ms.
        gc.collect()
        gc.freeze()
        reloader = Reloader(settings, rooms, load, tell)
        start_workers(stack, {"reloader": partial(reloader.run, reload_is_due)})
        await stop.wait()
        # First report on /readyz that the replica is not ready, so that load balancers avoid it.
        stopping.append(True)
        tell("STOPPING=1")
        log.info("stopping")
        await asyncio.sleep(settings.shutdown_delay)


def _has_terminal() -> bool:
    """Return True if this process has a terminal that is open."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True


@contextlib.asynccontextmanager
async def run_replica(settings: Settings, stopping: list[bool]) -> AsyncIterator[WaitingRooms]:
    """Run a replica within the `async with` block, and yield its rooms. Add an item to the empty
    list `stopping` to make /readyz report that the replica is stopping."""
    metrics, timeout_s = Metrics(*PRODUCT_METRICS), settings.store_timeout
    redis = connect(settings.store, timeout_s=timeout_s)
    leases, limits = make_leases(settings, redis, metrics), make_limits(settings, redis, metrics)
    rooms = make_rooms(settings, redis, metrics)
    history = _open_history(settings) if settings.history else None
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(close, redis)
        if not await refresh_once(rooms, metrics):
            log.warning("store_away", hint="newcomers wait until the store answers")
        ended_sessions = EndedSessions(redis, timeout_s=timeout_s)
        operators = Operators(
            settings.secret_keys, settings.admin_token, settings.accounts, ended=ended_sessions
        )
        if operators.is_on:
            await share_once(operators.share)
        workers: dict[str, Worker] = {
            "refresher": partial(refresh_forever, rooms, metrics),
            "sweeper": partial(sweep_forever, rooms, metrics),
            "lease sweeper": partial(sweep_leases_forever, leases),
            "adaptive rooms": partial(adapt_forever, rooms, metrics),
            "limit refresher": partial(refresh_limits_forever, limits),
        }
        if not settings.is_in_memory:
            workers["eviction"] = partial(
                watch_eviction, redis, metrics.set_eviction, timeout_s=timeout_s
            )
        if operators.is_on:
            workers["sessions"] = partial(share_forever, operators.share)
        if history is not None:
            owner = secrets.token_urlsafe(9)
            streams = {
                name: EventStream(redis, name, owner=owner, timeout_s=timeout_s)
                for name in settings.rooms
            }
            stack.push_async_callback(history.close)
            workers["recorder"] = partial(
                record_forever, rooms, streams, history, metrics, backlog=settings.history_backlog
            )
            workers["archivist"] = partial(tidy_forever, rooms, history, settings, metrics)
        webhooks = make_webhooks(settings, redis, metrics)
        if settings.webhooks:
            detector_args = rooms, webhooks, metrics, redis
            workers |= {
                "room notifier": lambda: RoomDetector(*detector_args, timeout_s=timeout_s).run(),
                "call notifier": lambda: CallDetector(*detector_args, timeout_s=timeout_s).run(),
                "webhook sender": partial(
                    send_forever, rooms, webhooks, redis, timeout_s=timeout_s
                ),
            }
        start_workers(stack, workers)
        subscriber = make_subscriber(redis, leases)
        jobs = await _open_jobs(settings, redis, metrics, subscriber, stack)
        if jobs is not None:
            subscriber.listen(CHANGES_CHANNEL, jobs.changes.wake)
            _distinguish_targets(rooms, jobs)
            _start_target_detector(jobs, webhooks, redis, stack, timeout_s=timeout_s)
        if subscriber.has_channels:
            start_workers(stack, {"subscriber": subscriber.run})
        await _read_site_reports(settings, rooms, metrics, stack)
        static = settings.static_dir or find_share("static")
        if not (static / "waiting.html").is_file():
            raise InputError([f"static_dir: there is no waiting.html in {static}"])
        services = Services(
            rooms=rooms,
            metrics=metrics,
            leases=leases,
            resources=Resources(leases, settings.secret_keys),
            limits=limits,
            webhooks=webhooks,
            jobs=jobs,
            history=history,
            templates=Templates(settings.template_dir),
        )
        edge = create_edge_app(
            services,
            static,
            event_streams=settings.event_streams,
            memory=secrets.token_urlsafe(9) if settings.is_in_memory else "",
            stamps=Stamps(settings.secret_keys),
        )
        ops = create_ops_app(services, settings, stopping, operators)
        # The ops listener is the last, so that /readyz responds only if the edge listener is open.
        await open_http_listeners(
            stack,
            (edge, FastRunner, "edge_listen", settings.edge_listen),
            (ops, web.AppRunner, "ops_listen", settings.ops_listen),
        )
        yield rooms


async def _open_jobs(
    settings: Settings,
    redis: Store,
    metrics: Metrics,
    subscriber: Subscriber,
    stack: contextlib.AsyncExitStack,
) -> Jobs | None:
    """Open the services of jobs, which `stack` closes. Return None if jobs have no database."""
    if not settings.jobs_database:
        return None
    require("sql", setting="jobs")
    from sidecar.app.jobs import open_job_services  # noqa: PLC0415 - it imports SQL
    from sidecar.jobs.endpoints import nginx_done_log as done_log  # noqa: PLC0415

    jobs, _wake_ups = await stack.enter_async_context(
        open_job_services(settings, redis, metrics, subscriber)
    )
    if settings.done_listen:
        await stack.enter_async_context(done_log.listen(settings.done_listen, jobs))
    return jobs


async def _read_site_reports(
    settings: Settings, rooms: WaitingRooms, metrics: Metrics, stack: contextlib.AsyncExitStack
) -> None:
    """Read nginx's reports of the sites' responses until `stack` is closed."""
    if not settings.health_listen:
        return
    reports = SiteReports(rooms, metrics.of(AdaptiveMetrics))
    headers = SiteHeaders(rooms, metrics.of(AdaptiveMetrics))

    def handle(data: bytes) -> None:
        if not headers.handle_report(data):
            reports.handle_report(data)

    await stack.enter_async_context(
        listen_for_reports("health_listen", settings.health_listen, handle)
    )
    workers = {"site reports": reports.flush_forever, "visits": headers.apply_forever}
    start_workers(stack, workers)


def _start_target_detector(
    jobs: Jobs,
    webhooks: Webhooks,
    redis: Store,
    stack: contextlib.AsyncExitStack,
    *,
    timeout_s: float,
) -> None:
    """Run the detector of targets' events until `stack` is closed, if a webhook is about them."""
    if not any(webhook.is_about_targets() for webhook in webhooks):
        return
    from sidecar.app.jobs import read_target_queues  # noqa: PLC0415 - it imports SQL

    read_queues = partial(read_target_queues, jobs)
    detector = TargetDetector(webhooks, redis, read_queues, timeout_s=timeout_s)
    start_workers(stack, {"target notifier": detector.run})


def _distinguish_targets(rooms: WaitingRooms, jobs: Jobs) -> None:
    """Tell each room whether a target has the same name, because its grants are not the room's."""

    def has_target(name: str) -> bool:
        return jobs.targets.find(name) is not None

    for room in rooms:
        room.grants.has_namesake = partial(has_target, room.name)


def _open_history(settings: Settings) -> "History":
    require("sql", setting="history")
    # Imported here, because a replica without SQL then starts in two thirds of the time.
    from sidecar.history.store.stays import History  # noqa: PLC0415
    from sidecar.storage.sql.database import open_database  # noqa: PLC0415

    return History(open_database(settings.history), partitions=settings.history_partitions)


def make_rooms(settings: Settings, redis: Store, metrics: Metrics) -> WaitingRooms:
    replica = secrets.token_urlsafe(9)
    events_kept = settings.history_backlog if settings.history else EVENTS_KEPT
    call_hooks = [hook for hook in settings.webhooks.values() if hook.has_calls]

    def make_room(name: str, room: RoomSettings) -> WaitingRoom:
        # Each room has a clock, because the rooms of a Redis Cluster are on several servers.
        clock = StoreClock()
        tells_called = any(hook.is_about(name) for hook in call_hooks)
        get_script_settings = partial(
            RoomSettings.get_script_settings, events_kept=events_kept, tells_called=tells_called
        )
        store = RoomStore(
            redis,
            name,
            settings=get_script_settings(room),
            clock=clock,
            observer=metrics.observer,
            timeout_s=settings.store_timeout,
            replica=replica,
        )
        return WaitingRoom(
            name,
            room,
            Tokens(name, settings.secret_keys, clock),
            store,
            clock,
            grants=Grants(name, settings.keys_of_grants),
            draws=Draws(
                name,
                settings.secret_keys,
                DrawsStore(redis, name, timeout_s=settings.store_timeout),
            ),
            get_script_settings=get_script_settings,
        )

    return WaitingRooms(make_room(name, room) for name, room in settings.rooms.items())


def make_leases(settings: Settings, redis: Store, metrics: Metrics) -> Leases:
    def make_template(name: str, lease: LeaseSettings) -> TemplateLeases:
        clock = StoreClock()
        store = LeaseStore(
            redis,
            name,
            settings=lease,
            clock=clock,
            observer=metrics.observer,
            timeout_s=settings.store_timeout,
        )
        return TemplateLeases(name, lease, store, clock, metrics.of(LeaseMetrics))

    return Leases(make_template(name, lease) for name, lease in settings.leases.items())


def make_subscriber(redis: Store, leases: Leases) -> Subscriber:
    """Return the replica's subscriber, which wakes the waiting holders of leases."""
    subscriber = Subscriber(redis)
    for template in leases:
        subscriber.listen(lease_key(template.name, "calls"), template.waiters.wake)
    return subscriber


def make_limits(settings: Settings, redis: Store, metrics: Metrics) -> Limits:
    def make_limit(name: str, limit: LimitSettings) -> Limit:
        store = LimitStore(
            redis, name, settings=limit, observer=metrics.observer, timeout_s=settings.store_timeout
        )
        return Limit(name, limit, store, metrics.of(LimitMetrics))

    return Limits(make_limit(name, limit) for name, limit in settings.limits.items())


def make_webhooks(settings: Settings, redis: Store, metrics: Metrics) -> Webhooks:
    return Webhooks(
        ConfiguredWebhook(
            name,
            hook,
            Deliveries(redis, name, settings.store_timeout),
            metrics.of(WebhookMetrics),
        )
        for name, hook in settings.webhooks.items()
    )


def remove_secrets(store: str) -> str:
    """Remove user, password and options from the URL of Redis, for the log."""
    scheme, _, location = store.partition("?")[0].partition("://")
    return f"{scheme}://{location.rpartition('@')[2]}"
