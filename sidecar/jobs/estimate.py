"""How long a target's jobs wait, and whether anybody makes their calls."""

from sidecar.jobs.settings import TargetSettings
from sidecar.jobs.store.target_queue import QueueState

#: A worker that can take more asks every 10 s at least.
RUNNER_AWAY_S = 15.0


def wait_s(settings: TargetSettings, queue: QueueState, position: int) -> float:
    """Estimate the wait of the job at this position, in seconds: by the slots and how long a call
    takes (measured, or expected), by the rate, and until an open breaker lets calls through."""
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
    """Return True if a worker makes a call now or asked for offline jobs in the last 15 s, and for
    a target of online jobs alone, which need none."""
    if "offline" not in settings.kinds or queue.active > 0:
        return True
    return queue.runner_ms is not None and queue.now_ms - queue.runner_ms < RUNNER_AWAY_S * 1000


def rate_per_s(settings: TargetSettings, queue: QueueState) -> float:
    """Estimate the target's capacity in calls per second."""
    by_slots = settings.concurrency / (queue.mean_s or settings.expected_seconds)
    return by_slots if settings.rate is None else min(by_slots, settings.rate / settings.window)
