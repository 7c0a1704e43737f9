"""The metrics of jobs and their targets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from sidecar.kit.metrics import PACES_S, MetricSet, counter, histogram

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from prometheus_client import CollectorRegistry

    from sidecar.jobs.settings import TargetSettings
    from sidecar.jobs.store.target_replies import QueueState

_BREAKER = {"closed": 0, "trial": 1, "open": 2}
#: Gauges of a target: the name's end, its help, and its value; None: there is no sample.
_GAUGES: tuple[tuple[str, str, Callable[[TargetSettings, QueueState], float | None]], ...] = (
    ("waiting", "Jobs in the queue.", lambda _, state: state.waiting),
    ("later", "Jobs that wait to be retried.", lambda _, state: state.later),
    ("running", "Calls in progress, issued permits included.", lambda _, state: state.active),
    ("concurrency", "Calls at a time, at most.", lambda target, _: target.concurrency),
    ("calls_in_window", "Calls in the current window.", lambda _, state: state.calls_in_window),
    ("rate", "Calls in a window, at most; absent without a rate.", lambda target, _: target.rate),
    (
        "breaker",
        "2: open, nothing is called; 1: half-open, one call tries; 0: closed.",
        lambda _, state: _BREAKER.get(state.breaker, 0),
    ),
    (
        "mean_seconds",
        "Mean duration of a call; absent while unknown.",
        lambda _, state: state.mean_s,
    ),
    ("paused", "1 while an operator has paused the target.", lambda target, _: target.paused),
)


class TargetGauges(Collector):
    """Each target as it was last read."""

    def __init__(self) -> None:
        self._targets: dict[str, tuple[TargetSettings, QueueState]] = {}

    def learn(self, target: str, settings: TargetSettings, state: QueueState) -> None:
        self._targets[target] = settings, state

    def forget(self, target: str) -> None:
        self._targets.pop(target, None)

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        for name, text, read in _GAUGES:
            gauge = GaugeMetricFamily(f"waitroom_target_{name}", text, labels=["target"])
            for target, known in self._targets.items():
                if (value := read(*known)) is not None:
                    gauge.add_metric([target], value)
            yield gauge
        calls = CounterMetricFamily(
            "waitroom_target_calls",
            "Calls since the store was created, by result: called, completed, failed, retried, "
            "lost, expired.",
            labels=["target", "kind"],
        )
        for target, (_, state) in self._targets.items():
            for kind, count in state.counters.items():
                calls.add_metric([target, kind], count)
        yield calls


class JobMetrics(MetricSet):
    jobs = counter(
        "waitroom_jobs",
        "Jobs, by state: submitted, refused, completed, failed, cancelled, expired; pending: a "
        "call that is retried.",
        "target",
        "state",
    )
    job_responses = counter(
        "waitroom_job_responses",
        "Responses of targets to jobs, by HTTP status, retried calls included.",
        "target",
        "status",
    )
    job_seconds = histogram(
        "waitroom_job_seconds",
        "Duration of this worker's calls, by outcome: answered, busy, failed, refused.",
        "target",
        "outcome",
        buckets=PACES_S,
    )
    callbacks = counter(
        "waitroom_job_callbacks",
        "Callbacks of this worker, by result: delivered, failed.",
        "target",
        "result",
    )

    def __init__(self, registry: CollectorRegistry) -> None:
        super().__init__(registry)
        self.targets = self.collected(TargetGauges())

    def count_response(self, target: str, status: int | None) -> None:
        """None: the target sent none."""
        if status is not None:
            self.job_responses.labels(target, str(status)).inc()
