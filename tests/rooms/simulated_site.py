"""Visitors, a room with a ceiling and a site behind it, simulated request by request.

Times are in seconds. A request's whole response time is known when it starts, because the site's
queue is first come, first served. So there is one event for each request.
"""

import heapq
import random
from collections import defaultdict, deque
from dataclasses import dataclass, field

from sidecar.rooms.adaptive.controller import TICK_S, Learned, Reading, Targets, tick
from sidecar.rooms.adaptive.signals import (
    ERRORS,
    PERCENT,
    RESPONSES,
    STEP_S,
    SUM_MS,
    find_bucket,
    sum_counts,
)

P90_S, MAX_ERRORS = 1.2, 0.02
#: The share of requests that nginx reports.
SAMPLED = 0.25
#: Visitors think so long between pages, and half of them hold their slot longer, as they close the
#: browser. They give up waiting for a response after the proxy's timeout.
THINK_S, PAGES, HELD_S, TIMEOUT_S = 4.0, 70.0, 300.0, 30.0
#: How long a slot is then held, on average.
STAY_S = 450.0


class Pool:
    """A pool of workers."""

    workers, base_s, mean_s = 10, 0.03, 0.15

    def __init__(self, rng: random.Random):
        self.rng, self.free = rng, [0.0] * self.workers

    def slow_down(self, at: float) -> float:  # noqa: ARG002
        return 1.0

    def work(self, page: int, inside: int) -> float:  # noqa: ARG002
        return self.base_s + self.rng.expovariate(1 / self.mean_s)

    def serve(self, at: float, page: int, inside: int) -> tuple[float, bool]:
        """Return the response time, and whether the response is good."""
        start = max(at, self.free[0])
        if start - at > TIMEOUT_S:
            return TIMEOUT_S, False
        end = start + self.work(page, inside) * self.slow_down(start)
        heapq.heapreplace(self.free, end)
        return (end - at, True) if end - at < TIMEOUT_S else (TIMEOUT_S, False)


class Database(Pool):
    """Many workers, whose common database gets slower the more visitors are inside."""

    workers = 400

    def work(self, page, inside):
        return super().work(page, inside) * (1 + (inside / 250.0) ** 4)


class Refusing(Pool):
    """Answers with a quick error when its queue is longer than a tenth of a second."""

    def serve(self, at, page, inside):
        return (0.005, False) if self.free[0] - at > 0.12 else super().serve(at, page, inside)


class Halved(Pool):
    """Loses half of its capacity after an hour."""

    def slow_down(self, at):
        return 2.0 if at >= 3600 else 1.0


class Hanging(Pool):
    """A third party hangs for good after an hour, whatever the load: every seventh page."""

    def serve(self, at, page, inside):
        taken, is_good = super().serve(at, page, inside)
        if at >= 3600 and self.rng.random() < 0.15:
            return taken + 10.0, False
        return taken, is_good


@dataclass
class Run:
    """What happened, by the second, and the controller's state at each tick."""

    good: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    times: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    #: Time, visitors inside, ceiling, state and visitors waiting.
    ticks: list[tuple[int, int, float, str, int]] = field(default_factory=list)
    learned: Learned = field(default_factory=Learned)

    def goodput(self, since: int, until: int) -> float:
        """Return the good responses a second that came within the target."""
        return sum(self.good[at] for at in range(since, until)) / (until - since)

    def p90(self, since: int, until: int) -> float:
        times = sorted(each for at in range(since, until) for each in self.times[at])
        return times[int(0.9 * len(times))] if times else 0.0

    def inside(self, since: int, until: int) -> float:
        seen = [inside for at, inside, *_ in self.ticks if since <= at < until]
        return sum(seen) / len(seen)


def simulate(  # noqa: C901, PLR0912, PLR0915 - one loop over the kinds of events
    site_type,
    *,
    cap=None,
    seed=1,
    lasts=5400,
    learned=None,
    lowest=10,
    silent=(0, 0),
    quiet_until=0,
    stay_s=STAY_S,
):
    """Run a site behind a room whose queue never ends, or arrives at once at `quiet_until`.

    With a `cap` the room has that fixed cap; otherwise the controller finds it. `silent` is a time
    in which no report arrives. Another `stay_s` makes visits shorter or longer.
    """
    rng = random.Random(seed)
    site, run = site_type(rng), Run(learned=learned or Learned())
    targets = Targets(P90_S, MAX_ERRORS, lowest, 20_000)
    steps = defaultdict(lambda: defaultdict(int))
    heap, sequence, inside, now = [], 0, 0, 0.0
    waiting, first = deque(), 0
    ceiling = cap or max(lowest, run.learned.ceiling)
    mean_pages, held_s = PAGES * stay_s / STAY_S, HELD_S * stay_s / STAY_S

    def push(at, kind, page=0, pages=0):
        nonlocal sequence
        sequence += 1
        heapq.heappush(heap, (at, sequence, kind, page, pages))

    def enter(at):
        nonlocal inside
        inside += 1
        push(at + rng.uniform(0, 8), "request", 0, max(2, int(rng.gammavariate(2, mean_pages / 2))))

    def call(at):
        nonlocal first
        while inside < ceiling and (not quiet_until or waiting):
            if quiet_until:
                assert waiting.popleft() == first  # in the order of the queue
                first += 1
            enter(at)

    def count(seconds):
        chosen = range((int(now) - seconds) // STEP_S, int(now) // STEP_S)
        return sum_counts(steps[step] for step in chosen)

    def report(at, taken, is_good):
        if silent[0] <= at < silent[1] or rng.random() >= SAMPLED:
            return
        step = steps[int(at) // STEP_S]
        step[RESPONSES] += 1
        step[PERCENT] += round(100 * SAMPLED)
        step[ERRORS] += not is_good
        if is_good or taken > 0.5:  # a quick error says nothing about speed
            step[find_bucket(taken)] += 1
            step[SUM_MS] += round(taken * 1000)

    push(0.0, "tick")
    if quiet_until:
        push(0.0, "arrive")
        push(quiet_until, "rush")
    while heap:
        now, _, kind, page, pages = heapq.heappop(heap)
        if now >= lasts:
            break
        if kind == "request":
            taken, is_good = site.serve(now, page, inside)
            end = now + taken
            if is_good:
                run.good[int(end)] += taken <= P90_S
            if is_good or taken > 0.5:
                run.times[int(end)].append(taken)
            report(end, taken, is_good)
            if page + 1 >= pages or (taken > 10 and rng.random() < 0.1):
                push(end + (held_s if rng.random() < 0.5 else 0.0), "leave")
            else:
                think = rng.expovariate(1 / (THINK_S if is_good else 1.5))
                push(end + think, "request", max(1, page + is_good), pages)
        elif kind == "leave":
            inside -= 1
            call(now)
        elif kind == "arrive":
            waiting.append(first + len(waiting))
            push(now + rng.expovariate(0.2), "arrive")
            call(now)
        elif kind == "rush":
            waiting.extend(range(first + len(waiting), first + len(waiting) + 4000))
            call(now)
        else:
            if cap is None:
                tick(run.learned, targets, Reading(now + 1e6, inside, stay_s, count))
                ceiling = int(run.learned.ceiling)
            run.ticks.append((int(now), inside, ceiling, run.learned.state, len(waiting)))
            call(now)
            push(now + TICK_S, "tick")
    return run
