"""What the store says of each target's line, as metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_BREAKER = {"closed": 0, "trial": 1, "open": 2}


class Bounds(Protocol):
    """What is read of a target's settings."""

    @property
    def paused(self) -> bool: ...
    @property
    def concurrency(self) -> int: ...
    @property
    def rate(self) -> int | None: ...


class LineState(Protocol):
    """What is read of a line (jobs/store/target_queue.py)."""

    @property
    def waiting(self) -> int: ...
    @property
    def later(self) -> int: ...
    @property
    def active(self) -> int: ...
    @property
    def mean_s(self) -> float | None: ...
    @property
    def calls_in_window(self) -> int: ...
    @property
    def breaker(self) -> str: ...
    @property
    def counters(self) -> Mapping[str, int]: ...


class TargetGauges(Collector):
    """Each target as it was last heard of."""

    def __init__(self) -> None:
        self._targets: dict[str, tuple[Bounds, LineState]] = {}

    def learn(self, target: str, settings: Bounds, line: LineState) -> None:
        self._targets[target] = settings, line

    def forget(self, target: str) -> None:
        self._targets.pop(target, None)

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        def gauge(name: str, text: str) -> GaugeMetricFamily:
            return GaugeMetricFamily(f"waitroom_target_{name}", text, labels=["target"])

        waiting = gauge("waiting", "Jobs in line.")
        later = gauge("later", "Jobs that wait to be tried again.")
        running = gauge("running", "Calls under way, permits that are out included.")
        concurrency = gauge("concurrency", "Calls at a time, at most.")
        calls = gauge("calls_in_window", "Calls begun in the present window.")
        rate = gauge("rate", "Calls in a window, at most; absent where there is no rate.")
        breaker = gauge("breaker", "2: open, nothing is called; 1: one call tries; 0: closed.")
        mean = gauge("mean_seconds", "How long calls take; absent while none was measured.")
        paused = gauge("paused", "1 while nothing is called because somebody said so, else 0.")
        made = CounterMetricFamily(
            "waitroom_target_calls",
            "Calls since the store was made, by what became of them: called, completed, failed, "
            "retried, lost, expired.",
            labels=["target", "kind"],
        )
        for name, (settings, line) in self._targets.items():
            paused.add_metric([name], settings.paused)
            for kind, count in line.counters.items():
                made.add_metric([name, kind], count)
            waiting.add_metric([name], line.waiting)
            later.add_metric([name], line.later)
            running.add_metric([name], line.active)
            concurrency.add_metric([name], settings.concurrency)
            calls.add_metric([name], line.calls_in_window)
            breaker.add_metric([name], _BREAKER.get(line.breaker, 0))
            if settings.rate is not None:
                rate.add_metric([name], settings.rate)
            if line.mean_s is not None:
                mean.add_metric([name], line.mean_s)
        yield from (waiting, later, running, concurrency, calls, rate, breaker, mean, paused)
        yield made
