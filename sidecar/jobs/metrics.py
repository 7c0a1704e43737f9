"""The metrics of jobs and their targets."""

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from sidecar.http.metrics import PACES_S, SHARED, MetricSet, counter, histogram
from sidecar.jobs.settings import TargetSettings
from sidecar.jobs.store.target_queue import QueueState

_BREAKER_VALUES = {"closed": 0, "trial": 1, "open": 2}
#: The gauges of a target: the suffix of the metric's name, its help text, and a function that
#: returns its value, or None if the target has no sample.
_GAUGES: tuple[tuple[str, str, Callable[[TargetSettings, QueueState], float | None]], ...] = (
    ("waiting", "Jobs in the queue.", lambda _, state: state.waiting),
    (
        "later",
        "Jobs that wait for their next attempt or run_at.",
        lambda _, state: state.later,
    ),
    ("running", "Calls in progress, issued permits included.", lambda _, state: state.active),
    ("concurrency", "Calls at a time, at most.", lambda target, _: target.concurrency),
    (
        "calls_in_window",
        "Calls that count against the rate now.",
        lambda _, state: state.calls_in_window,
    ),
    ("rate", "Calls in a window, at most. Absent without a rate.", lambda target, _: target.rate),
    (
        "breaker",
        "0: closed. 1: one call at a time tests the target. 2: open, nothing is called.",
        lambda _, state: _BREAKER_VALUES.get(state.breaker, 0),
    ),
    (
        "mean_seconds",
        "Mean duration of a call, the last ones most. Absent while unknown.",
        lambda _, state: state.mean_s,
    ),
    ("paused", "1 while an operator has paused the target.", lambda target, _: target.paused),
)


class TargetGauges(Collector):
    """The gauges of all targets, from the settings and queue states that were read last."""

    def __init__(self) -> None:
        self._targets: dict[str, tuple[TargetSettings, QueueState]] = {}

    def update(self, target: str, settings: TargetSettings, state: QueueState) -> None:
        self._targets[target] = settings, state

    def find(self, target: str) -> QueueState | None:
        entry = self._targets.get(target)
        return entry[1] if entry else None

    def forget(self, target: str) -> None:
        self._targets.pop(target, None)

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        for suffix, text, read in _GAUGES:
            gauge = GaugeMetricFamily(f"waitroom_target_{suffix}", text + SHARED, labels=["target"])
            for target, entry in self._targets.items():
                if (value := read(*entry)) is not None:
                    gauge.add_metric([target], value)
            yield gauge
        calls = CounterMetricFamily(
            "waitroom_target_calls",
            "Calls since Redis was empty: called, completed, failed, retried, lost (the worker "
            "died), expired (nobody used the permit)." + SHARED,
            labels=["target", "kind"],
        )
        for target, (_, state) in self._targets.items():
            for kind, count in state.counters.items():
                calls.add_metric([target, kind], count)
        yield calls


class JobMetrics(MetricSet):
    jobs = counter(
        "waitroom_jobs",
        "Jobs by what happened to them in this process. Replica: submitted, refused (max_pending), "
        "cancelled, and online jobs completed and failed. Worker: completed, failed, cancelled, "
        "pending (a call that is retried). Both: expired, and online jobs whose time was over.",
        "target",
        "state",
    )
    job_responses = counter(
        "waitroom_job_responses",
        "Responses of targets to jobs, by HTTP status, failed attempts included.",
        "target",
        "status",
    )
    job_seconds = histogram(
        "waitroom_job_duration_seconds",
        "Duration of this worker's calls. answered: the job was completed. rejected: the answer "
        "failed the job (fail_on). busy: 429, retried. failed: no answer, or one that is retried. "
        "refused: not called, or the answer was too large.",
        "target",
        "outcome",
        buckets=PACES_S,
        old_name="waitroom_job_seconds",
    )
    callbacks = counter(
        "waitroom_job_callbacks",
        "Callbacks of this worker, by final result: delivered, failed.",
        "target",
        "result",
    )

    def __init__(self, registry: CollectorRegistry) -> None:
        super().__init__(registry)
        self.targets = self.add_collector(TargetGauges())

    def count_response(self, target: str, status: int | None) -> None:
        """Count a target's response by its status. Nothing is counted if the status is None."""
        if status is not None:
            self.job_responses.labels(target, str(status)).inc()
