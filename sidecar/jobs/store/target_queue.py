"""The queue of a target: who is called next, locks, permits, rate, breaker. Runs the scripts of
jobs/lua, and reads their replies. Times in ms are of Redis' clock."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any, Literal, TypeAlias, TypeVar

from sidecar.jobs import redis_keys as keys
from sidecar.jobs.model import Ending, Job, QueueEntry, State
from sidecar.jobs.settings import TargetSettings
from sidecar.kit.batch import CallBatcher
from sidecar.kit.clock import StoreClock
from sidecar.kit.errors import StoreError
from sidecar.storage.redis.connect import Store
from sidecar.storage.redis.driver_errors import text
from sidecar.storage.redis.scripts import Observer, RedisScripts

#: How long a worker's lock lasts from its last renewal on, and how long a place is kept for a job
#: that is being submitted.
LOCK_S = 10
RESERVED_S = 30
#: Jobs in one script call. More would block Redis for too long.
BATCH_LIMIT = 128

Renewed: TypeAlias = Literal["held", "abort", "lost"]
Used: TypeAlias = Literal["ok", "used", "gone"]
#: By the number that the script replies.
_RENEWED: tuple[Renewed, ...] = ("lost", "held", "abort")
_USED: dict[int, Used] = {1: "ok", 0: "used", -1: "gone"}
#: The script's reply while the queue is lost.
_UNKNOWN = -2
_COUNTERS = ("called", "completed", "failed", "retried", "lost", "expired")

Item = TypeVar("Item")
Row: TypeAlias = tuple[Any, ...]
#: An online job that ended by itself: its id, the reason, and when in ms.
EndedByItself: TypeAlias = tuple[str, Literal["unused", "term"], int]


@dataclass(frozen=True, slots=True)
class Claim:
    """A job that is called: a worker has it, or its client gets a permit with this `fence`."""

    id: str
    fence: int
    order: int
    is_online: bool
    #: Whether this is the only call at the time, since the breaker was open before.
    is_trial: bool


@dataclass(frozen=True, slots=True)
class Claimed:
    """The reply to a claim."""

    claims: list[Claim]
    #: When to claim again, seconds from now; None: at the next wake-up.
    next_s: float | None
    #: False: the queue is new, or was lost, and must be rebuilt before anything is called.
    is_ready: bool
    #: When it was found new or lost, µs, an argument of `ready`; 0: it is ready.
    born_us: int = 0


@dataclass(frozen=True, slots=True)
class QueuePlace:
    """Where a job is in its target's queue."""

    where: Literal["line", "later", "called", "running", "used", "gone"]
    #: In the queue; 1 is next.
    position: int | None = None
    fence: int = 0
    #: When its lock, permit, term or wait is over.
    ends_ms: int | None = None


@dataclass(frozen=True, slots=True)
class QueueState:
    """A target's queue at one moment."""

    now_ms: int
    waiting: int
    later: int
    active: int
    reserved: int
    #: How long a successful call takes, seconds: the last ones count most.
    mean_s: float | None
    #: Calls that count against the rate; 0 without a rate.
    calls_in_window: int
    breaker: Literal["closed", "open", "trial"]
    #: These two are None unless they are in the future.
    open_until_ms: int | None
    held_until_ms: int | None
    is_ready: bool
    #: When a worker last asked for jobs, to the second.
    runner_ms: int | None = None
    #: called, completed, failed, retried, lost, expired, since the store is new.
    counters: dict[str, int] = field(default_factory=dict)

    @property
    def is_idle(self) -> bool:
        """Whether no job waits or is called."""
        return not (self.waiting or self.later or self.active)


class TargetStore:
    """The queue of one target, whose `settings` are passed with each call. `now_us` overrides the
    time of Redis, in tests."""

    def __init__(  # noqa: PLR0913
        self,
        redis: Store,
        name: str,
        *,
        clock: StoreClock,
        observer: Observer | None = None,
        now_us: Callable[[], int] | None = None,
        timeout_s: float = 1.0,
    ) -> None:
        self._redis: Any = redis
        self._name = name
        self._observer = observer or Observer()
        self._scripts = RedisScripts(
            redis,
            "jobs",
            name,
            observer=observer,
            timeout_s=timeout_s,
            now=now_us,
            on_time=lambda us: clock.observe(us // 1000),
        )
        self._keys = keys.target_keys(name)
        self._reserve = self._batched("reserve", _in_us(RESERVED_S))
        self._add = self._batched("add")
        self._release = self._batched("release", 0)
        self._release_and_wake = self._batched("release", 1)
        self._use = self._batched("use")
        self._done = self._batched("done")
        self._look = CallBatcher(self._look_batch, limit=BATCH_LIMIT)

    @property
    def is_away(self) -> bool:
        return self._scripts.is_away

    # Submitting and taking back ----------------------------------------------------------------

    async def reserve(self, job: str, class_name: str, settings: TargetSettings) -> int | None:
        """Return the order of a job that is being submitted, and keep a place for it for
        RESERVED_S. Return None if the queue is full."""
        most = "" if settings.max_pending is None else settings.max_pending
        classes = ""
        if class_name:
            rules = {"head_start", "priority"}
            classes = json.dumps(
                {name: one.model_dump(include=rules) for name, one in settings.classes.items()}
            )
        order = await self._reserve((job, most, class_name, classes))
        return order if isinstance(order, int) else None

    async def unreserve(self, job: str) -> None:
        """Give up the place of a job that was not submitted after all."""
        await self._scripts.command("unreserve", self._redis.zrem, self._key("reserved"), job)

    async def spend_grant(self, grant_id: str, job: str, until_ms: int) -> bool:
        """Use up a grant until it ends. Return False if another job has used it."""
        key = self._key(f"grant:{grant_id}")

        async def spend() -> bool:
            is_new = await self._redis.set(key, job, nx=True, pxat=until_ms)
            return is_new or await self._is_of(key, job)

        return bool(await self._scripts.command("spend_grant", spend))

    async def return_grant(self, grant_id: str, job: str) -> None:
        """Make a grant usable again, if this job used it."""
        key = self._key(f"grant:{grant_id}")

        async def give_back() -> None:
            if await self._is_of(key, job):
                await self._redis.delete(key)

        await self._scripts.command("return_grant", give_back)

    async def _is_of(self, key: str, job: str) -> bool:
        holder = await self._redis.get(key)
        return holder is not None and text(holder) == job

    async def add(self, jobs: Sequence[QueueEntry]) -> list[int | None]:
        """Put jobs in the queue, except those that wait or are active already. Return the position
        of each, None for a job that is not in the queue itself."""
        rows = [(job.id, job.order, int(job.is_online), _us(job.not_before_ms)) for job in jobs]
        return [position or None for position in await asyncio.gather(*map(self._add, rows))]

    async def remove(self, job: str) -> bool:
        """Remove a job that waits, is being submitted, or has not used its permit. Return False if
        there is none, or its call has begun."""
        _, is_removed = await self._run("remove", [job])
        return bool(is_removed)

    async def abort(self, job: str) -> bool:
        """Have the worker of a job cut the call off, when it renews its lock. Return False if no
        worker has the job."""
        _, is_running = await self._run("abort", [job])
        return bool(is_running)

    # Calls -------------------------------------------------------------------------------------

    async def claim(self, n: int, settings: TargetSettings) -> Claimed:
        """Call as many jobs as the target allows. `n`: how many offline jobs the worker can take;
        with 0 only online ones at the head of the queue are called."""
        args = [
            *_rate_args(settings),
            n,
            settings.concurrency,
            int(settings.paused),
            _in_us(LOCK_S),
            _in_us(settings.claim_window),
        ]
        began = time.perf_counter()
        now, ready, again, born, *rows = await self._run("claim", args, settings)
        claims = [
            Claim(text(job), fence, order, is_online == 1, is_trial == 1)
            for job, fence, order, is_online, is_trial in _rows_of(rows, 5)
        ]
        if claims:
            self._observer.batch(self._name, "claim", len(claims), time.perf_counter() - began)
        next_s = None if again < 0 else max(0, again - now) / 1_000_000
        return Claimed(claims, next_s, ready == 1, born)

    async def renew(self, claims: Sequence[tuple[str, int]]) -> list[Renewed]:
        """Make the locks (job, fence) of a worker last LOCK_S from now on. Return for each: held;
        abort, the worker is to cut the call off; lost, another worker has the job by now."""
        replies: list[int] = []
        for part in _parts(claims):
            replies += (await self._run("renew", [_in_us(LOCK_S), *chain(*part)]))[1:]
        return [_RENEWED[reply] for reply in replies]

    async def release(
        self, endings: Sequence[Ending], settings: TargetSettings, *, wakes: bool = False
    ) -> list[bool]:
        """End calls. Return False for each whose job another worker has by now: nothing was changed
        there. `wakes`: others are woken, since this worker will not claim again."""
        return await self._release_rows(
            [
                (one.id, one.fence, one.note, one.took_us, _us(one.not_before_ms), _us(one.hold_ms))
                for one in endings
            ],
            settings,
            wakes=wakes,
        )

    async def drop(
        self,
        calls: Iterable[tuple[str, int]],
        settings: TargetSettings,
        *,
        again_ms: int | None = None,
        wakes: bool = False,
    ) -> None:
        """End calls (job, fence) that were not made. The jobs leave the queue, or wait for
        `again_ms`."""
        rows = [(job, fence, "gone", 0, _us(again_ms), "") for job, fence in calls]
        await self._release_rows(rows, settings, wakes=wakes)

    async def _release_rows(
        self, rows: Sequence[Row], settings: TargetSettings, *, wakes: bool
    ) -> list[bool]:
        release = self._release_and_wake if wakes else self._release
        replies = [release((*row, settings.break_after)) for row in rows]
        return [reply == 1 for reply in await asyncio.gather(*replies)]

    async def use(self, job: str, fence: int, settings: TargetSettings, request: str = "") -> Used:
        """Use the permit of an online job, which is good for one call. The same `request` gets the
        same reply again, should a response have been lost. Raises StoreError also while the queue
        is lost, when the permit may be valid."""
        reply = await self._use((job, fence, _in_us(settings.timeout), request))
        return _USED[_known("use", reply)]

    async def done(self, job: str, fence: int, *, has_failed: bool = False) -> bool:
        """End the call of an online job. Return False if there is no such call. Raises as `use`."""
        return _known("done", await self._done((job, fence, int(has_failed)))) == 1

    async def look(
        self, jobs: Sequence[str], settings: TargetSettings | None = None
    ) -> tuple[QueueState, list[QueuePlace]]:
        """Return the state of the queue, and where these jobs are. Without settings
        `calls_in_window` is 0."""
        self._scripts.raise_if_away("look")
        return await self._look.submit((jobs, settings))

    # For the reconciler ------------------------------------------------------------------------

    async def ended(self, limit: int = 100) -> list[EndedByItself]:
        """Return the online jobs that ended by themselves first."""
        read = partial(self._redis.zrange, self._key("ended"), 0, limit - 1, withscores=True)
        ended: list[EndedByItself] = []
        for member, at_us in await self._scripts.command("ended", read):
            job, _, reason = text(member).rpartition("~")
            ended.append((job, "unused" if reason == "unused" else "term", int(at_us) // 1000))
        return ended

    async def forget(self, ended: Sequence[EndedByItself]) -> None:
        """Acknowledge what `ended` returned."""
        if ended:
            members = [f"{job}~{reason}" for job, reason, _ in ended]
            await self._scripts.command("forget", self._redis.zrem, self._key("ended"), *members)

    async def waiting_ids(self) -> AsyncIterator[list[str]]:
        """Iterate over the jobs that wait, in parts; a job may come twice."""
        for name in ("line", "later"):
            cursor = 0
            while True:
                scan = partial(self._redis.zscan, self._key(name), cursor, count=BATCH_LIMIT)
                cursor, rows = await self._scripts.command("waiting_ids", scan)
                yield [text(member) for member, _ in rows]
                if not cursor:
                    break

    async def hold(self, jobs: Sequence[Job], settings: TargetSettings) -> None:
        """Make jobs active again after a loss: a worker, or the client with the permit, may still
        be at work."""
        rows = []
        for job in jobs:
            lasts_s, word = settings.timeout, "u"
            if job.kind == "offline":
                lasts_s, word = LOCK_S, "r"
            elif job.state is State.CALLED:
                lasts_s, word = settings.claim_window, "c"
            rows.append((job.id, job.fence, job.queue_order, _in_us(lasts_s), word))
        for part in _parts(rows):
            await self._run("hold", [*chain(*part)])

    async def ready(self, wait_us: int, born_us: int = 0) -> bool:
        """Allow calls from `wait_us` from now on: the queue is rebuilt. `born_us` is of the claim
        that found it lost. Return False if it was lost again since."""
        _, is_ready = await self._run("ready", [wait_us, born_us or ""])
        return bool(is_ready)

    async def is_ready(self) -> bool:
        return bool(
            await self._scripts.command(
                "is_ready", self._redis.hexists, self._key("state"), "ready"
            )
        )

    # How -----------------------------------------------------------------------------------------

    def _key(self, name: str) -> str:
        return keys.target_key(self._name, name)

    def _batched(self, verb: str, *first: Any) -> Callable[[Row], asyncio.Future[Any]]:
        """Return a function that sends one row to a script, which takes any number of rows after
        its `first` arguments. Rows that come at the same time go together."""

        async def run(rows: Sequence[Row]) -> list[Any]:
            reply: list[Any] = await self._run(verb, [*first, *chain(*rows)], batch=len(rows))
            return reply[1:]

        batcher = CallBatcher(run, limit=BATCH_LIMIT)

        def submit(row: Row) -> asyncio.Future[Any]:
            self._scripts.raise_if_away(verb)
            return batcher.submit(row)

        return submit

    async def _look_batch(
        self, items: Sequence[tuple[Sequence[str], TargetSettings | None]]
    ) -> list[tuple[QueueState, list[QueuePlace]]]:
        """Use the last caller's settings that are there: the others' are the same, or older."""
        settings = next((one for _, one in reversed(items) if one is not None), None)
        all_jobs = [job for jobs, _ in items for job in jobs]
        places: list[QueuePlace] = []
        for part in list(_parts(all_jobs)) or [()]:
            args = [*_rate_args(settings), *part]
            reply = await self._run("look", args, settings, batch=len(items))
            state = _read_state(reply[:18])
            places += [
                QueuePlace(text(where), position or None, fence, _ms_after(0, ends))  # type: ignore[arg-type]
                for where, position, fence, ends in _rows_of(reply[18:], 4)
            ]
        rest = iter(places)
        return [(state, [next(rest) for _ in jobs]) for jobs, _ in items]

    async def _run(
        self,
        name: str,
        args: Sequence[Any],
        settings: TargetSettings | None = None,
        *,
        batch: int = 0,
    ) -> Any:
        """Run a script and return its reply. A script that needs the rate needs the `settings`."""
        named = self._keys
        if settings is not None and settings.rate is not None:
            named = [*named, self._key(f"rate.{settings.algorithm}")]
        args = [keys.JOBS_CHANNEL, self._name, *args]
        return await self._scripts.call(name, named, args, batch=batch)


def _known(verb: str, reply: int) -> int:
    if reply == _UNKNOWN:
        raise StoreError(f"{verb}: the queue was lost, and is being built again")
    return reply


def _us(ms: int | None) -> int | str:
    return "" if ms is None else ms * 1000


def _parts(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    """Cut items into parts that one script call may handle."""
    for start in range(0, len(items), BATCH_LIMIT):
        yield items[start : start + BATCH_LIMIT]


def _read_state(reply: Sequence[Any]) -> QueueState:
    now, waiting, later, active, reserved, mean, calls, breaker, opens, held, ready, runner = reply[
        :12
    ]
    return QueueState(
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
        dict(zip(_COUNTERS, reply[12:], strict=True)),
    )


def _ms_after(now_us: int, at_us: int) -> int | None:
    return at_us // 1000 if at_us > now_us else None


def _rows_of(words: Sequence[Any], width: int) -> Iterator[Row]:
    yield from zip(*(iter(words),) * width, strict=True)


def _rate_args(settings: TargetSettings | None) -> tuple[int | str, ...]:
    """Return the arguments of jobs/lua/parts/rate."""
    if settings is None or settings.rate is None:
        return "", "", "", ""
    return settings.algorithm, settings.rate, _in_us(settings.window), settings.burst or ""


def _in_us(seconds: float) -> int:
    return round(seconds * 1_000_000)
