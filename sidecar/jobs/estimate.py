"""Estimates of how long a target's jobs wait, and whether a worker makes their calls."""

from sidecar.jobs.settings import TargetSettings
from sidecar.jobs.store.target_queue import QueueState

#: Without a request for jobs for this long, no worker is running: each asks every 10 s at least.
RUNNER_AWAY_S = 15.0


def wait_s(settings: TargetSettings, queue: QueueState, position: int) -> float:
    """Estimate the wait of the job at this position, in seconds: the longer of the waits for a
    slot and for the rate, plus the time until the breaker or Retry-After allows calls again."""
    mean_s = queue.mean_s or settings.expected_seconds
    free = max(0, settings.concurrency - queue.active)
    by_slots = max(0, position - free) * mean_s / settings.concurrency
    by_rate = 0.0
    if settings.rate is not None:
        left = max(0, settings.rate - queue.calls_in_window)
        by_rate = max(0, position - left) * settings.window / settings.rate
    held_ms = max(queue.open_until_ms or 0, queue.held_until_ms or 0) - queue.now_ms
    return max(by_slots, by_rate) + max(0, held_ms) / 1000


def has_runner(settings: TargetSettings, queue: QueueState) -> bool:
    """Return True if a worker has a call in progress or asked for offline jobs in the last 15 s,
    or if the target has only online jobs, which need no worker."""
    if "offline" not in settings.kinds or queue.active > 0:
        return True
    return queue.runner_ms is not None and queue.now_ms - queue.runner_ms < RUNNER_AWAY_S * 1000


def rate_per_s(settings: TargetSettings, queue: QueueState) -> float:
    """Estimate the target's capacity in calls per second."""
    by_slots = settings.concurrency / (queue.mean_s or settings.expected_seconds)
    return by_slots if settings.rate is None else min(by_slots, settings.rate / settings.window)
