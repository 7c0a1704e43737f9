"""Arguments and replies of the scripts of jobs/lua, as types. Times in ms are of the store's
clock; None: not so, or unknown."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from sidecar.jobs.settings import TargetSettings
from sidecar.storage.redis.driver_errors import text

_COUNTERS = ("called", "completed", "failed", "retried", "lost", "expired")

#: How a call ended. answered: the target did its work. rejected: it responded, and that is the
#: job's failure. failed: it is the target's fault, and counts for the breaker. busy: 429. gone: it
#: was not called.
How: TypeAlias = Literal["answered", "rejected", "failed", "busy", "gone"]
Where: TypeAlias = Literal["line", "later", "called", "running", "used", "gone"]


@dataclass(frozen=True, slots=True)
class Claim:
    """A job that was called: a worker has it, or an online one has its permit `fence`."""

    id: str
    fence: int
    order: int
    is_online: bool
    #: The only call at the time: the breaker was open before.
    is_trial: bool


@dataclass(frozen=True, slots=True)
class Claimed:
    claims: list[Claim]
    #: When to claim again, seconds from now; None: at the next wake-up.
    next_s: float | None
    #: False: the queue is new, or was lost, and must be built again before anything is called.
    is_ready: bool
    #: When that was found, for `ready`, µs; 0: it is ready.
    born_us: int = 0


@dataclass(frozen=True, slots=True)
class Place:
    """Where a job is. `position` is in the queue, 1 is next; `fence` of what is called; `ends_ms`
    when its lock, permit, term or wait is over."""

    where: Where
    position: int | None = None
    fence: int = 0
    ends_ms: int | None = None


@dataclass(frozen=True, slots=True)
class QueueState:
    """A target at one moment."""

    now_ms: int
    waiting: int
    later: int
    active: int
    reserved: int
    #: How long a successful call takes, seconds: the last ones count most.
    mean_s: float | None
    #: What counts against the rate; 0 without one.
    calls_in_window: int
    breaker: Literal["closed", "open", "trial"]
    open_until_ms: int | None
    held_until_ms: int | None
    is_ready: bool
    #: When a worker last asked for jobs, to the second.
    runner_ms: int | None = None
    #: called, completed, failed, retried, lost, expired, since the store is new.
    counters: dict[str, int] = field(default_factory=dict)

    @property
    def is_idle(self) -> bool:
        """Nothing happens by itself."""
        return not (self.waiting or self.later or self.active)


@dataclass(frozen=True, slots=True)
class Waiting:
    """A job for the queue; or, until `not_before_ms`, to wait elsewhere."""

    id: str
    order: int
    is_online: bool = False
    not_before_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Release:
    """A call that is over, of the lock `fence`."""

    id: str
    fence: int
    how: How
    took_us: int = 0
    #: When it is tried again; None: it leaves the queue. And until when the whole target is held.
    again_ms: int | None = None
    hold_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Held:
    """An active job of before a loss: r, a worker has it; c, called; u, its permit is used."""

    id: str
    fence: int
    order: int
    ends_ms: int
    word: Literal["r", "c", "u"] = "r"


#: An online job that ended by itself: the reason, and when in ms.
Ended: TypeAlias = tuple[str, Literal["unused", "term"], int]


def read_claimed(reply: Sequence[Any]) -> Claimed:
    now, ready, again, born, *rows = reply
    claims = [
        Claim(text(job), fence, order, is_online == 1, is_trial == 1)
        for job, fence, order, is_online, is_trial in rows_of(rows, 5)
    ]
    next_s = None if again < 0 else max(0, again - now) / 1_000_000
    return Claimed(claims, next_s, ready == 1, born)


def read_ended(row: tuple[Any, float]) -> Ended:
    job, _, reason = text(row[0]).rpartition("~")
    return job, "unused" if reason == "unused" else "term", int(row[1]) // 1000


def read_look(reply: Sequence[Any]) -> tuple[QueueState, list[Place]]:
    now, waiting, later, active, reserved, mean, calls, breaker, opens, held = reply[:10]
    ready, runner = reply[10:12]
    state = QueueState(
        now // 1000,
        waiting,
        later,
        active,
        reserved,
        None if mean < 0 else mean / 1_000_000,
        calls,
        text(breaker),  # type: ignore[arg-type] # one of the three
        _ms_after(now, opens),
        _ms_after(now, held),
        ready == 1,
        _ms_after(0, runner),
        dict(zip(_COUNTERS, reply[12:18], strict=True)),
    )
    places = [
        Place(text(where), position or None, fence, _ms_after(0, ends))  # type: ignore[arg-type]
        for where, position, fence, ends in rows_of(reply[18:], 4)
    ]
    return state, places


def _ms_after(now_us: int, at_us: int) -> int | None:
    return at_us // 1000 if at_us > now_us else None


def rows_of(words: Sequence[Any], width: int) -> Iterator[tuple[Any, ...]]:
    yield from zip(*(iter(words),) * width, strict=True)


def rate_words(settings: TargetSettings | None) -> tuple[int | str, ...]:
    """As jobs/lua/parts/rate takes it."""
    if settings is None or settings.rate is None:
        return "", "", "", ""
    return settings.algorithm, settings.rate, in_us(settings.window), settings.burst or ""


def class_words(settings: TargetSettings, name: str) -> tuple[int, int, int]:
    """Head start in µs, priority, and number: by name, so that it is the same everywhere."""
    found = settings.classes.get(name)
    if found is None:
        return 0, 0, 0
    number = sorted(settings.classes).index(name) + 1
    return round(found.head_start * 1000) * 1000, found.priority, number


def in_us(seconds: float) -> int:
    return round(seconds * 1_000_000)
