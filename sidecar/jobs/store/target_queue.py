"""The queue of a target: who is called next, locks, permits, rate, breaker. Runs the scripts of
jobs/lua, and reads their replies."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any, Literal, TypeAlias, TypeVar

from sidecar.jobs import redis_keys as keys
from sidecar.jobs.settings import TargetSettings
from sidecar.jobs.store.target_replies import (
    Claimed,
    Ended,
    Held,
    Place,
    QueueState,
    Release,
    Waiting,
    class_words,
    in_us,
    rate_words,
    read_claimed,
    read_ended,
    read_look,
)
from sidecar.kit.batch import Batcher
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

Item = TypeVar("Item")
Row: TypeAlias = tuple[Any, ...]
Look: TypeAlias = tuple[Sequence[str], "TargetSettings | None"]


class TargetStore:
    """The scripts of one target. `settings` are as they are now, at each call. `now_us` overrides
    the store's time (tests)."""

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
        self._reserve = self._batched("reserve", in_us(RESERVED_S))
        self._add = self._batched("add")
        self._release = self._batched("release", 0)
        self._release_and_wake = self._batched("release", 1)
        self._use = self._batched("use")
        self._done = self._batched("done")
        self._look = Batcher(self._look_batch, limit=BATCH_LIMIT)

    @property
    def is_away(self) -> bool:
        return self._scripts.is_away

    # Submitting and taking back ----------------------------------------------------------------

    async def reserve(self, job: str, class_name: str, settings: TargetSettings) -> int | None:
        """The order of a job that is being submitted, for which a place is kept for RESERVED_S;
        None: the queue is full."""
        most = "" if settings.max_pending is None else settings.max_pending
        order = await self._reserve((job, most, *class_words(settings, class_name)))
        return order if isinstance(order, int) else None

    async def unreserve(self, job: str) -> None:
        """It was not submitted after all."""
        await self._scripts.command("unreserve", self._redis.zrem, self._key("reserved"), job)

    async def spend_grant(self, grant_id: str, job: str, until_ms: int) -> bool:
        """Whether the grant of this id is this job's alone. It is remembered until it ends."""
        key = self._key(f"grant:{grant_id}")

        async def spend() -> bool:
            is_new = await self._redis.set(key, job, nx=True, pxat=until_ms)
            return is_new or await self._is_of(key, job)

        return bool(await self._scripts.command("spend_grant", spend))

    async def return_grant(self, grant_id: str, job: str) -> None:
        """The job that has it was not submitted after all. What another has stays."""
        key = self._key(f"grant:{grant_id}")

        async def give_back() -> None:
            if await self._is_of(key, job):
                await self._redis.delete(key)

        await self._scripts.command("return_grant", give_back)

    async def _is_of(self, key: str, job: str) -> bool:
        holder = await self._redis.get(key)
        return holder is not None and text(holder) == job

    async def add(self, jobs: Sequence[Waiting]) -> list[int | None]:
        """The position of each in the queue; None: it is not in it. A job that is in it, waits for
        a moment or is active stays as it is."""
        rows = [(job.id, job.order, int(job.is_online), _us(job.not_before_ms)) for job in jobs]
        return [position or None for position in await asyncio.gather(*map(self._add, rows))]

    async def remove(self, job: str) -> bool:
        """Out of the queue, of a reservation, of a call whose permit was not used; what a worker
        has stays, and what used its permit. Whether it was there."""
        _, found = await self._run("remove", [job])
        return bool(found)

    async def abort(self, job: str) -> bool:
        """The worker of a job learns by `renew` that it is to cut it off; False: none has it."""
        _, found = await self._run("abort", [job])
        return bool(found)

    # Calls -------------------------------------------------------------------------------------

    async def claim(self, n: int, settings: TargetSettings) -> Claimed:
        """Which jobs are called now. `n`: how many offline jobs the worker can take; 0: only online
        ones at the head of the queue are called."""
        args = [
            *rate_words(settings),
            n,
            settings.concurrency,
            int(settings.paused),
            in_us(LOCK_S),
            in_us(settings.claim_window),
        ]
        began = time.perf_counter()
        claimed = read_claimed(await self._run("claim", args, settings))
        if size := len(claimed.claims):
            self._observer.batch(self._name, "claim", size, time.perf_counter() - began)
        return claimed

    async def renew(self, claims: Sequence[tuple[str, int]]) -> list[Renewed]:
        """The locks (job, fence) of a worker last LOCK_S from now on. abort: it is to cut the call
        off. lost: another worker has the job by now."""
        replies: list[int] = []
        for part in _parts(claims):
            replies += (await self._run("renew", [in_us(LOCK_S), *chain(*part)]))[1:]
        return [_RENEWED[reply] for reply in replies]

    async def release(
        self, ends: Sequence[Release], settings: TargetSettings, *, wakes: bool = False
    ) -> list[bool]:
        """Calls are over. False: another worker had the job by now, and nothing was changed.
        `wakes`: this worker will not claim again, so others are woken: there is room."""
        release = self._release_and_wake if wakes else self._release
        rows = [
            (
                end.id,
                end.fence,
                end.how,
                end.took_us,
                _us(end.again_ms),
                _us(end.hold_ms),
                settings.break_after,
            )
            for end in ends
        ]
        return [reply == 1 for reply in await asyncio.gather(*map(release, rows))]

    async def use(self, job: str, fence: int, settings: TargetSettings, request: str = "") -> Used:
        """Whether an online job may call with its permit, which it may once; the same `request`
        again, where a response was lost, gets the same reply. Raises StoreError too while the queue
        is lost, when the permit may be valid."""
        reply = await self._use((job, fence, in_us(settings.timeout), request))
        return _USED[_known("use", reply)]

    async def done(self, job: str, fence: int, *, has_failed: bool = False) -> bool:
        """The call of an online job is over; False: the call is unknown. Raises as `use`."""
        return _known("done", await self._done((job, fence, int(has_failed)))) == 1

    async def look(
        self, jobs: Sequence[str], settings: TargetSettings | None = None
    ) -> tuple[QueueState, list[Place]]:
        """The state of the target, and where these jobs are. Without settings the calls that count
        against the rate are unknown."""
        self._scripts.raise_if_away("look")
        return await self._look.submit((jobs, settings))

    # For the reconciler ------------------------------------------------------------------------

    async def ended(self, limit: int = 100) -> list[Ended]:
        """Online jobs that ended by themselves, the first ones."""
        first = partial(self._redis.zrange, self._key("ended"), 0, limit - 1, withscores=True)
        return [read_ended(row) for row in await self._scripts.command("ended", first)]

    async def forget(self, ended: Sequence[Ended]) -> None:
        """Acknowledges what `ended` returned."""
        if ended:
            members = [f"{job}~{reason}" for job, reason, _ in ended]
            await self._scripts.command("forget", self._redis.zrem, self._key("ended"), *members)

    async def waiting_ids(self) -> AsyncIterator[list[str]]:
        """Jobs in the queue, and those that wait elsewhere, some at a time, perhaps twice."""
        for name in ("line", "later"):
            cursor = 0
            while True:
                scan = partial(self._redis.zscan, self._key(name), cursor, count=BATCH_LIMIT)
                cursor, rows = await self._scripts.command("waiting_ids", scan)
                yield [text(member) for member, _ in rows]
                if not cursor:
                    break

    async def hold(self, jobs: Sequence[Held]) -> None:
        """After a loss: these are active, whatever else they are."""
        for part in _parts(jobs):
            rows = ((job.id, job.fence, job.order, _us(job.ends_ms), job.word) for job in part)
            await self._run("hold", [*chain(*rows)])

    async def ready(self, wait_us: int, born_us: int = 0) -> bool:
        """The queue is built again, and calls are made from then on. `born_us` is of the claim that
        found it lost; False: it was lost again since."""
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
        """A script that takes any number of rows after its `first` arguments: what replies to one
        row. Rows that come at the same time go together."""

        async def run(rows: Sequence[Row]) -> list[Any]:
            reply: list[Any] = await self._run(verb, [*first, *chain(*rows)], batch=len(rows))
            return reply[1:]

        batcher = Batcher(run, limit=BATCH_LIMIT)

        def submit(row: Row) -> asyncio.Future[Any]:
            self._scripts.raise_if_away(verb)
            return batcher.submit(row)

        return submit

    async def _look_batch(self, items: Sequence[Look]) -> list[tuple[QueueState, list[Place]]]:
        """By the settings of the last caller that gave some: they are the same, or new."""
        settings = next((given for _, given in reversed(items) if given is not None), None)
        wanted = [job for jobs, _ in items for job in jobs]
        places: list[Place] = []
        for part in list(_parts(wanted)) or [()]:
            reply = await self._run(
                "look", [*rate_words(settings), *part], settings, batch=len(items)
            )
            state, found = read_look(reply)
            places += found
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
        """The reply of a script; one that goes by the rate needs the `settings`."""
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
    """As much as one script call should do."""
    for start in range(0, len(items), BATCH_LIMIT):
        yield items[start : start + BATCH_LIMIT]
