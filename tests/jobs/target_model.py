"""A model of a target's queue in plain Python, with which tests compare the scripts. Times, orders
and fencing numbers are in µs."""

from dataclasses import dataclass, field
from math import inf

from sidecar.jobs.model import State
from sidecar.jobs.store.target_queue import LOCK_S, RESERVATION_S, Claim, ClaimReply, QueuePlace
from tests.support.limit_model import BACK, Key
from tests.support.limits import S

#: How long the circuit breaker is open at first, and at most.
FIRST, LONGEST = 5 * S, 60 * S
#: For how long a target can ask for a pause at most, and the pause of a job after a failed trial.
HELD_MOST, AFTER_TRIAL = 3600 * S, S
#: How many jobs more than the worker wants a claim examines, because some may be online jobs.
AHEAD = 20
#: The algorithms of a rate, by their numbers in a target's state. None: no rate.
COUNTED_BY = [None, "fixed_window", "sliding_window", "token_bucket", "leaky_bucket"]
#: The counters of which each minute with calls has a sample.
SAMPLED = ("completed", "failed", "retried")
#: What each word about an active job means.
WHERE = {"r": "running", "c": "called", "u": "used"}


@dataclass
class Active:
    """An active job: it runs, or its client was called, or its client is making the call."""

    ends: int
    fence: int
    #: One of WHERE.
    word: str
    began: int
    is_trial: bool
    order: int


@dataclass
class Target:
    """A model of all that Redis stores about a target. A new one is empty."""

    #: The order of each job in the queue.
    line: dict[str, int] = field(default_factory=dict)
    #: The jobs that must wait first: when each may be queued, and its order.
    later: dict[str, tuple[int, int]] = field(default_factory=dict)
    active: dict[str, Active] = field(default_factory=dict)
    online: set[str] = field(default_factory=set)
    ended: dict[tuple[str, str], int] = field(default_factory=dict)
    reserved: dict[str, int] = field(default_factory=dict)
    aborts: set[str] = field(default_factory=set)
    ready: int | None = None
    born: int | None = None
    last_order: int = 0
    last_fence: int = 0
    #: The algorithm that counted the last call, as a number of COUNTED_BY.
    counted_by: int | None = None
    #: When the last call was claimed.
    last_call: int = 0
    failures: int = 0
    opened: int = 0
    open_until: int = 0
    held_until: int = 0
    mean: float | None = None
    #: When a worker last asked for offline jobs, to the second.
    runner: int = 0
    counters: dict[str, int] = field(default_factory=dict)
    #: The minute in which SAMPLED counters last grew, and what they were before; latest first.
    minutes: list[tuple[int, ...]] = field(default_factory=list)
    rates: dict[str, Key] = field(default_factory=dict)
    now: int = 0

    def at(self, now, *, changes=True) -> "Target":
        """Set the time for the call that follows. If the clock went back, shorten pauses that would
        be too long, unless the call `changes` nothing."""
        self.now = now
        if changes:
            self.open_until = min(self.open_until, now + LONGEST)
            self.held_until = min(self.held_until, now + HELD_MOST)
            self.last_call = min(self.last_call, now)
        return self

    @property
    def breaker(self) -> str:
        if not self.opened:
            return "closed"
        return "open" if self.open_until > self.now else "trial"

    def count(self, name) -> None:
        minute = self.now // (60 * S)
        if name in SAMPLED and minute not in {at for at, *_ in self.minutes[:1]}:
            self.minutes.insert(0, (minute, *(self.counters.get(each, 0) for each in SAMPLED)))
        self.counters[name] = self.counters.get(name, 0) + 1

    def is_in(self, job) -> bool:
        return job in self.line or job in self.later or job in self.active

    def forget(self, job) -> None:
        self.online.discard(job)
        self.aborts.discard(job)

    # Calls -------------------------------------------------------------------------------------

    def reserve(self, job, class_name, settings, due_ms=None) -> int | None:
        taken = len(self.line) + len(self.later)
        taken += sum(until > self.now for until in self.reserved.values())
        if settings.max_pending is not None and taken >= settings.max_pending:
            return None
        if due_ms is None:
            self.last_order = max(-(-self.now // 8) * 8, (self.last_order // 8 + 1) * 8)
        arrival = self.last_order if due_ms is None else due_ms * 1000
        self.reserved[job] = self.now + RESERVATION_S * S
        found = settings.classes.get(class_name)
        if found is None:
            return arrival
        number = 1 + sorted(settings.classes).index(class_name)
        return arrival - round(found.head_start * S) - found.priority * 2**51 + number

    def add(self, jobs) -> list[QueuePlace]:
        for job in jobs:
            if not self.is_in(job.id):
                if (job.not_before_ms or 0) * 1000 > self.now:
                    self.later[job.id] = job.not_before_ms * 1000, job.order
                else:
                    self.line[job.id] = job.order
                    # The order of a job for later may be a time to come.
                    self.last_order = max(self.last_order, job.order // 8 * 8)
                if job.is_online:
                    self.online.add(job.id)
        for job in jobs:
            self.reserved.pop(job.id, None)
        return [self.place(job.id) for job in jobs]

    def position(self, job) -> int | None:
        return self.heads().index(job) + 1 if job in self.line else None

    def heads(self) -> list[str]:
        return sorted(self.line, key=lambda job: (self.line[job], job))

    def claim(self, wanted, settings) -> ClaimReply:
        self.settle()
        if wanted > 0 and abs(self.now - self.runner) >= S:
            self.runner = self.now
        if self.ready is not None and self.ready <= self.now:
            self.ready = 1  # The queue stays ready, even if the clock goes back.
        is_trial, claims = self.breaker == "trial", []
        room = (1 if is_trial else settings.concurrency) - len(self.active)
        opens = inf
        if self.ready is not None and not settings.paused:
            opens = max(self.ready, self.held_until, self.open_until)
        again = opens if self.line and opens > self.now else inf
        if self.line and opens <= self.now and room > 0:
            again = None
            for job in self.heads()[: min(room, wanted + AHEAD)]:
                is_online = job in self.online
                again = inf if not is_online and wanted == 0 else self.spend(settings)
                if again:
                    break
                wanted -= not is_online
                claims.append(self.call(job, settings, is_trial))
            again = again or (self.now if len(claims) < room and self.line else inf)
        again = min([
            again,
            *(active.ends for active in self.active.values()),
            *(when for when, _ in self.later.values()),
        ])  # fmt: skip
        if self.ready is None and self.born is None:
            self.born = self.now
        next_s = None if again == inf else max(0, again - self.now) / S
        is_ready = self.ready is not None
        return ClaimReply(claims, next_s, is_ready, 0 if is_ready else self.born)

    def settle(self) -> None:
        """End active jobs whose time is over, and queue the jobs that have waited long enough."""
        for job, active in list(self.active.items()):
            if active.ends <= self.now:
                del self.active[job]
                if active.word == "r":
                    self.line[job] = active.order
                    self.count("lost")
                else:
                    why = "unused" if active.word == "c" else "term"
                    self.ended[job, why] = active.ends
                    self.count("expired" if active.word == "c" else "completed")
                    self.forget(job)
        for job, (when, order) in list(self.later.items()):
            if when <= self.now:
                del self.later[job]
                self.line[job] = order

    def spend(self, settings) -> int | None:
        """Count a call against the rate limit. If it does not fit now, return when it will."""
        algorithm = None if settings.rate is None else settings.algorithm
        number, before = COUNTED_BY.index(algorithm), self.counted_by
        if algorithm and before not in {None, number} and self.last_call + S > self.now:
            return self.last_call + S
        self.counted_by = number
        if algorithm is None:
            return None
        rate = self.rates.setdefault(settings.algorithm, Key(settings.algorithm, False))
        last = rate.last_granted()
        present = last if self.now < last <= self.now + BACK else self.now
        base = max(present, last)
        at = rate.first_fit(1, settings.rate, base)
        if at > present:
            return at
        rate.level = rate.level_at(base, settings.rate) + 1
        rate.grants.append((at, 1))
        return None

    def call(self, job, settings, is_trial) -> Claim:
        order, is_online = self.line.pop(job), job in self.online
        self.last_fence = max(self.now, self.last_fence + 1)
        self.last_call = self.now
        lasts = round(settings.claim_window * S) if is_online else LOCK_S * S
        word = "c" if is_online else "r"
        self.active[job] = Active(
            self.now + lasts, self.last_fence, word, self.now, is_trial, order
        )
        self.count("called")
        return Claim(job, self.last_fence, order, is_online, is_trial)

    def renew(self, job, fence) -> str:
        active = self.active.get(job)
        if active and active.fence == fence and active.word == "r":
            active.ends = self.now + LOCK_S * S
            return "abort" if job in self.aborts else "held"
        return "held" if self.ready is None and not active else "lost"

    def release(self, end, settings) -> bool:
        active = self.active.get(end.id)
        if active is None or active.fence != end.fence:
            return False
        del self.active[end.id]
        if end.outcome in {"answered", "rejected"}:
            self.count("completed" if end.outcome == "answered" else "failed")
            self.measure(end.took_us)
            self.failures = self.opened = self.open_until = 0
        elif end.outcome == "failed":
            self.count("failed")
            self.failures += 1
            if (self.breaker == "closed" and self.failures >= settings.break_after) or (
                self.breaker == "trial" and active.is_trial
            ):
                self.opened += 1
                self.open_until = self.now + min(LONGEST, FIRST * 2 ** (self.opened - 1))
        if end.not_before_ms is None:
            self.forget(end.id)
        else:
            again = end.not_before_ms * 1000
            if end.outcome == "failed" and active.is_trial:  # Another job must be the next trial.
                again = max(again, self.open_until + AFTER_TRIAL)
            self.later[end.id] = again, active.order
            self.count("retried")
        self.held_until = max(self.held_until, (end.hold_ms or 0) * 1000)
        return True

    def measure(self, took) -> None:
        self.mean = took if self.mean is None else self.mean + (took - self.mean) / 10

    def remove(self, job) -> bool:
        active = self.active.get(job)
        if active and active.word != "c":
            return False
        found = [places.pop(job, None) for places in (self.line, self.later, self.reserved)]
        if active:
            del self.active[job]
        if active or found != [None] * 3:
            self.forget(job)
        return bool(active) or found != [None] * 3

    def abort(self, job) -> bool:
        is_running = job in self.active and self.active[job].word == "r"
        if is_running:
            self.aborts.add(job)
        return is_running

    def use(self, job, fence, settings) -> str | None:
        """Let the client of an online job begin its call. Return None if the queue was lost, so
        that Redis does not know the job."""
        active = self.active.get(job)
        if active and active.fence == fence and active.ends > self.now and active.word != "r":
            if active.word == "u":
                return "used"
            active.word, active.began = "u", self.now
            active.ends = self.now + round(settings.timeout * S)
            return "ok"
        return "over" if self.ready is not None else None

    def done(self, job, fence) -> bool | None:
        """End the call of an online job. Return None if the queue was lost, so that Redis does not
        know the job."""
        active = self.active.get(job)
        if active is None or active.fence != fence or active.word == "r":
            return False if self.ready is not None else None
        del self.active[job]
        self.forget(job)
        self.count("completed")
        self.measure(max(0, self.now - active.began))
        if active.is_trial:
            self.failures = self.opened = self.open_until = 0
        return True

    def place(self, job) -> QueuePlace:
        if job in self.line:
            return QueuePlace("line", self.position(job))
        if job in self.later:
            return QueuePlace("later", ends_ms=self.later[job][0] // 1000)
        if active := self.active.get(job):
            return QueuePlace(WHERE[active.word], None, active.fence, active.ends // 1000)
        return QueuePlace("gone")

    def hold(self, jobs, settings) -> None:
        """Restore active jobs of the database, after the queue was lost."""
        for job in jobs:
            if job.id not in self.active:
                self.line.pop(job.id, None)
                self.later.pop(job.id, None)
                word, lasts = "u", settings.timeout
                if job.kind == "offline":
                    word, lasts = "r", LOCK_S
                elif job.state is State.CALLED:
                    word, lasts = "c", settings.claim_window
                self.active[job.id] = Active(
                    self.now + round(lasts * S), job.fence, word, self.now, False, job.queue_order
                )
                if word != "r":
                    self.online.add(job.id)
            self.last_fence = max(self.last_fence, job.fence)
            self.last_order = max(self.last_order, job.queue_order // 8 * 8)

    def make_ready(self, wait, born) -> bool:
        """Let calls begin after `wait`. Return False if the queue was lost again since `born`."""
        if born not in {0, self.born}:
            return False
        self.ready = self.now + wait if self.ready is None else self.ready
        return True
