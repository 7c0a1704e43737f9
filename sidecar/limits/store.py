"""One rate limit's state in Redis: calls the scripts of limits/lua and reads their replies."""

import asyncio
import re
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from itertools import count
from typing import Any

from sidecar.kit.batch import Batcher
from sidecar.kit.errors import StoreError, StoreUnavailableError
from sidecar.limits import redis_keys as keys
from sidecar.limits.model import Ask, Decision, Outcome
from sidecar.limits.settings import MAX_COST, UNLIMITED, LimitSettings
from sidecar.storage.redis.connect import Store
from sidecar.storage.redis.driver_errors import text
from sidecar.storage.redis.scripts import Observer, RedisScripts

#: Calls in one script call. More would block Redis too long.
BATCH_LIMIT = 128
#: The cost of one script call, where each unit is a member of a set: Lua passes no more than some
#: thousands of arguments to a command.
UNITS_LIMIT = 1_000
#: Permits to give back when Redis is available again, because their replies were lost.
UNSEEN_LIMIT = 1_000

#: Keys that one SCAN looks at, and SCANs in one call.
SCAN_COUNT = 1_000
SCANS = 10

#: Constants, because reading a member of an enumeration takes longer.
_GRANTED, _PACED = Outcome.GRANTED, Outcome.PACED
_REFUSED, _UNLIMITED = Outcome.REFUSED, Outcome.UNLIMITED
_BUCKETS = {"token_bucket", "leaky_bucket"}
_LISTED = {"sliding_window", "concurrency"}
#: A permit: its cost and id. An id that begins with ~ was made by a replica.
_PERMIT = re.compile(r"([1-9][0-9]{0,3})~(~?[A-Za-z0-9._:@+-]{1,64})\Z")
#: A permit to give back: key, permit, cost, and whether a replica made its id.
_Permit = tuple[str, str, int, bool]


class LimitStore:
    """The calls of one limit in Redis. `now_us` overrides Redis' time (tests).

    Keys, costs and ids are not checked here."""

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
        self._made = (f"~{replica}.{number:x}" for number in count())
        length_s = settings.lease if settings.window is None else settings.window
        self._args = [
            _us(length_s),
            settings.burst or "",
            _us(settings.max_wait) if self._is_paced else 0,
            _us(settings.idempotency_window),
        ]
        self._acquire = Batcher(self.acquire_each, limit=BATCH_LIMIT)
        self._release = Batcher(self._release_batch, limit=BATCH_LIMIT)
        self._unseen: deque[_Permit] = deque(maxlen=UNSEEN_LIMIT)
        self._giving_back: asyncio.Task[None] | None = None

    @property
    def is_away(self) -> bool:
        return self._scripts.is_away

    async def acquire(self, ask: Ask) -> Decision:
        """Decide on one call, and count it unless it is refused."""
        self._scripts.raise_if_away("acquire")
        return _decided(await self._acquire.submit(ask))

    async def acquire_each(self, asks: Sequence[Ask]) -> list[Decision | StoreError]:
        """Decide on many calls, in their order. If Redis stops answering half way, each call
        without an answer gets the error."""
        decided: list[Decision | StoreError] = []
        try:
            for part in self._parts(asks):
                decided += await self._ask(part)
        except StoreError as error:
            decided += [error] * (len(asks) - len(decided))
        except BaseException:
            for ask, one in zip(asks, decided, strict=False):
                if isinstance(one, Decision) and "~~" in one.permit:
                    self._unseen.append((ask.key, one.permit, ask.cost, True))
            raise
        return decided

    async def acquire_all(self, asks: Sequence[Ask]) -> list[Decision]:
        """Decide on many calls. Raises StoreError if any call had no answer."""
        return [_decided(one) for one in await self.acquire_each(asks)]

    async def look(self, key: str) -> Decision:
        """Return the decision on a call of cost 1, without counting it."""
        [decision] = await self._ask([Ask(key)], looks=True)
        return decision

    async def release(self, key: str, permit: str) -> bool:
        """Give back a permit of `concurrency`, or a moment in the future, for the next call. Return
        False if there was nothing to give back."""
        match = _PERMIT.match(permit)
        if match is None or int(match[1]) > MAX_COST:
            return False
        self._scripts.raise_if_away("release")
        return await self._release.submit((key, permit, int(match[1]), match[2][0] == "~"))

    async def values(self) -> dict[str, int]:
        """Return the limits of single keys that were set at run time."""
        values = await self._command("values", self._redis.hgetall, self._values_key)
        return {text(key): int(limit) for key, limit in values.items()}

    async def set_value(self, key: str, limit: int | None) -> None:
        """Set a key's limit from the next call on; None resets it to the configured value. Moments
        already given to calls stay."""
        names = ["", ".free", ".booked"] if self._is_paced else [""]
        of_key = [keys.limit_key(self._name, key, self._settings.algorithm + n) for n in names]
        args = [
            key,
            "" if limit is None else limit,
            self._file_limit(key),
            self._args[0] if self._settings.algorithm in _BUCKETS else 0,
            int(self._settings.algorithm in _LISTED),
        ]
        await self._call("value", [self._values_key, *of_key], args, verb="set_value")

    async def forget(self, key: str) -> bool:
        """Delete what a key has used, and moments already given to calls, so that no call waits
        behind them. Return False if nothing was counted."""
        names = ["", ".permits", ".free", ".booked"] if self._is_paced else [""]
        of_key = [keys.limit_key(self._name, key, self._settings.algorithm + n) for n in names]
        return bool(await self._command("forget", self._redis.delete, *of_key))

    async def used(self, cursor: str = "") -> tuple[list[tuple[str, Decision]], str]:
        """Search a part of Redis for keys of this limit.

        Return them in no order, each with the decision on a call that came now, and the cursor of
        the next part; empty at the end."""
        begin = keys.limit_key(self._name, "", self._settings.algorithm)
        names: dict[str, None] = {}
        for _ in range(SCANS):
            scan = partial(self._scripts.scan, match=f"{begin}*", count=SCAN_COUNT)
            then, page = await self._command("used", scan, self._values_key, int(cursor or 0))
            names |= dict.fromkeys(text(name).removeprefix(begin) for name in page)
            cursor = str(then or "")
            if not cursor or len(names) >= SCAN_COUNT:
                break
        decided: list[tuple[str, Decision]] = []
        for start in range(0, len(names), BATCH_LIMIT):
            part = list(names)[start : start + BATCH_LIMIT]
            asks = [Ask(key) for key in part]
            decided += zip(part, await self._ask(asks, looks=True), strict=True)
        return decided, cursor

    def _parts(self, asks: Sequence[Ask]) -> Iterator[Sequence[Ask]]:
        """Split calls into parts for one script call each."""
        is_listed = self._settings.algorithm in _LISTED
        start = units = 0
        for end, ask in enumerate(asks):
            units += ask.cost
            if end == start + BATCH_LIMIT or (is_listed and units > UNITS_LIMIT and end > start):
                yield asks[start:end]
                start, units = end, ask.cost
        if asks:
            yield asks[start:]

    async def _ask(self, asks: Sequence[Ask], *, looks: bool = False) -> list[Decision]:
        ids = [ask.id for ask in asks]
        if self._makes_ids and not looks:
            ids = [id_ or next(self._made) for id_ in ids]
        has_ids = any(ids)
        by_key: dict[str, list[int]] = {}
        for n, ask in enumerate(asks):
            by_key.setdefault(ask.key, []).append(n)
        calls: list[Any] = []
        for key, places in by_key.items():
            calls += (self._file_limit(key), len(places))
            if has_ids:
                calls += [word for n in places for word in (asks[n].cost, ids[n])]
            else:
                calls += [asks[n].cost for n in places]
        named = [self._values_key, *self._keys(by_key, has_ids)]
        args = [self._settings.algorithm, *self._args, int(looks)]
        args += (1 + has_ids, len(by_key), *by_key, *calls)
        try:
            verb, batch = ("look", 0) if looks else ("acquire", len(asks))
            reply = await self._call("decide", named, args, verb=verb, batch=batch)
        except StoreUnavailableError:
            raise  # nothing was sent
        except BaseException:
            for ask, id_ in zip(asks, ids, strict=True):
                if id_.startswith("~"):
                    self._unseen.append((ask.key, f"{ask.cost}~{id_}", ask.cost, True))
            raise
        return self._read(reply, asks, ids, by_key)

    def _read(
        self, reply: list[int], asks: Sequence[Ask], ids: list[str], by_key: dict[str, list[int]]
    ) -> list[Decision]:
        """Return the decisions in the order of the calls; the reply is ordered by key."""
        now, place = reply[0], 1
        decisions: list[Any] = [None] * len(asks)
        for places in by_key.values():
            limit = reply[place]
            place += 1
            for n in places:
                at, left, reset = reply[place : place + 3]
                place += 3
                if limit == UNLIMITED:
                    decisions[n] = Decision(_UNLIMITED, now, now, limit, 0, now)
                elif left < 0:
                    decisions[n] = Decision(_REFUSED, now, at, limit, 0, reset)
                else:
                    outcome, id_ = _PACED if at > now else _GRANTED, ids[n]
                    # A call that goes now has nothing to give back but its own id or, with
                    # concurrency, its permit.
                    is_own = not id_.startswith("~")
                    has_permit = id_ and (is_own or outcome is _PACED or not self._is_paced)
                    permit = f"{asks[n].cost}~{id_}" if has_permit else ""
                    decisions[n] = Decision(outcome, now, at, limit, left, reset, permit)
        return decisions

    def _file_limit(self, key: str) -> int:
        return self._values.get(key, self._limit)

    def _keys(self, by_key: dict[str, list[int]], has_ids: bool) -> list[str]:
        """Return the Redis keys that a script needs for each key of the calls."""
        state = self._settings.algorithm
        names: list[str] = [state]
        if self._is_paced:
            names += [f"{state}.permits", f"{state}.free", f"{state}.booked"]
        elif has_ids and state != "concurrency":
            names.append(f"{state}.permits")
        if len(names) == 1:
            begins = keys.limit_key(self._name, "", state)
            return [begins + key for key in by_key]
        return [keys.limit_key(self._name, key, name) for key in by_key for name in names]

    async def _release_batch(self, items: Sequence[_Permit]) -> list[bool]:
        state = self._settings.algorithm
        holds = state == "concurrency"
        names: list[str] = []
        args: list[Any] = []
        for key, permit, cost, is_made in items:
            kept_in = ".booked" if is_made else ".permits"
            sets = ("", "", "") if holds else (kept_in, ".free", ".booked")
            names += [keys.limit_key(self._name, key, state + name) for name in sets]
            args += (permit, cost if holds else 0)
        reply = await self._call("release", names, args)
        return [released == 1 for released in reply]

    async def _call(self, script: str, keys: list[str], args: list[Any], **more: Any) -> Any:
        reply = await self._scripts.call(script, keys, args, **more)
        self._begin_giving_back()
        return reply

    async def _command(self, verb: str, command: Callable[..., Awaitable[Any]], *args: Any) -> Any:
        reply = await self._scripts.command(verb, command, *args)
        self._begin_giving_back()
        return reply

    def _begin_giving_back(self) -> None:
        if self._unseen and (self._giving_back is None or self._giving_back.done()):
            self._giving_back = asyncio.create_task(self._give_back_unseen())

    async def _give_back_unseen(self) -> None:
        """Give back permits that may have been granted, but whose replies were lost."""
        while self._unseen:
            items = [self._unseen.popleft() for _ in range(min(BATCH_LIMIT, len(self._unseen)))]
            try:
                await self._release_batch(items)
            except StoreError:
                self._unseen.extend(items)
                return


def _decided(one: Decision | StoreError) -> Decision:
    if isinstance(one, StoreError):
        raise one
    return one


def _us(seconds: float) -> int:
    return round(seconds * 1_000_000)
