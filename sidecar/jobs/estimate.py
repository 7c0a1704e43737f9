"""Estimates how long the jobs of a target wait, and names the state of the target."""

from typing import Literal

from sidecar.jobs.settings import TargetSettings
from sidecar.jobs.store.target_queue import QueueState

#: How long a worker counts as running after it asked for jobs, in seconds. Workers ask every 10 s.
WORKER_TIMEOUT_S = 15.0


def estimate_wait_s(settings: TargetSettings, queue: QueueState, position: int) -> float:
    """Estimate the wait of the job at this position, in seconds: the longer of the waits for a
    slot and for the rate, plus the time until the breaker or Retry-After allows calls again."""
    mean_s = queue.mean_s or settings.expected_seconds
    free_slots = max(0, settings.concurrency - queue.active)
    slot_wait_s = max(0, position - free_slots) * mean_s / settings.concurrency
    rate_wait_s = 0.0
    if settings.rate is not None:
        calls_left = max(0, settings.rate - queue.calls_in_window)
        rate_wait_s = max(0, position - calls_left) * settings.counted_window / settings.rate
    pause_ms = max(queue.open_until_ms or 0, queue.held_until_ms or 0) - queue.now_ms
    return max(slot_wait_s, rate_wait_s) + max(0, pause_ms) / 1000


def has_runner(settings: TargetSettings, queue: QueueState) -> bool:
    """Return True if a worker has a call in progress or asked for offline jobs in the last
    WORKER_TIMEOUT_S, or if the target has only online jobs, which need no worker."""
    if "offline" not in settings.kinds or queue.active > 0:
        return True
    return queue.runner_ms is not None and queue.now_ms - queue.runner_ms < WORKER_TIMEOUT_S * 1000


def name_state(
    settings: TargetSettings, queue: QueueState
) -> Literal["coming back", "paused", "no worker", "failing", "trying", "held", "running"]:
    """Return the first of the state names, in the return type's order, that applies to a target."""
    if not queue.is_ready:
        return "coming back"
    if settings.paused:
        return "paused"
    if not has_runner(settings, queue):
        return "no worker"
    if queue.breaker != "closed":
        return "failing" if queue.breaker == "open" else "trying"
    return "running" if queue.held_until_ms is None else "held"


def estimate_calls_per_s(settings: TargetSettings, queue: QueueState) -> float:
    """Estimate the target's capacity in calls per second."""
    slots_per_s = settings.concurrency / (queue.mean_s or settings.expected_seconds)
    if settings.rate is None:
        return slots_per_s
    return min(slots_per_s, settings.rate / settings.counted_window)
