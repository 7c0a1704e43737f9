"""The line of a target: who is called next, locks, permits, rate, breaker. Runs the scripts of
jobs/lua, reads their replies."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from sidecar.jobs import redis_keys as keys
from sidecar.jobs.store.target_replies import (
    Claim,
    Claimed,
    Ended,
    Held,
    Line,
    Place,
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
from sidecar.kit.errors import StoreError
from sidecar.kit.redis.driver_errors import text
from sidecar.kit.redis.script_store import ScriptStore

if TYPE_CHECKING:
    from sidecar.jobs.settings import TargetSettings
    from sidecar.kit.clock import StoreClock
    from sidecar.kit.redis.connect import Store
    from sidecar.kit.redis.observer import Observer

__all__ = [
    "Claim",
    "Claimed",
    "Ended",
    "Held",
    "Line",
    "Place",
    "Release",
    "TargetStore",
    "Waiting",
]

#: How long a runner's lock lasts from its last renewal on, and how long a place is kept for a job
#: that is being submitted.
LOCK_S = 10
RESERVED_S = 30
#: Jobs in one script call. More would hold Redis too long for the others.
BATCH_LIMIT = 128

Renewed: TypeAlias = Literal["held", "abort", "lost"]
Used: TypeAlias = Literal["ok", "used", "gone"]
#: By the number that the script replies.
_RENEWED: tuple[Renewed, ...] = ("lost", "held", "abort")
_USED: dict[int, Used] = {1: "ok", 0: "used", -1: "gone"}
#: What is asked is not known, because the line was lost.
_UNKNOWN = -2

Item = TypeVar("Item")


class TargetStore(ScriptStore):
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
        super().__init__(redis, "jobs", name, observer=observer, timeout_s=timeout_s)
        self._clock = clock
        self._now_us = now_us
        self._keys = keys.target_keys(name)
        self._state_key, self._reserved_key, self._ended_key = (
            keys.target_key(name, part) for part in ("state", "reserved", "ended")
        )
        self._reserve = Batcher(self._reserve_batch, limit=BATCH_LIMIT)
        self._add = Batcher(self._add_batch, limit=BATCH_LIMIT)
        self._release = Batcher(self._release_batch, limit=BATCH_LIMIT)
        self._look = Batcher(self._look_batch, limit=BATCH_LIMIT)
        self._use: Batcher[tuple[str, int, int, str], Any] = Batcher(
            self._use_batch, limit=BATCH_LIMIT
        )
        self._done: Batcher[tuple[str, int, int], Any] = Batcher(
            self._done_batch, limit=BATCH_LIMIT
        )

    # Submitting and taking back ----------------------------------------------------------------

    async def reserve(self, job: str, class_name: str, settings: TargetSettings) -> int | None:
        """The order of a job that is being submitted, for which a place is kept for RESERVED_S;
        None: the line is full."""
        self._stop_if_away("reserve")
        return await self._reserve.submit((job, class_name, settings))

    async def spend_grant(self, grant_id: str, job: str, until_ms: int) -> bool:
        """Whether the grant of this id is this job's alone. It is remembered until it ends."""
        key = keys.target_key(self._name, f"grant:{grant_id}")

        async def spend() -> bool:
            if await self._redis.set(key, job, nx=True, pxat=until_ms):
                return True
            holder = await self._redis.get(key)
            return holder is not None and text(holder) == job

        return bool(await self._call("spend_grant", spend))

    async def return_grant(self, grant_id: str, job: str) -> None:
        """The job that has it was not submitted after all. What another has stays."""
        key = keys.target_key(self._name, f"grant:{grant_id}")

        async def give_back() -> None:
            holder = await self._redis.get(key)
            if holder is not None and text(holder) == job:
                await self._redis.delete(key)

        await self._call("return_grant", give_back)

    async def unreserve(self, job: str) -> None:
        """It was not submitted after all."""
        await self._call("unreserve", self._redis.zrem, self._reserved_key, job)

    async def add(self, jobs: Sequence[Waiting]) -> list[int | None]:
        """The position of each in the line; None: it is not in it. Whoever is in it, waits for a
        moment or is active stays as they are."""
        return await self._each("add", self._add, jobs)

    async def remove(self, job: str) -> bool:
        """Out of the line, of a reservation, of a call whose permit was not used; what a runner
        has stays, and what used its permit. Whether it was there."""
        return await self._says("remove", job)

    async def abort(self, job: str) -> bool:
        """The runner of a job learns by `renew` that it is to cut it off; False: none has it."""
        return await self._says("abort", job)

    # Calls -------------------------------------------------------------------------------------

    async def claim(self, n: int, settings: TargetSettings) -> Claimed:
        """Who is called now. `n`: how many offline jobs the caller can take; 0: only online ones
        at the head of the line are called."""
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
        """The locks (job, fence) of a runner last LOCK_S from now on. abort: it is to cut the call
        off. lost: somebody else has the job by now."""
        replies: list[int] = []
        for part in _parts(claims):
            args = [in_us(LOCK_S), *(word for claim in part for word in claim)]
            replies += (await self._run("renew", args))[1:]
        return [_RENEWED[reply] for reply in replies]

    async def release(
        self, ends: Sequence[Release], settings: TargetSettings, *, wakes: bool = False
    ) -> list[bool]:
        """Calls are over. False: somebody else had the job by now, and nothing was changed.
        `wakes`: the caller will not claim again, so others are told that there is room."""
        items = [(end, settings.break_after, wakes) for end in ends]
        return await self._each("release", self._release, items)

    async def use(self, job: str, fence: int, settings: TargetSettings, request: str = "") -> Used:
        """Whether an online job may call with its permit, which it may once; whoever asks again for
        the same `request`, where an answer was lost, is told the same. Raises StoreError too where
        the line was lost, and the permit may be a true one."""
        self._stop_if_away("use")
        told: Used = await self._use.submit((job, fence, in_us(settings.timeout), request))
        return told

    async def done(self, job: str, fence: int, *, has_failed: bool = False) -> bool:
        """The call of an online job is over; False: there is no such call. Raises as `use`."""
        self._stop_if_away("done")
        return bool(await self._done.submit((job, fence, int(has_failed))))

    async def look(
        self, jobs: Sequence[str], settings: TargetSettings | None = None
    ) -> tuple[Line, list[Place]]:
        """How the target stands, and where these are. Without settings the calls that count
        against the rate are not known."""
        self._stop_if_away("look")
        return await self._look.submit((jobs, settings))

    # What the keeper does ------------------------------------------------------------------------

    async def ended(self, limit: int = 100) -> list[Ended]:
        """Online jobs that ended by themselves, the first ones."""

        async def first() -> Any:
            return await self._redis.zrange(self._ended_key, 0, limit - 1, withscores=True)

        rows = await self._call("ended", first)
        return [read_ended(row) for row in rows]

    async def forget(self, ended: Sequence[Ended]) -> None:
        """They were seen to."""
        if ended:
            members = [f"{job}~{why}" for job, why, _ in ended]
            await self._call("forget", self._redis.zrem, self._ended_key, *members)

    async def waiting_ids(self) -> AsyncIterator[list[str]]:
        """Those in the line and those that wait elsewhere, some at a time, perhaps twice."""
        for name in ("line", "later"):
            cursor = 0
            while True:
                key = keys.target_key(self._name, name)
                cursor, rows = await self._call(
                    "waiting_ids", self._redis.zscan, key, cursor, None, BATCH_LIMIT
                )
                yield [text(member) for member, _ in rows]
                if not cursor:
                    break

    async def hold(self, jobs: Sequence[Held]) -> None:
        """After a loss: these are active, whatever else they are."""
        for part in _parts(jobs):
            words = [(j.id, j.fence, j.order, j.ends_ms * 1000, j.word) for j in part]
            await self._run("hold", [word for row in words for word in row])

    async def ready(self, wait_us: int, born_us: int = 0) -> bool:
        """The line is built again, and calls are made from then on. `born_us` is of the claim that
        found it lost; False: it was lost again since."""
        return await self._says("ready", wait_us, born_us or "")

    async def is_ready(self) -> bool:
        return bool(await self._call("is_ready", self._redis.hexists, self._state_key, "ready"))

    # How -----------------------------------------------------------------------------------------

    async def _reserve_batch(
        self, items: Sequence[tuple[str, str, TargetSettings]]
    ) -> list[int | None]:
        args: list[Any] = [in_us(RESERVED_S)]
        for job, class_name, settings in items:
            most = "" if settings.max_pending is None else settings.max_pending
            args += (job, most, *class_words(settings, class_name))
        _, *orders = await self._run("reserve", args, batch=len(items))
        return [order if isinstance(order, int) else None for order in orders]

    async def _add_batch(self, items: Sequence[Waiting]) -> list[int | None]:
        args: list[Any] = []
        for job in items:
            later = "" if job.not_before_ms is None else job.not_before_ms * 1000
            args += (job.id, job.order, int(job.is_online), later)
        _, *positions = await self._run("add", args, batch=len(items))
        return [position or None for position in positions]

    async def _release_batch(self, items: Sequence[tuple[Release, int, bool]]) -> list[bool]:
        args: list[Any] = [int(any(wakes for *_, wakes in items))]
        for end, break_after, _ in items:
            args += (end.id, end.fence, end.how, end.took_us)
            args += ("" if ms is None else ms * 1000 for ms in (end.again_ms, end.hold_ms))
            args.append(break_after)
        _, *replies = await self._run("release", args, batch=len(items))
        return [reply == 1 for reply in replies]

    async def _use_batch(
        self, items: Sequence[tuple[str, int, int, str]]
    ) -> list[Used | StoreError]:
        _, *replies = await self._run("use", [w for item in items for w in item], batch=len(items))
        return [_lost("use") if reply == _UNKNOWN else _USED[reply] for reply in replies]

    async def _done_batch(self, items: Sequence[tuple[str, int, int]]) -> list[bool | StoreError]:
        _, *replies = await self._run("done", [w for item in items for w in item], batch=len(items))
        return [_lost("done") if reply == _UNKNOWN else reply == 1 for reply in replies]

    async def _look_batch(
        self, items: Sequence[tuple[Sequence[str], TargetSettings | None]]
    ) -> list[tuple[Line, list[Place]]]:
        """By the settings of the last who gave some: they are the same, or new."""
        settings = next((given for _, given in reversed(items) if given is not None), None)
        wanted = [job for jobs, _ in items for job in jobs]
        places: list[Place] = []
        for part in list(_parts(wanted)) or [()]:
            args = [*rate_words(settings), *part]
            reply = await self._run("look", args, settings, batch=len(items))
            line, found = read_look(reply)
            places += found
        told = []
        for jobs, _ in items:
            told.append((line, places[: len(jobs)]))
            del places[: len(jobs)]
        return told

    async def _each(self, verb: str, batcher: Batcher[Any, Any], items: Sequence[Any]) -> list[Any]:
        self._stop_if_away(verb)
        if len(items) == 1:
            return [await batcher.submit(items[0])]
        return await asyncio.gather(*map(batcher.submit, items))

    async def _says(self, name: str, *args: Any) -> bool:
        _, reply = await self._run(name, args)
        return bool(reply)

    async def _run(
        self,
        name: str,
        args: Sequence[Any],
        settings: TargetSettings | None = None,
        *,
        batch: int = 0,
    ) -> Any:
        """The reply of a script; of one that goes by the rate, which the `settings` say."""
        named = self._keys
        if settings is not None and settings.rate is not None:
            named = [*named, keys.target_key(self._name, f"rate.{settings.algorithm}")]
        now = "" if self._now_us is None else self._now_us()
        args = [now, keys.JOBS_CHANNEL, self._name, *args]
        reply = await self._call(name, self._scripts.run, name, named, args, batch=batch)
        self._clock.observe(reply[0] // 1000)
        return reply


def _lost(verb: str) -> StoreError:
    return StoreError(f"{verb}: the line was lost, and is being built again")


def _parts(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    """As much as one script call should do."""
    for start in range(0, len(items), BATCH_LIMIT):
        yield items[start : start + BATCH_LIMIT]
