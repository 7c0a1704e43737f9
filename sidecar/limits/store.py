"""One rate limit's state in Redis: calls the scripts of limits/lua and reads their replies."""

import asyncio
import re
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from itertools import count
from typing import Any

from sidecar.kit.batch import CallBatcher
from sidecar.kit.errors import StoreError, StoreUnavailableError
from sidecar.limits import redis_keys as keys
from sidecar.limits.model import Call, Decision, Outcome
from sidecar.limits.settings import MAX_COST, UNLIMITED, LimitSettings
from sidecar.storage.redis.connect import Store
from sidecar.storage.redis.driver_errors import text
from sidecar.storage.redis.scripts import Observer, RedisScripts

#: The most calls in one script call. More would block Redis for too long.
BATCH_LIMIT = 128
#: The most cost in one script call if each unit is a member of a set, because Lua can pass only
#: some thousands of arguments to a command.
UNITS_LIMIT = 1_000
#: The most permits with lost replies to remember, until Redis is available and can release them.
LOST_LIMIT = 1_000

#: How many keys one SCAN checks, and how many SCANs one search makes.
SCAN_COUNT = 1_000
SCANS = 10

#: Constants, because reading a member of an enumeration takes longer.
_GRANTED, _PACED = Outcome.GRANTED, Outcome.PACED
_REFUSED, _UNLIMITED = Outcome.REFUSED, Outcome.UNLIMITED
_BUCKETS = {"token_bucket", "leaky_bucket"}
#: The algorithms whose state is a set with a member for each unit of cost.
_SETS = {"sliding_window", "concurrency"}
#: The pattern of a permit: its cost and id. An id that begins with ~ was made by a replica.
_PERMIT = re.compile(r"([1-9][0-9]{0,3})~(~?[A-Za-z0-9._:@+-]{1,64})\Z")
#: A permit to release: key, permit, cost, and whether a replica made its id.
_Permit = tuple[str, str, int, bool]


class LimitStore:
    """The state of one limit in Redis. Keys, costs and ids must be valid already. Tests pass
    `now_us` to replace Redis' clock."""

    def __init__(  # noqa: PLR0913
        self,
        redis: Store,
        name: str,
        *,
        settings: LimitSettings,
        observer: Observer | None = None,
        now_us: Callable[[], int] | None = None,
        timeout_s: float = 1.0,
    ) -> None:
        self._redis: Any = redis
        self._name = name
        self._scripts = RedisScripts(
            redis, "limits", name, observer=observer, timeout_s=timeout_s, now=now_us
        )
        self._settings = settings
        self._values_key = keys.limit_values_key(name)
        self._limit = UNLIMITED if settings.limit is None else settings.limit
        self._values = settings.values
        self._is_paced = settings.on_exceed == "pace"
        self._makes_ids = self._is_paced or settings.algorithm == "concurrency"
        replica = secrets.token_hex(6)
        self._new_ids = (f"~{replica}.{number:x}" for number in count())
        length_s = settings.lease if settings.window is None else settings.window
        self._args = [
            _to_us(length_s),
            settings.burst or "",
            _to_us(settings.max_wait) if self._is_paced else 0,
            _to_us(settings.idempotency_window),
        ]
        self._acquire = CallBatcher(self.acquire_each, limit=BATCH_LIMIT)
        self._release = CallBatcher(self._release_batch, limit=BATCH_LIMIT)
        #: Permits that may have been granted, but whose replies were lost.
        self._lost_permits: deque[_Permit] = deque(maxlen=LOST_LIMIT)
        self._release_task: asyncio.Task[None] | None = None

    @property
    def is_away(self) -> bool:
        return self._scripts.is_away

    async def acquire(self, call: Call) -> Decision:
        """Decide on one call, and count it unless it is refused."""
        self._scripts.raise_if_away("acquire")
        result = await self._acquire.submit(call)
        if isinstance(result, StoreError):
            raise result
        return result

    async def acquire_each(self, calls: Sequence[Call]) -> list[Decision | StoreError]:
        """Decide on many calls, in their order. If Redis stops answering half way, return the
        error for each call without an answer."""
        results: list[Decision | StoreError] = []
        try:
            for part in self._split(calls):
                results += await self._decide(part)
        except StoreError as error:
            results += [error] * (len(calls) - len(results))
        except BaseException:
            for call, result in zip(calls, results, strict=False):
                if isinstance(result, Decision) and "~~" in result.permit:
                    self._lost_permits.append((call.key, result.permit, call.cost, True))
            raise
        return results

    async def peek(self, key: str) -> Decision:
        """Return the decision that a call of cost 1 would get now, without counting a call."""
        [decision] = await self._decide([Call(key)], is_peek=True)
        return decision

    async def release(self, key: str, permit: str) -> bool:
        """Release a permit of `concurrency`, or a paced permit whose time has not come, so that the
        next call may have it. Return False if there was nothing to release."""
        match = _PERMIT.match(permit)
        if match is None or int(match[1]) > MAX_COST:
            return False
        self._scripts.raise_if_away("release")
        return await self._release.submit((key, permit, int(match[1]), match[2][0] == "~"))

    async def read_values(self) -> dict[str, int]:
        """Return the limits that were set at run time, by key."""
        command = self._scripts.command("values", self._redis.hgetall, self._values_key)
        values = await self._run(command)
        return {text(key): int(limit) for key, limit in values.items()}

    async def set_value(self, key: str, limit: int | None) -> None:
        """Set a key's limit from the next call on, or reset the limit to the configured value if
        None. Paced calls keep their times."""
        names = ["", ".free", ".booked"] if self._is_paced else [""]
        args = [
            key,
            "" if limit is None else limit,
            self._get_configured_limit(key),
            self._args[0] if self._settings.algorithm in _BUCKETS else 0,
            int(self._settings.algorithm in _SETS),
        ]
        redis_keys = [self._values_key, *self._make_keys(key, names)]
        await self._run(self._scripts.call("value", redis_keys, args, verb="set_value"))

    async def reset_key(self, key: str) -> bool:
        """Delete what a key has used and the times of its paced calls, so that new calls do not
        wait behind them. Return False if nothing was counted."""
        names = ["", ".permits", ".free", ".booked"] if self._is_paced else [""]
        redis_keys = self._make_keys(key, names)
        command = self._scripts.command("forget", self._redis.delete, *redis_keys)
        return bool(await self._run(command))

    async def find_used_keys(self, cursor: str = "") -> tuple[list[tuple[str, Decision]], str]:
        """Search a part of Redis for keys of this limit.

        Return the keys in no order, each with how a call would be decided now; and the cursor of
        the next part, empty at the end."""
        prefix = keys.limit_key(self._name, "", self._settings.algorithm)
        names: dict[str, None] = {}
        for _ in range(SCANS):
            scan = partial(self._scripts.scan, match=f"{prefix}*", count=SCAN_COUNT)
            command = self._scripts.command("used", scan, self._values_key, int(cursor or 0))
            next_, page = await self._run(command)
            names |= dict.fromkeys(text(name).removeprefix(prefix) for name in page)
            cursor = str(next_ or "")
            if not cursor or len(names) >= SCAN_COUNT:
                break
        decisions: list[tuple[str, Decision]] = []
        for start in range(0, len(names), BATCH_LIMIT):
            part = list(names)[start : start + BATCH_LIMIT]
            calls = [Call(key) for key in part]
            decisions += zip(part, await self._decide(calls, is_peek=True), strict=True)
        return decisions, cursor

    def _split(self, calls: Sequence[Call]) -> Iterator[Sequence[Call]]:
        """Split calls into parts, each for one script call."""
        has_set = self._settings.algorithm in _SETS
        start = units = 0
        for end, call in enumerate(calls):
            units += call.cost
            if end == start + BATCH_LIMIT or (has_set and units > UNITS_LIMIT and end > start):
                yield calls[start:end]
                start, units = end, call.cost
        if calls:
            yield calls[start:]

    async def _decide(self, calls: Sequence[Call], *, is_peek: bool = False) -> list[Decision]:
        ids = [call.id for call in calls]
        if self._makes_ids and not is_peek:
            ids = [id_ or next(self._new_ids) for id_ in ids]
        has_ids = any(ids)
        by_key: dict[str, list[int]] = {}
        for n, call in enumerate(calls):
            by_key.setdefault(call.key, []).append(n)
        call_args: list[Any] = []
        for key, indexes in by_key.items():
            call_args += (self._get_configured_limit(key), len(indexes))
            for n in indexes:
                call_args += (calls[n].cost, ids[n]) if has_ids else (calls[n].cost,)
        redis_keys = [self._values_key, *self._list_keys(by_key, has_ids)]
        args = [self._settings.algorithm, *self._args, int(is_peek)]
        args += (1 + has_ids, len(by_key), *by_key, *call_args)
        try:
            verb, batch = ("look", 0) if is_peek else ("acquire", len(calls))
            reply = await self._run(
                self._scripts.call("decide", redis_keys, args, verb=verb, batch=batch)
            )
        except StoreUnavailableError:
            raise  # nothing was sent
        except BaseException:
            for call, id_ in zip(calls, ids, strict=True):
                if id_.startswith("~"):
                    self._lost_permits.append((call.key, f"{call.cost}~{id_}", call.cost, True))
            raise
        return self._read_reply(reply, calls, ids, by_key)

    def _read_reply(
        self, reply: list[int], calls: Sequence[Call], ids: list[str], by_key: dict[str, list[int]]
    ) -> list[Decision]:
        """Read a reply, which is ordered by key. Return the decisions in the order of the calls."""
        numbers = iter(reply)
        now = next(numbers)
        decisions: list[Any] = [None] * len(calls)
        for indexes in by_key.values():
            limit = next(numbers)
            for n in indexes:
                at, left, reset = next(numbers), next(numbers), next(numbers)
                if limit == UNLIMITED:
                    decisions[n] = Decision(_UNLIMITED, now, now, limit, 0, now)
                elif left < 0:
                    decisions[n] = Decision(_REFUSED, now, at, limit, 0, reset)
                else:
                    outcome, id_ = _PACED if at > now else _GRANTED, ids[n]
                    # A call that goes now can release nothing, unless the caller named it or, with
                    # concurrency, its permit is in use.
                    is_named = not id_.startswith("~")
                    has_permit = id_ and (is_named or outcome is _PACED or not self._is_paced)
                    permit = f"{calls[n].cost}~{id_}" if has_permit else ""
                    decisions[n] = Decision(outcome, now, at, limit, left, reset, permit)
        return decisions

    def _get_configured_limit(self, key: str) -> int:
        return self._values.get(key, self._limit)

    def _list_keys(self, by_key: dict[str, list[int]], has_ids: bool) -> list[str]:
        """List the Redis keys that a script needs for each key of the calls."""
        names = [""]
        if self._is_paced:
            names = ["", ".permits", ".free", ".booked"]
        elif has_ids and self._settings.algorithm != "concurrency":
            names = ["", ".permits"]
        return [name for key in by_key for name in self._make_keys(key, names)]

    def _make_keys(self, key: str, names: Sequence[str]) -> list[str]:
        """Return Redis keys about a key of the limit; `names` as in redis_keys, from the dot on."""
        algorithm = self._settings.algorithm
        return [keys.limit_key(self._name, key, algorithm + name) for name in names]

    async def _release_batch(self, items: Sequence[_Permit]) -> list[bool]:
        is_lease = self._settings.algorithm == "concurrency"
        redis_keys: list[str] = []
        args: list[Any] = []
        for key, permit, cost, is_made in items:
            permits = ".booked" if is_made else ".permits"
            sets = ("", "", "") if is_lease else (permits, ".free", ".booked")
            redis_keys += self._make_keys(key, sets)
            args += (permit, cost if is_lease else 0)
        reply = await self._run(self._scripts.call("release", redis_keys, args))
        return [released == 1 for released in reply]

    async def _run(self, call: Awaitable[Any]) -> Any:
        """Return the reply of Redis, and start to release lost permits, as Redis is available."""
        reply = await call
        if self._lost_permits and (self._release_task is None or self._release_task.done()):
            self._release_task = asyncio.create_task(self._release_lost_permits())
        return reply

    async def _release_lost_permits(self) -> None:
        lost = self._lost_permits
        while lost:
            items = [lost.popleft() for _ in range(min(BATCH_LIMIT, len(lost)))]
            try:
                await self._release_batch(items)
            except StoreError:
                lost.extend(items)
                return


def _to_us(seconds: float) -> int:
    return round(seconds * 1_000_000)
