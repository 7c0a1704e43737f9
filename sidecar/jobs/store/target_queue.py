"""Accesses the queue of a target in Redis: the order of its jobs, locks, permits, the rate limit
and the circuit breaker. Runs the scripts of jobs/lua. Times in ms are by the clock of Redis."""

import asyncio
import json
import time
from bisect import bisect_left
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, pairwise, starmap
from operator import sub
from typing import Any, Literal, NamedTuple, TypeAlias

from sidecar.jobs import redis_keys as keys
from sidecar.jobs.model import AttemptEnd, QueueEntry
from sidecar.jobs.settings import TargetSettings
from sidecar.kit.batch import CallBatcher
from sidecar.kit.clock import StoreClock
from sidecar.kit.errors import StoreError
from sidecar.storage.redis.connect import Store
from sidecar.storage.redis.driver_errors import text
from sidecar.storage.redis.scripts import Observer, RedisScripts

#: How long a worker's lock lasts after its last renewal, and how long a place is reserved for a job
#: that is being submitted, in seconds.
LOCK_S = 10
RESERVATION_S = 30
#: The maximum number of jobs in one script call. More would block Redis for too long.
BATCH_LIMIT = 128

LockState: TypeAlias = Literal["held", "abort", "lost"]
PermitUse: TypeAlias = Literal["ok", "used", "over"]
#: The states of a lock and uses of a permit, by the number that the script returns.
_LOCK_STATES: tuple[LockState, ...] = ("lost", "held", "abort")
_PERMIT_USES: dict[int, PermitUse] = {1: "ok", 0: "used", -1: "over"}
#: The number that the scripts return for a call that is unknown because the queue was lost.
_UNKNOWN = -2
_COUNTERS = ("called", "completed", "failed", "retried", "lost", "expired")
#: How many values of a reply describe the queue. The values of jobs follow.
_STATE_LENGTH = 12 + len(_COUNTERS)

Row: TypeAlias = tuple[Any, ...]
#: An online job that timed out: id, what timed out (unused: permit, term: call), and when, in ms.
TimedOutCall: TypeAlias = tuple[str, Literal["unused", "term"], int]


class Claim(NamedTuple):
    """A job that may be called now: by a worker, or by the client whose permit has this `fence`."""

    id: str
    fence: int
    order: int
    is_online: bool
    #: Whether the call tests if the circuit breaker can be closed. No other call runs meanwhile.
    is_trial: bool


class ClaimReply(NamedTuple):
    claims: list[Claim]
    #: In how many seconds to claim again, or None to wait for the next wake-up.
    next_s: float | None
    #: False if the queue is new or was lost. Then no job is called until the queue is rebuilt.
    is_ready: bool
    #: When the queue was first seen to be new or lost, in µs, for `mark_ready`. 0 if it is ready.
    detected_us: int = 0


class QueuePlace(NamedTuple):
    """Where a job is in its target's queue. `later`: it must wait until `ends_ms`. `used`: its
    permit is used, so its call runs. `gone`: the queue does not have the job."""

    where: Literal["line", "later", "called", "running", "used", "gone"]
    #: The position in the queue; 1 is next. None unless `where` is "line".
    position: int | None = None
    fence: int = 0
    #: When the job's lock, permit, call or pause ends.
    ends_ms: int | None = None


@dataclass(frozen=True, slots=True)
class QueueState:
    now_ms: int
    waiting: int
    later: int
    active: int
    reserved: int
    #: The moving average of the durations of answered calls, in seconds. None: not measured yet.
    mean_s: float | None
    #: The calls that count against the rate. 0 without a rate.
    calls_in_window: int
    breaker: Literal["closed", "open", "trial"]
    #: When the breaker allows calls again, and when Retry-After does. None if they are allowed now.
    open_until_ms: int | None
    held_until_ms: int | None
    is_ready: bool
    #: When a worker last asked for jobs, to the second.
    runner_ms: int | None = None
    #: The numbers of calls since Redis was empty, by the names in _COUNTERS.
    counters: dict[str, int] = field(default_factory=dict)

    @property
    def is_idle(self) -> bool:
        """Return True if no job waits or is called."""
        return not (self.waiting or self.later or self.active)


class TargetStore:
    """The queue of one target. `settings` are the target's current ones. `now_us` overrides the
    time of Redis, in tests. Every method raises StoreError if Redis is unavailable."""

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
        self._reserve = self._make_batcher("reserve", _to_us(RESERVATION_S))
        self._add = CallBatcher(self._add_batch, limit=BATCH_LIMIT)
        self._release = self._make_batcher("release", 0)
        self._release_and_wake = self._make_batcher("release", 1)
        self._use = self._make_batcher("use")
        self._done = self._make_batcher("done")
        self._look = CallBatcher(self._inspect_batch, limit=BATCH_LIMIT)

    async def reserve(
        self, job: str, class_name: str, settings: TargetSettings, *, due_ms: int | None = None
    ) -> int | None:
        """Reserve a job's place for RESERVATION_S. Return its order, or None if the queue is full.
        A job that must wait until `due_ms` gets the order of a job that arrives then."""
        max_pending = "" if settings.max_pending is None else settings.max_pending
        classes = ""
        if class_name:
            rules = {"head_start", "priority"}
            classes = json.dumps(
                {name: item.model_dump(include=rules) for name, item in settings.classes.items()}
            )
        due_us = _to_us_or_empty(due_ms)
        order = await self._reserve((job, max_pending, class_name, classes, due_us))
        return order if isinstance(order, int) else None

    async def unreserve(self, job: str) -> None:
        """Remove the reservation of a job whose submission failed."""
        await self._scripts.command("unreserve", self._redis.zrem, self._make_key("reserved"), job)

    async def spend_grant(self, grant_id: str, job: str, until_ms: int) -> bool:
        """Mark a grant as used until it expires. Return False if another job has used it."""
        key = self._make_key(f"grant:{grant_id}")

        async def spend() -> bool:
            is_new = await self._redis.set(key, job, nx=True, pxat=until_ms)
            return is_new or text(await self._redis.get(key) or b"") == job

        return bool(await self._scripts.command("spend_grant", spend))

    async def return_grant(self, grant_id: str, job: str) -> None:
        """Make a grant usable again, if this job used it."""
        key = self._make_key(f"grant:{grant_id}")

        async def give_back() -> None:
            if text(await self._redis.get(key) or b"") == job:
                await self._redis.delete(key)

        await self._scripts.command("return_grant", give_back)

    async def add(
        self, jobs: Sequence[QueueEntry], settings: TargetSettings
    ) -> list[tuple[QueueState, QueuePlace]]:
        """Add jobs to the queue, except jobs that already wait or are active. For each job,
        return the queue's state and the job's place afterwards."""
        self._scripts.raise_if_away("add")
        return await asyncio.gather(*(self._add.submit((job, settings)) for job in jobs))

    async def remove(self, job: str) -> bool:
        """Remove a job that waits, is being submitted, or has not used its permit. Return False if
        the queue has no such job, or the job's call has begun."""
        _, is_removed = await self._run("remove", [job])
        return bool(is_removed)

    async def scan_waiting_jobs(self) -> AsyncIterator[list[str]]:
        """Yield batches of the ids of all waiting jobs. An id may come twice."""
        for name in ("line", "later"):
            cursor = -1
            while cursor:
                scan = partial(
                    self._redis.zscan, self._make_key(name), max(0, cursor), count=BATCH_LIMIT
                )
                cursor, rows = await self._scripts.command("waiting_ids", scan)
                yield [text(member) for member, _ in rows]

    async def inspect(
        self, jobs: Sequence[str], settings: TargetSettings
    ) -> tuple[QueueState, list[QueuePlace]]:
        """Return the queue's state and the places of these jobs, in the same order."""
        self._scripts.raise_if_away("look")
        return await self._look.submit((jobs, settings))

    async def count_ended_calls(
        self, times_ms: Sequence[int], settings: TargetSettings
    ) -> list[tuple[int, ...] | None]:
        """Return, for each two adjacent times, how many calls were completed, failed and retried
        between them, to the minute. None before the first record. Of the minutes in which counters
        changed, the last 1,440 are recorded."""
        state, _ = await self.inspect([], settings)
        read = partial(self._redis.lrange, self._make_key("minutes"), 0, -1)
        rows = await self._scripts.command("minutes", read)
        samples = sorted(tuple(map(int, text(row).split())) for row in rows)
        minutes = [minute * 60_000 for minute, *_ in samples]
        totals = [tuple(sample[1:]) for sample in samples]
        totals.append(tuple(state.counters[name] for name in ("completed", "failed", "retried")))

        def count_between(begin_ms: int, end_ms: int) -> tuple[int, ...] | None:
            if not minutes or end_ms <= minutes[0]:
                return None
            before, after = (totals[bisect_left(minutes, at)] for at in (begin_ms, end_ms))
            return tuple(max(0, n) for n in map(sub, after, before))

        return list(starmap(count_between, pairwise(times_ms)))

    async def claim(self, free_slots: int, settings: TargetSettings) -> ClaimReply:
        """Call as many jobs as the target allows, but at most `free_slots` offline jobs. With 0
        slots, only online jobs at the head of the queue are called."""
        args = [
            *_make_rate_args(settings),
            free_slots,
            settings.concurrency,
            int(settings.paused),
            _to_us(LOCK_S),
            _to_us(settings.claim_window),
        ]
        began = time.perf_counter()
        now, ready, again_us, detected_us, *values = await self._run("claim", args, settings)
        claims = [
            Claim(text(job), fence, order, is_online == 1, is_trial == 1)
            for job, fence, order, is_online, is_trial in _cut_into_rows(values, 5)
        ]
        if claims:
            self._observer.batch(self._name, "claim", len(claims), time.perf_counter() - began)
        next_s = None if again_us < 0 else max(0, again_us - now) / 1_000_000
        return ClaimReply(claims, next_s, ready == 1, detected_us)

    async def renew(self, claims: Sequence[tuple[str, int]]) -> list[LockState]:
        """Renew a worker's locks on jobs, given as (id, fence), for LOCK_S. Return the state of
        each lock: held, abort (the worker must abort the call), or lost (to another worker)."""
        replies: list[int] = []
        for part in _cut_into_parts(claims):
            replies += (await self._run("renew", [_to_us(LOCK_S), *chain(*part)]))[1:]
        return [_LOCK_STATES[reply] for reply in replies]

    async def abort(self, job: str) -> bool:
        """Ask a job's worker to abort the call. Return False if no worker has the job."""
        _, is_running = await self._run("abort", [job])
        return bool(is_running)

    async def release(
        self, endings: Sequence[AttemptEnd], settings: TargetSettings, *, wake_others: bool = False
    ) -> list[bool]:
        """End calls. For each, return True, or False if another worker has the job by now.
        `wake_others` wakes the other workers, because this worker will not claim again."""
        rows = [
            (
                ending.id,
                ending.fence,
                ending.outcome,
                ending.took_us,
                _to_us_or_empty(ending.not_before_ms),
                _to_us_or_empty(ending.hold_ms),
            )
            for ending in endings
        ]
        return await self._release_rows(rows, settings, wake_others=wake_others)

    async def drop(
        self,
        calls: Iterable[tuple[str, int]],
        settings: TargetSettings,
        *,
        retry_ms: int | None = None,
        wake_others: bool = False,
    ) -> None:
        """Release calls without a result. `calls` has (id, fence) of the jobs. They return to the
        queue at `retry_ms`, or leave it if that is None. `release` explains `wake_others`."""
        rows = [(job, fence, "gone", 0, _to_us_or_empty(retry_ms), "") for job, fence in calls]
        await self._release_rows(rows, settings, wake_others=wake_others)

    async def _release_rows(
        self, rows: Sequence[Row], settings: TargetSettings, *, wake_others: bool
    ) -> list[bool]:
        release = self._release_and_wake if wake_others else self._release
        replies = [release((*row, settings.break_after)) for row in rows]
        return [reply == 1 for reply in await asyncio.gather(*replies)]

    async def use_permit(
        self, job: str, fence: int, settings: TargetSettings, request: str = ""
    ) -> PermitUse:
        """Use the permit of an online job, which is valid for one call. If a response was lost,
        the same `request` (an id) may use the permit again. Raises StoreError if Redis fails, or if
        the queue was lost and is not rebuilt yet, because the permit may still be valid."""
        reply = await self._use((job, fence, _to_us(settings.timeout), request))
        return _PERMIT_USES[_raise_if_unknown("use", reply)]

    async def end_call(self, job: str, fence: int, *, has_failed: bool = False) -> bool:
        """End the call of an online job. Return False if Redis has no such call. Raises StoreError
        if Redis fails, or if the queue was lost and is not rebuilt yet."""
        return _raise_if_unknown("done", await self._done((job, fence, int(has_failed)))) == 1

    async def read_timed_out_calls(self, limit: int = 100) -> list[TimedOutCall]:
        """Return the timed-out calls of online jobs, the earliest first."""
        read = partial(self._redis.zrange, self._make_key("ended"), 0, limit - 1, withscores=True)
        calls: list[TimedOutCall] = []
        for member, at_us in await self._scripts.command("ended", read):
            job, _, reason = text(member).rpartition("~")
            calls.append((job, "unused" if reason == "unused" else "term", int(at_us) // 1000))
        return calls

    async def forget_timed_out_calls(self, calls: Sequence[TimedOutCall]) -> None:
        """Remove timed-out calls from Redis. Their jobs must have ended in SQL."""
        if calls:
            members = [f"{job}~{reason}" for job, reason, _ in calls]
            await self._scripts.command(
                "forget", self._redis.zrem, self._make_key("ended"), *members
            )

    async def restore(self, calls: Sequence[Row]) -> None:
        """Make calls active that Redis lost, given as rows of make_restored_call()."""
        for part in _cut_into_parts(calls):
            await self._run("hold", [*chain(*part)])

    async def mark_ready(self, wait_us: int, detected_us: int = 0) -> bool:
        """Mark the queue as rebuilt, and allow calls after `wait_us`. `detected_us` is from the
        reply to the claim that found the queue lost. Return False if it was lost again since."""
        _, is_ready = await self._run("ready", [wait_us, detected_us or ""])
        return bool(is_ready)

    async def is_ready(self) -> bool:
        read = partial(self._redis.hexists, self._make_key("state"), "ready")
        return bool(await self._scripts.command("is_ready", read))

    def _make_key(self, name: str) -> str:
        return keys.target_key(self._name, name)

    def _make_batcher(self, script: str, *first_args: Any) -> Callable[[Row], asyncio.Future[Any]]:
        """Return a function that sends one row to a script, which takes any number of rows after
        `first_args`. Rows that are sent at the same time share one call of the script."""

        async def run(rows: Sequence[Row]) -> list[Any]:
            reply: list[Any] = await self._run(
                script, [*first_args, *chain(*rows)], batch=len(rows)
            )
            return reply[1:]

        batcher = CallBatcher(run, limit=BATCH_LIMIT)

        def submit(row: Row) -> asyncio.Future[Any]:
            self._scripts.raise_if_away(script)
            return batcher.submit(row)

        return submit

    async def _add_batch(
        self, requests: Sequence[tuple[QueueEntry, TargetSettings]]
    ) -> list[tuple[QueueState, QueuePlace]]:
        _, settings = requests[-1]
        rows = (
            (job.id, job.order, int(job.is_online), _to_us_or_empty(job.not_before_ms))
            for job, _ in requests
        )
        args = [*_make_rate_args(settings), *chain(*rows)]
        state, places = _read_queue(await self._run("add", args, settings, batch=len(requests)))
        return [(state, place) for place in places]

    async def _inspect_batch(
        self, requests: Sequence[tuple[Sequence[str], TargetSettings]]
    ) -> list[tuple[QueueState, list[QueuePlace]]]:
        _, settings = requests[-1]
        all_jobs = [job for jobs, _ in requests for job in jobs]
        places: list[QueuePlace] = []
        for part in list(_cut_into_parts(all_jobs)) or [()]:
            args = [*_make_rate_args(settings), *part]
            state, found = _read_queue(await self._run("look", args, settings, batch=len(requests)))
            places += found
        next_places = iter(places)
        return [(state, [next(next_places) for _ in jobs]) for jobs, _ in requests]

    async def _run(
        self,
        script: str,
        args: Sequence[Any],
        settings: TargetSettings | None = None,
        *,
        batch: int = 0,
    ) -> Any:
        """Run a script and return its reply. Scripts that include parts/rate.lua need `settings`.
        `batch` is the number of requests in the call, 0 if the script takes only one."""
        script_keys = self._keys
        if settings is not None and settings.rate is not None:
            script_keys = [*script_keys, self._make_key(f"rate.{settings.algorithm}")]
        args = [keys.JOBS_CHANNEL, self._name, *args]
        return await self._scripts.call(script, script_keys, args, batch=batch)


def _raise_if_unknown(script: str, reply: int) -> int:
    if reply == _UNKNOWN:
        raise StoreError(f"{script}: the queue was lost, and is being built again")
    return reply


def _to_us_or_empty(ms: int | None) -> int | str:
    return "" if ms is None else ms * 1000


def _to_us(seconds: float) -> int:
    return round(seconds * 1_000_000)


def _to_ms_if_after(now_us: int, at_us: int) -> int | None:
    return at_us // 1000 if at_us > now_us else None


def _cut_into_parts(values: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """Cut values into parts that are small enough for one script call."""
    for start in range(0, len(values), BATCH_LIMIT):
        yield values[start : start + BATCH_LIMIT]


def _cut_into_rows(values: Sequence[Any], width: int) -> Iterator[Row]:
    yield from zip(*(iter(values),) * width, strict=True)


def _read_queue(reply: Sequence[Any]) -> tuple[QueueState, list[QueuePlace]]:
    """Parse a reply of jobs/lua/parts/look.lua. Return the queue's state and the jobs' places."""
    now, waiting, later, active, reserved, mean, calls = reply[:7]
    breaker, opens, held, ready, runner, *counts = reply[7:_STATE_LENGTH]
    state = QueueState(
        now // 1000,
        waiting,
        later,
        active,
        reserved,
        None if mean < 0 else mean / 1_000_000,
        calls,
        text(breaker),  # type: ignore[arg-type] # one of the three
        _to_ms_if_after(now, opens),
        _to_ms_if_after(now, held),
        ready == 1,
        _to_ms_if_after(0, runner),
        dict(zip(_COUNTERS, counts, strict=True)),
    )
    places = [
        QueuePlace(text(where), position or None, fence, _to_ms_if_after(0, ends))  # type: ignore[arg-type]
        for where, position, fence, ends in _cut_into_rows(reply[_STATE_LENGTH:], 4)
    ]
    return state, places


def _make_rate_args(settings: TargetSettings) -> tuple[int | str, ...]:
    """Return the arguments of jobs/lua/parts/rate.lua."""
    if settings.rate is None:
        return "", "", "", ""
    return settings.algorithm, settings.rate, _to_us(settings.counted_window), settings.burst or ""
