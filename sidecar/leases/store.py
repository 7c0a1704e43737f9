"""A template's leases in the store: runs the scripts of leases/lua, reads their replies."""

import json
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sidecar.kit.batch import Batcher
from sidecar.kit.clock import LATE_MS, StoreClock
from sidecar.leases import redis_keys as keys
from sidecar.leases.model import Hold, LeaseOutcome
from sidecar.leases.settings import LeaseSettings
from sidecar.storage.redis.connect import Store
from sidecar.storage.redis.driver_errors import text
from sidecar.storage.redis.scripts import Observer, RedisScripts
from sidecar.visitors.verdict_lifetime import RESPONSE_MS

#: Calls in one script, each perhaps for another resource. More would hold Redis too long.
BATCH_LIMIT = 64
#: Resources that one script of a sweep looks at.
SWEEP_LIMIT = 50
#: Holders in one script of a listing, where they are as many as may be.
LIST_LIMIT = 2000
#: Resources in one script of a search, and such scripts in one call.
SEARCH_LIMIT = 500
SEARCHES = 10


@dataclass(frozen=True, slots=True)
class Holder:
    """Somebody who holds a resource until then (ms of the store's clock). Without a fencing number
    (0, and `started_ms` 0) it is their turn, and they have not come yet."""

    holder: str
    fence: int
    started_ms: int
    expires_ms: int


class Place(NamedTuple):
    """Somebody in the queue. `order`: µs of the store's clock when they came, or a little more."""

    holder: str
    order: int
    due_ms: int


@dataclass(frozen=True, slots=True)
class Resource:
    """Who holds it, the first to end first, and how many wait."""

    name: str
    holders: tuple[Holder, ...]
    waiting: int
    #: How long a newcomer would wait; None: not known.
    wait_ms: int | None
    #: Who waits, where that was wanted.
    queue: tuple[Place, ...]


class LeaseStore:
    """A template's leases. `now_ms` overrides the store's time (tests)."""

    def __init__(  # noqa: PLR0913
        self,
        redis: Store,
        template: str,
        *,
        settings: LeaseSettings,
        clock: StoreClock,
        observer: Observer | None = None,
        now_ms: Callable[[], int] | None = None,
        timeout_s: float = 1.0,
    ) -> None:
        self._redis: Any = redis
        self._name = template
        self._timeout_s = timeout_s
        self._scripts = RedisScripts(
            redis,
            "leases",
            template,
            observer=observer,
            timeout_s=timeout_s,
            now=now_ms,
            on_time=clock.observe,
        )
        self._settings = _for_scripts(settings)
        self._list_limit = max(1, LIST_LIMIT // settings.capacity)
        self._clock = clock
        self._now_ms = now_ms
        self._known_since_ms: int | None = None
        self._last_number = 0
        names = ("state", "resources", "ends")
        self._state, self._resources, self._ends = (
            keys.lease_key(template, name) for name in names
        )
        self._ask, self._renew, self._release = (
            Batcher(self._batch_runner(verb), limit=BATCH_LIMIT)
            for verb in ("ask", "renew", "release")
        )

    @property
    def is_away(self) -> bool:
        return self._scripts.is_away

    def knows(self, since_ms: int) -> None:
        """The template was there at that time. A store that was made later was emptied."""
        if self._known_since_ms is None or since_ms < self._known_since_ms:
            self._known_since_ms = since_ms

    async def ask(
        self, resource: str, holder: str, *, may_join: bool = True, order: int | None = None
    ) -> Hold:
        """The lease, or the place in the queue; a heartbeat of who waits. `order`: of a place that
        they had, should the store have lost it."""
        jitter = random.random()  # noqa: S311 - spreads polls, and decides nothing
        place = "" if order is None else order
        until_ms = self._until_ms(RESPONSE_MS)
        return await self._ask.submit((resource, holder, int(may_join), place, jitter, until_ms))

    async def renew(self, resource: str, holder: str, fence: int) -> Hold:
        """GRANTED with the new expiry, NOT_RENEWED as it was, or STALE. Brings a lease back that
        the store lost."""
        return await self._renew.submit((resource, holder, fence))

    async def release(self, resource: str, holder: str, fence: int | None = None) -> Hold:
        """GRANTED where something was given up: the lease with that fencing number, or without one
        whatever they have, a place too. STALE: they have another lease now. GONE: nothing
        was there."""
        return await self._release.submit((resource, holder, "" if fence is None else fence))

    async def sweep(self, limit: int = 200) -> tuple[int, bool]:
        """Does what is due at resources at which nobody asks. At how many it looked, and whether
        there may be more."""
        _, due = await self._run("due", [], [limit])
        names = [text(name) for name in due]
        is_more = len(names) >= limit
        # Once at least: so each replica knows the template, and an emptied store is noticed.
        for start in range(0, max(1, len(names)), SWEEP_LIMIT):
            *_, unfinished = await self._run("sweep", names[start : start + SWEEP_LIMIT], [])
            is_more = is_more or unfinished > 0
        return len(names), is_more

    async def list(self, *, after: str = "", limit: int = 100) -> list[Resource]:
        """Resources that somebody holds or waits for, by name, after that name."""
        found: list[Resource] = []
        while len(found) < limit:
            wanted = min(limit - len(found), self._list_limit)
            names = await self._names(after, wanted)
            if names:
                after = names[-1]
                found += [one for one in await self._rows(names) if one.holders or one.waiting]
            if len(names) < wanted:
                break
        return found

    async def show(self, resource: str, *, first: int = 0, limit: int = 0) -> Resource:
        """One resource, with so many of its queue from that place on."""
        [found] = await self._rows([resource], first, limit)
        return found

    async def find(
        self, wanted: str, holders: Sequence[str], *, after: str = "", limit: int = 100
    ) -> tuple[Sequence[Resource], str | None]:
        """Resources that are called so or begin so, that one of these holders (by their names in
        the store) holds or waits for, or of which a lease has that fencing number. And the name
        after which to search on, for one call looks at so many and no more; None: that is all."""
        number = min(SEARCH_LIMIT, self._list_limit)
        found: list[Resource] = []
        is_end = False
        for _ in range(SEARCHES):
            names = await self._names(after, number)
            if names:
                rows = await self._rows(await self._matching(wanted, holders, names))
                found += [one for one in rows if one.holders or one.waiting]
                after = names[-1]
            is_end = len(names) < number
            if is_end or len(found) >= limit:
                break
        if found[limit:]:
            return found[:limit], found[limit - 1].name
        return found, None if is_end else after

    async def _matching(
        self, wanted: str, holders: Sequence[str], names: Sequence[str]
    ) -> Sequence[str]:
        fence = wanted if wanted.isdecimal() else ""
        _, matches = await self._run("find", names, [fence, *holders])
        found = set(map(text, matches))
        return [name for name in names if name in found or name.startswith(wanted)]

    async def _names(self, after: str, number: int) -> Sequence[str]:
        low = f"({after}" if after else "-"
        command = self._redis.zrangebylex
        page = await self._scripts.command("list", command, self._resources, low, "+", 0, number)
        return [text(name) for name in page]

    async def _rows(
        self, names: Sequence[str], first: int = 0, limit: int = 0
    ) -> Sequence[Resource]:
        rows: list[Resource] = []
        for start in range(0, len(names), self._list_limit):
            part = names[start : start + self._list_limit]
            _, page = await self._run("list", part, [first, limit])
            rows += map(_resource, page)
        return rows

    async def count(self) -> int:
        """How many resources somebody holds or waits for."""
        return int(await self._scripts.command("count", self._redis.zcard, self._resources))

    def _batch_runner(
        self, verb: str
    ) -> Callable[[Sequence[tuple[Any, ...]]], Awaitable[Sequence[Hold]]]:
        async def run(items: Sequence[tuple[Any, ...]]) -> list[Hold]:
            numbers: dict[str, int] = {}
            args: list[Any] = []
            if verb == "ask":
                latest_ms = self._deadline_ms()
                items = [(*fields, _earlier(until_ms, latest_ms)) for *fields, until_ms in items]
            for resource, *fields in items:
                args += [numbers.setdefault(resource, len(numbers) + 1), *fields]
            holds = _read_holds(await self._run(verb, list(numbers), args, batch=len(items)))
            seen = max((max(hold.fence, hold.order) for hold in holds), default=0)
            self._last_number = max(self._last_number, seen)
            return holds

        return run

    def _deadline_ms(self) -> int | None:
        """From when on this replica no longer waits for a batch that is sent now. The clients of
        the batch may give up sooner."""
        return self._until_ms(int(self._timeout_s * 1000) + LATE_MS)

    def _until_ms(self, ms: int) -> int | None:
        """So long from now, by the store's clock; None as long as that is not known."""
        if self._known_since_ms is None:
            return None
        return ms + (self._clock.now_ms() if self._now_ms is None else self._now_ms())

    async def _run(
        self, name: str, resources: Sequence[str], args: Sequence[Any], *, batch: int = 0
    ) -> Any:
        known = "" if self._known_since_ms is None else self._known_since_ms
        last = self._last_number or ""
        parts = ("holders", "facts", "line", "due")
        named = [keys.resource_key(self._name, r, part) for r in resources for part in parts]
        reply = await self._scripts.call(
            name,
            [self._state, self._resources, self._ends, *named],
            [self._settings, known, last, *resources, *args],
            batch=batch,
        )
        if name not in {"due", "find", "list"}:
            self.knows(reply[1])
        return reply


def _for_scripts(settings: LeaseSettings) -> str:
    durations = {
        "term_ms": settings.term,
        "max_term_ms": settings.max_term,
        "claim_ms": settings.claim_window,
        "timeout_ms": settings.heartbeat_timeout,
        "interval_ms": settings.heartbeat_interval,
    }
    document: dict[str, Any] = {
        name: round(seconds * 1000) for name, seconds in durations.items() if seconds is not None
    }
    document |= {"capacity": settings.capacity, "renewable": settings.renewable}
    if settings.max_waiting is not None:
        document["max_waiting"] = settings.max_waiting
    return json.dumps(document)


def _earlier(until_ms: int | None, latest_ms: int | None) -> int | str:
    """For the scripts; "" where neither is known."""
    return min((ms for ms in (until_ms, latest_ms) if ms is not None), default="")


def _read_holds(reply: Any) -> list[Hold]:
    now, _born, is_recovering, rows = reply

    def read(row: Any) -> Hold:
        outcome, fence, started, expires, order, ahead, waiting, wait, refresh = row
        return Hold(
            outcome=LeaseOutcome(outcome),
            now_ms=now,
            fence=int(fence),
            started_ms=started,
            expires_ms=expires,
            order=int(order),
            ahead=ahead,
            waiting=waiting,
            wait_ms=None if wait < 0 else wait,
            refresh_ms=refresh,
            is_recovering=is_recovering == 1,
        )

    return [read(row) for row in rows]


def _resource(row: Any) -> Resource:
    name, waiting, fields, wait, places = row
    holders = []
    for holder, ends, facts in zip(fields[::3], fields[1::3], fields[2::3], strict=True):
        fence, _, started = text(facts).partition(" ")
        holders.append(Holder(text(holder), int(fence or 0), int(started or 0), int(ends)))
    queue = tuple(
        Place(text(holder), int(order), int(due))
        for holder, order, due in zip(places[::3], places[1::3], places[2::3], strict=True)
    )
    return Resource(text(name), tuple(holders), waiting, None if wait < 0 else wait, queue)
