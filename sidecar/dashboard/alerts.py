"""Evaluates those alerts of deploy/monitoring/alerts.toml whose figures a replica has.

python -m scripts.docs_pages writes the conditions, thresholds, durations and texts of these alerts
to page/alerts.json. This file computes the figures that the conditions name.
"""

import asyncio
import contextlib
import json
import operator
import time
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import structlog
from aiohttp import web
from prometheus_client import Counter, Gauge

from sidecar.dashboard import pages
from sidecar.history.metrics import HistoryMetrics
from sidecar.http.metrics import Metrics
from sidecar.jobs.metrics import JobMetrics
from sidecar.jobs.service import Jobs
from sidecar.kit.errors import StoreError
from sidecar.kit.tasks import stop_workers
from sidecar.limits.metrics import LimitMetrics
from sidecar.rooms.service import WaitingRoom, WaitingRooms
from sidecar.rooms.statistics import STAGE_WITHOUT_CALLS, describe_site
from sidecar.visitors.model import Phase
from sidecar.webhooks.metrics import WebhookMetrics

#: Seconds between two evaluations of the alerts.
EVALUATION_INTERVAL_S = 5.0
#: If Prometheus waits at most so many seconds before an alert fires, the dashboard does not wait.
AT_ONCE_S = 120
SEVERITIES = ("critical", "warning", "info")
#: The outcomes of calls to a limit that Redis has not counted, and the results of lost webhooks.
UNCOUNTED_OUTCOMES = {"admitted_alone", "refused_alone"}
LOST_RESULTS = {"failed", "dropped"}
_COMPARE = {">": operator.gt, "<": operator.lt, "==": operator.eq}

Figures: TypeAlias = dict[str, float]

log = structlog.get_logger()


class Subject(NamedTuple):
    """The object of an alert: a room, limit, target or webhook, or the whole site if kind is ""."""

    kind: str = ""
    name: str = ""
    #: The event whose webhook was not delivered.
    event: str = ""


@dataclass(slots=True)
class Increases:
    """Computes the increases of counters. A counter whose value falls has been reset."""

    _samples: dict[Any, deque[tuple[int, float]]] = field(default_factory=dict)

    def compute(self, span_s: int, key: Any, now_ms: int, value: float) -> float:
        """Add a sample of the counter `key`. Return its increase over the last `span_s` seconds."""
        samples = self._samples.setdefault(key, deque())
        if samples and value < samples[-1][1]:
            samples.clear()
        samples.append((now_ms, value))
        while len(samples) > 1 and samples[1][0] <= now_ms - span_s * 1000:
            samples.popleft()
        return value - samples[0][1]


class Alerts:
    """Evaluates the alerts on this replica. `update` sets `firing`, the alerts that fire."""

    def __init__(self, rooms: WaitingRooms, metrics: Metrics, jobs: Jobs | None = None) -> None:
        rules = json.loads(pages.load_files()["alerts.json"])
        self._thresholds: Figures = {
            f"threshold.{name}": value for name, value in rules["thresholds"].items()
        }
        self._rules: dict[str, dict[str, Any]] = rules["alerts"]
        self._rooms, self._metrics, self._jobs = rooms, metrics, jobs
        self._increases = Increases()
        #: The conditions that are met, by room ("" for other subjects). Each has the time in ms at
        #: which it was first met, and its first figure.
        self._met: dict[str, dict[tuple[str, Subject], tuple[int, float]]] = {}
        #: The alerts that fire, the most severe first.
        self.firing: list[dict[str, Any]] = []

    async def evaluate_forever(self, _: web.Application) -> AsyncIterator[None]:
        """Evaluate the alerts every five seconds while the application runs (its cleanup_ctx)."""
        task = asyncio.create_task(self._run())
        yield
        await stop_workers(task)

    async def _run(self) -> None:
        with contextlib.suppress(StoreError):
            await self.evaluate_last_hour()
        while True:
            try:
                self.update()
            except Exception:  # try again in five seconds
                log.exception("alerts")
            await asyncio.sleep(EVALUATION_INTERVAL_S)

    async def evaluate_last_hour(self) -> None:
        """Evaluate the last hour's samples in Redis, so that a new replica shows alerts at once."""
        for room in self._rooms:
            for sample in reversed(await room.store.lists.minutes(60)):
                now_ms, wait_ms = sample["minute"] * 60_000, sample["wait_ms"]
                figures = {
                    "waiting": sample["waiting"],
                    "active": sample["active"],
                    "arrived": sample["active"],
                    "cap": sample["cap"],
                    **self._compute_room_increases(room.name, sample["totals"], now_ms),
                    "held": _is_held(room),
                }
                if wait_ms >= 0:
                    figures["wait_seconds"] = wait_ms / 1000
                self._record(room.name, {Subject("room", room.name): figures}, now_ms)

    def update(self) -> None:
        """Evaluate all alerts by the current figures."""
        for room in self._rooms:
            now_ms = room.clock.now_ms()
            figures = {Subject("room", room.name): self._compute_room_figures(room, now_ms)}
            self._record(room.name, figures, now_ms)
        now_ms = int(time.time() * 1000)
        self._record(
            "", self._compute_replica_figures(now_ms) | self._compute_target_figures(), now_ms
        )
        self.firing = sorted(self._find_firing(), key=lambda e: SEVERITIES.index(e["severity"]))

    def _record(self, room: str, figures: Mapping[Subject, Figures], now_ms: int) -> None:
        """Record which conditions the figures of each subject meet, and since when."""
        before = self._met.get(room, {})
        self._met[room] = {
            (alert, subject): (before.get((alert, subject), (now_ms, 0.0))[0], value)
            for subject, own_figures in figures.items()
            for alert, value in self._match_rules(own_figures | self._thresholds)
        }

    def _match_rules(self, figures: Figures) -> Iterator[tuple[str, float]]:
        """Yield each alert whose condition holds, and the first figure of the condition. A
        condition with a missing figure does not hold."""
        for alert, rule in self._rules.items():
            terms = [term.split() for term in rule.get("when", ())]
            if not terms or figures.get(rule.get("unless", "")):
                continue
            if all(
                figure in figures
                and _COMPARE[sign](figures[figure], _resolve_limit(limit, figures))
                for figure, sign, limit in terms
            ):
                yield alert, figures[terms[0][0]]

    def _find_firing(self) -> Iterator[dict[str, Any]]:
        for name, held in self._met.items():
            room = self._rooms.find(name)
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

    def _compute_room_figures(self, room: WaitingRoom, now_ms: int) -> Figures:
        snapshot, settings = room.snapshot, room.settings
        if snapshot is None or room.store.is_away:
            return {"store_away": int(room.store.is_away)}
        figures: Figures = {
            "waiting": snapshot.waiting,
            "active": snapshot.active,
            "arrived": snapshot.active - snapshot.provisional,
            "cap": settings.find_cap(snapshot.learned),
            **self._compute_room_increases(room.name, snapshot.counters, now_ms),
            "held": _is_held(room),
            "shield_up": int(now_ms < snapshot.shield_until_ms),
            "queue_all": int(settings.queue_all),
            "suspended": int(room.is_open),
            "recovery_stage": snapshot.recovery_stage,
        }
        if snapshot.wait_ms is not None:
            figures["wait_seconds"] = snapshot.wait_ms / 1000
        if site := describe_site(settings.adaptive, snapshot):
            figures["site_responses"] = site["responses"]
        return figures

    def _compute_room_increases(
        self, room: str, counters: Mapping[str, float], now_ms: int
    ) -> Figures:
        spans = {"admitted_5m": 300, "over_cap_10m": 600, "refused_full_5m": 300}
        return {
            figure: self._increases.compute(
                span_s, (room, figure), now_ms, counters.get(figure.rpartition("_")[0], 0)
            )
            for figure, span_s in spans.items()
        }

    def _compute_replica_figures(self, now_ms: int) -> dict[Subject, Figures]:
        """Return the figures from this replica's counters of limits, webhooks and the history."""
        figures: dict[Subject, Figures] = defaultdict(dict)
        increases, metrics_of = self._compute_increases, self._metrics.of
        decisions = metrics_of(LimitMetrics).limit_decisions
        webhooks = metrics_of(WebhookMetrics).webhooks
        history, counts = metrics_of(HistoryMetrics), self._metrics.requests.counts
        for (limit,), n in increases(decisions, 60, now_ms, outcome=UNCOUNTED_OUTCOMES).items():
            figures[Subject("limit", limit)]["uncounted_per_second"] = n / 60
        for (room, event), n in increases(webhooks, 900, now_ms, result=LOST_RESULTS).items():
            figures[Subject("room", room, event)]["undelivered_15m"] = n
        for (name,), lag_s in sum_samples(metrics_of(WebhookMetrics).lag).items():
            figures[Subject("webhook", name)]["webhook_lag_seconds"] = lag_s
        for (room,), n in increases(history.recorder_errors, 600, now_ms).items():
            figures[Subject("room", room)]["recorder_errors_10m"] = n
        for (room,), lag_s in sum_samples(history.recorder_lag).items():
            figures[Subject("room", room)]["recorder_lag_seconds"] = lag_s
        unknown = sum(n for (_, _, state), n in counts.items() if state == "unknown-room")
        n = self._increases.compute(300, "unknown-room", now_ms, unknown)
        figures[Subject()]["unknown_room_5m"] = n
        return figures

    def _compute_target_figures(self) -> dict[Subject, Figures]:
        states = self._metrics.of(JobMetrics).targets
        return {
            Subject("target", target.name): {
                "breaker": int(state.breaker != "closed"),
                "jobs_waiting": state.waiting,
                "jobs_running": state.active,
            }
            for target in (self._jobs.targets if self._jobs else ())
            if (state := states.find(target.name))
        }

    def _compute_increases(
        self, counter: Counter, span_s: int, now_ms: int, **only: set[str]
    ) -> dict[tuple[str, ...], float]:
        """Return the increase of each sum that sum_samples() returns for a counter."""
        return {
            labels: self._increases.compute(span_s, (counter, labels), now_ms, value)
            for labels, value in sum_samples(counter, **only).items()
        }


def _resolve_limit(text: str, figures: Figures) -> float:
    """Return the figure of this name, or the number in the text if there is no such figure."""
    return figures[text] if text in figures else float(text)


def sum_samples(metric: Counter | Gauge, **only: set[str]) -> dict[tuple[str, ...], float]:
    """Return a metric's samples by label values. `only` names the allowed values of some labels.
    Samples that differ only in these labels are added up."""
    values: dict[tuple[str, ...], float] = {}
    for family in metric.collect():
        for sample in family.samples:
            if all(sample.labels[name] in allowed for name, allowed in only.items()):
                key = tuple(value for name, value in sample.labels.items() if name not in only)
                values[key] = values.get(key, 0) + sample.value
    return values


def _is_held(room: WaitingRoom) -> bool:
    """Return True if the room calls nobody, because of its settings or a recovery. The recording
    rule room:waitroom_held:max has the same condition."""
    settings, snapshot = room.settings, room.snapshot
    return (
        settings.queue_all
        or settings.total_active_users == 0
        or (snapshot is not None and snapshot.recovery_stage == STAGE_WITHOUT_CALLS)
        or settings.schedule_at(room.clock.now_ms()).phase is not Phase.OPEN
    )
