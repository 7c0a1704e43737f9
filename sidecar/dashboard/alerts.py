"""The alerts of deploy/monitoring/ that one replica can judge by itself, from what it knows anyway.

page/alerts.json is made from the rules (python -m scripts.docs_pages): thresholds, how long each
alert has to hold, its texts. Here is only what each alert asks of a replica.
"""

import asyncio
import contextlib
import json
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

import structlog
from aiohttp import web
from prometheus_client import Counter, Gauge

from sidecar.dashboard import pages
from sidecar.history.metrics import HistoryMetrics
from sidecar.http.metrics import Metrics
from sidecar.jobs.metrics import JobMetrics
from sidecar.jobs.service import Jobs
from sidecar.kit.errors import StoreError
from sidecar.limits.metrics import LimitMetrics
from sidecar.rooms.service import Room, Rooms
from sidecar.visitors.model import Phase
from sidecar.webhooks.metrics import WebhookMetrics

LOOK_S = 5.0
#: What Prometheus waits for so long at most keeps an alert from flapping. Who looks at the
#: dashboard sees it at once.
AT_ONCE_S = 120
SEVERITIES = ("critical", "warning", "info")
ALONE = {"admitted_alone", "refused_alone"}
UNDELIVERED = {"failed", "dropped"}
#: The recovery_stage in which nobody is called.
CALLS_NOBODY = 2

log = structlog.get_logger()


class Subject(NamedTuple):
    """What an alert is about: a room, a limit or a target; without a name, the whole site."""

    kind: str
    name: str
    #: Of a webhook.
    event: str = ""


class Found(NamedTuple):
    """A condition that holds now. `value`: of the summary."""

    alert: str
    subject: Subject
    value: float


@dataclass(slots=True)
class Increases:
    """How far counters went, over some minutes. One that is lower than it was began anew."""

    _seen: dict[Any, deque[tuple[int, float]]] = field(default_factory=dict)

    def over(self, span_s: int, key: Any, now_ms: int, value: float) -> float:
        seen = self._seen.setdefault(key, deque())
        if seen and value < seen[-1][1]:
            seen.clear()
        seen.append((now_ms, value))
        while len(seen) > 1 and seen[1][0] <= now_ms - span_s * 1000:
            seen.popleft()
        return value - seen[0][1]


@dataclass(frozen=True, slots=True)
class Moment:
    """Of a room what its alerts ask for: now, or as a sample of a minute has it."""

    now_ms: int
    waiting: int
    active: int
    cap: int
    wait_s: float | None
    counters: Mapping[str, float]
    #: Whether nobody is called on purpose.
    is_held: bool
    provisional: int = 0


class Alerts:
    """`firing` are those that hold, the worst first; `look` brings it up to date."""

    def __init__(self, rooms: Rooms, metrics: Metrics, jobs: Jobs | None = None) -> None:
        rules = json.loads(pages.load()["alerts.json"])
        self._thresholds: dict[str, float] = rules["thresholds"]
        self._rules: dict[str, dict[str, Any]] = rules["alerts"]
        self._rooms = rooms
        self._metrics = metrics
        self._jobs = jobs
        self._increases = Increases()
        #: By room, or "" for what is no room's: what holds, since when, and its value.
        self._held: dict[str, dict[tuple[str, Subject], tuple[int, float]]] = {}
        self.firing: list[dict[str, Any]] = []

    async def running(self, _: web.Application) -> AsyncIterator[None]:
        """For the application's cleanup_ctx."""
        task = asyncio.create_task(self._run())
        yield
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    async def _run(self) -> None:
        with contextlib.suppress(StoreError):
            await self.recall()
        while True:
            try:
                self.look()
            except Exception:  # the next one may do better
                log.exception("alerts")
            await asyncio.sleep(LOOK_S)

    async def recall(self) -> None:
        """What the store knows of the last hour: a replica that begins need not wait for it."""
        for room in self._rooms:
            for sample in reversed(await room.store.lists.minutes(60)):
                wait_ms = sample["wait_ms"]
                moment = Moment(
                    now_ms=sample["minute"] * 60_000,
                    waiting=sample["waiting"],
                    active=sample["active"],
                    cap=sample["cap"],
                    wait_s=None if wait_ms < 0 else wait_ms / 1000,
                    counters=sample["totals"],
                    is_held=_is_held(room),
                )
                self._hold(room.name, self._of_moment(room.name, moment), moment.now_ms)

    def look(self) -> None:
        for room in self._rooms:
            now_ms = room.clock.now_ms()
            self._hold(room.name, self._of_room(room, now_ms), now_ms)
        now_ms = int(time.time() * 1000)
        self._hold("", chain(self._of_others(now_ms), self._of_targets()), now_ms)
        self.firing = sorted(self._firing(), key=lambda one: SEVERITIES.index(one["severity"]))

    def _hold(self, of: str, found: Iterator[Found], now_ms: int) -> None:
        before = self._held.get(of, {})
        self._held[of] = {
            (one.alert, one.subject): (
                before.get((one.alert, one.subject), (now_ms, 0.0))[0],
                one.value,
            )
            for one in found
        }

    def _firing(self) -> Iterator[dict[str, Any]]:
        for of, held in self._held.items():
            room = self._rooms.find(of)
            now_ms = room.clock.now_ms() if room else int(time.time() * 1000)
            for (alert, subject), (since_ms, value) in held.items():
                rule = self._rules[alert]
                lasts_ms = 0 if rule["for_s"] <= AT_ONCE_S else rule["for_s"] * 1000
                if now_ms - since_ms >= lasts_ms:
                    yield {
                        "alert": alert,
                        "severity": rule["severity"],
                        **subject._asdict(),
                        "value": value,
                        "since_ms": since_ms,
                    }

    # What each alert asks ---------------------------------------------------------------------

    def _of_room(self, room: Room, now_ms: int) -> Iterator[Found]:
        snapshot, settings = room.snapshot, room.settings
        about = Subject("room", room.name)
        if room.store.is_away:
            yield Found("WaitroomStoreAway", about, 1)
        if snapshot is None or room.store.is_away:
            return
        wait_s = None if snapshot.wait_ms is None else snapshot.wait_ms / 1000
        moment = Moment(
            now_ms,
            snapshot.waiting,
            snapshot.active,
            settings.total_active_users,
            wait_s,
            snapshot.counters,
            _is_held(room),
            snapshot.provisional,
        )
        yield from self._of_moment(room.name, moment)
        if now_ms < snapshot.shield_until_ms:
            yield Found("WaitroomFlood", about, 1)
        if settings.queue_all and snapshot.waiting:
            yield Found("WaitroomPaused", about, 1)
        if room.is_open:
            yield Found("WaitroomOff", about, 1)
        if snapshot.recovery_stage == CALLS_NOBODY:
            yield Found("WaitroomRecovering", about, 2)

    def _of_moment(self, room: str, now: Moment) -> Iterator[Found]:
        about, limits = Subject("room", room), self._thresholds

        def went(counter: str, span_s: int) -> float:
            value = now.counters.get(counter, 0)
            return self._increases.over(span_s, (room, counter), now.now_ms, value)

        admitted, over_cap, refused = (
            went(*each) for each in (("admitted", 300), ("over_cap", 600), ("refused_full", 300))
        )
        if now.waiting > limits["waiting"]:
            yield Found("WaitroomLineLong", about, now.waiting)
        if now.wait_s is not None and now.wait_s > limits["wait_seconds"]:
            yield Found("WaitroomWaitLong", about, now.wait_s)
        if now.waiting and not admitted and not now.is_held:
            yield Found("WaitroomLineStands", about, now.waiting)
            if now.active - now.provisional < now.cap:
                yield Found("WaitroomNobodyAdmitted", about, now.waiting)
        if now.active > now.cap:
            yield Found("WaitroomAboveCap", about, now.active)
            if over_cap > 0:
                yield Found("WaitroomLetInAboveCap", about, over_cap)
        if refused > 0:
            yield Found("WaitroomTurnedAway", about, refused)

    def _of_others(self, now_ms: int) -> Iterator[Found]:
        """What this replica counts by itself, and the targets."""
        went, of = self._went, self._metrics.of
        decisions, webhooks = of(LimitMetrics).limit_decisions, of(WebhookMetrics).webhooks
        for (limit,), n in went(decisions, 60, now_ms, outcome=ALONE).items():
            yield Found("WaitroomLimitsAlone", Subject("limit", limit), n / 60)
        for (room, event), n in went(webhooks, 900, now_ms, result=UNDELIVERED).items():
            yield Found("WaitroomWebhooksFail", Subject("room", room, event), n)
        history = of(HistoryMetrics)
        for (room,), n in went(history.recorder_errors, 600, now_ms).items():
            yield Found("WaitroomRecorderErrors", Subject("room", room), n)
        for (room,), late_s in totals(history.recorder_lag).items():
            if late_s > self._thresholds["recorder_lag_seconds"]:
                yield Found("WaitroomRecorderBehind", Subject("room", room), late_s)
        counts = self._metrics.requests.counts
        unknown = sum(n for (_, _, state), n in counts.items() if state == "unknown-room")
        n = self._increases.over(300, "unknown-room", now_ms, unknown)
        if n > 0:
            yield Found("WaitroomUnknownRoom", Subject("", ""), n)

    def _of_targets(self) -> Iterator[Found]:
        for target in self._jobs.targets if self._jobs else ():
            known = self._metrics.of(JobMetrics).targets.find(target.name)
            about = Subject("target", target.name)
            if known is None:
                continue
            if known.breaker != "closed":
                yield Found("WaitroomTargetBroken", about, 1)
            elif known.waiting and not known.active:
                yield Found("WaitroomJobsStand", about, known.waiting)

    def _went(
        self, counter: Counter, span_s: int, now_ms: int, **only: set[str]
    ) -> dict[tuple[str, ...], float]:
        """By the other labels, the increase of those whose label is among `only`; none that
        stood still."""
        found = totals(counter, **only)
        went = {
            key: self._increases.over(span_s, (counter, key), now_ms, value)
            for key, value in found.items()
        }
        return {key: value for key, value in went.items() if value > 0}


def totals(metric: Counter | Gauge, **only: set[str]) -> dict[tuple[str, ...], float]:
    """A metric's values by its labels; the labels of `only` are added up, where they are among
    the named values."""
    found: dict[tuple[str, ...], float] = {}
    for family in metric.collect():
        for sample in family.samples:
            if all(sample.labels[name] in values for name, values in only.items()):
                key = tuple(value for name, value in sample.labels.items() if name not in only)
                found[key] = found.get(key, 0) + sample.value
    return found


def _is_held(room: Room) -> bool:
    """Whether nobody is called on purpose, as the rules have it (room:waitroom_held:max)."""
    settings, snapshot = room.settings, room.snapshot
    return (
        settings.queue_all
        or settings.total_active_users == 0
        or (snapshot is not None and snapshot.recovery_stage == CALLS_NOBODY)
        or settings.moments(room.clock.now_ms()).phase is not Phase.OPEN
    )
