"""Calls the Lua scripts of leases/lua for one template, and reads their replies."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from sidecar.kit.batch import CallBatcher
from sidecar.kit.clock import MAX_LAG_MS, StoreClock
from sidecar.leases import redis_keys as keys
from sidecar.leases.model import HolderState, LeaseOutcome
from sidecar.leases.settings import LeaseSettings
from sidecar.storage.redis.connect import Store
from sidecar.storage.redis.driver_errors import text
from sidecar.storage.redis.scripts import Observer, RedisScripts
from sidecar.visitors.tokens import is_visitor_id
from sidecar.visitors.verdict_lifetime import RESPONSE_MS
from sidecar.visitors.visitor_number import get_id_prefix, read_number, visitor_number

#: How many holders' requests a script call takes, so that it does not block Redis for too long.
BATCH_LIMIT = 64
#: The maximum number of resources in one script call of a sweep.
SWEEP_LIMIT = 50
#: The maximum number of holders in one script call of a listing, if every resource is full.
LIST_LIMIT = 2000
#: How many resources one script call of a search reads, and how many calls a search makes.
SEARCH_LIMIT = 500
MAX_SEARCH_CALLS = 10
#: How many members one ZSCAN command examines.
SCAN_COUNT = 1000


@dataclass(frozen=True, slots=True)
class Holder:
    """The holder of a lease, or a called client, which has not taken the lease yet: then `fence`
    and `started_ms` are 0. Times are in ms by Redis' clock."""

    holder: str
    fence: int
    started_ms: int
    expires_ms: int


class WaitingHolder(NamedTuple):
    """A client with a place in the queue. `order` is when the client joined, in µs of Redis' clock,
    or a greater number. `due_ms` is when the next heartbeat is due."""

    holder: str
    order: int
    due_ms: int


@dataclass(frozen=True, slots=True)
class Resource:
    """One leased resource: its holders, the next to expire first, and its queue."""

    name: str
    holders: tuple[Holder, ...]
    waiting: int
    #: How long a newcomer would wait. None if unknown.
    wait_ms: int | None
    #: The requested page of the queue.
    queue: tuple[WaitingHolder, ...]


class LeaseStore:
    """The leases of one template in Redis. Tests pass `now_ms` to replace Redis' clock."""

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
        self._timeout_ms = int(timeout_s * 1000)
        self._scripts = RedisScripts(
            redis,
            "leases",
            template,
            observer=observer,
            timeout_s=timeout_s,
            now=now_ms,
            on_time=clock.observe,
        )
        self._settings = settings.model_dump_json(
            exclude={"message", "queueing_status_code", "resources"}, exclude_none=True
        )
        self._list_limit = max(1, LIST_LIMIT // settings.capacity)
        self._clock = clock
        self._now_ms = now_ms
        self._known_since_ms: int | None = None
        self._last_number = 0
        self._keys = [keys.lease_key(template, name) for name in ("state", "resources", "ends")]
        self._ask, self._renew, self._release = (
            CallBatcher(partial(self._run_batch, script), limit=BATCH_LIMIT)
            for script in ("ask", "renew", "release")
        )

    def record_existence(self, since_ms: int) -> None:
        """Record that the template's state existed in Redis at `since_ms`. If the state in Redis
        was created later, the scripts know that Redis was emptied."""
        if self._known_since_ms is None or since_ms < self._known_since_ms:
            self._known_since_ms = since_ms

    async def ask(
        self, resource: str, holder: str, *, may_join: bool = True, order: int | None = None
    ) -> HolderState:
        """Send a holder's heartbeat. A holder without a lease or a place takes one if `may_join`.
        `order` is the order of a place that Redis may have lost."""
        jitter = random.random()  # noqa: S311 - it only spreads the polls over time
        place = "" if order is None else order
        deadline_ms = self._compute_deadline_ms(RESPONSE_MS)
        return await self._ask.submit((resource, holder, int(may_join), place, jitter, deadline_ms))

    async def renew(self, resource: str, holder: str, fence: int) -> HolderState:
        """Renew a lease, or restore it if Redis has lost it. The outcome is GRANTED with the new
        expiry, NOT_RENEWED with the old expiry, or STALE."""
        return await self._renew.submit((resource, holder, fence))

    async def release(self, resource: str, holder: str, fence: int | None = None) -> HolderState:
        """Release the lease with this fencing number or, if it is None, the holder's lease or
        place. The outcome is GRANTED if something was released, STALE if the holder has another
        lease, GONE if there was nothing to release."""
        return await self._release.submit((resource, holder, "" if fence is None else fence))

    async def sweep(self, limit: int = 200) -> tuple[int, bool]:
        """End expired leases and call the next holders at all resources where this is due. Return
        how many resources were updated, and whether more may be due."""
        _, due = await self._run("due", [], [limit])
        names = [text(name) for name in due]
        has_more = len(names) >= limit
        # Run the script at least once, so that each replica notices when Redis was emptied.
        for start in range(0, max(1, len(names)), SWEEP_LIMIT):
            *_, unfinished = await self._run("sweep", names[start : start + SWEEP_LIMIT], [])
            has_more = has_more or unfinished > 0
        return len(names), has_more

    async def list(self, *, after: str = "", limit: int = 100) -> list[Resource]:
        """List resources that somebody holds or waits for, by name, starting after `after`."""
        resources: list[Resource] = []
        while len(resources) < limit:
            count = min(limit - len(resources), self._list_limit)
            names = await self._read_names(after, count)
            resources += await self._read_resources(names)
            if len(names) < count:
                break
            after = names[-1]
        return resources

    async def show(self, resource: str, *, first: int = 0, limit: int = 0) -> Resource:
        """Return one resource, with a page of its queue."""
        _, [row] = await self._run("list", [resource], [first, limit])
        return _read_resource(row)

    async def find(
        self, query: str, holders: Sequence[str], *, after: str = "", limit: int = 100
    ) -> tuple[Sequence[Resource], str | None]:
        """Find resources that one of `holders` (names in Redis) holds or waits for, and those for
        which `query` is the beginning of the name, a lease's fencing number, or the visitor number
        of somebody who holds or waits. A search reads a limited number of resources, so return also
        the name after which to continue, or None if all were read."""
        count = min(SEARCH_LIMIT, self._list_limit)
        fence = query if query.isdecimal() else ""
        number = read_number(query)
        resources: list[Resource] = []
        # A search by number reads the members of each queue, which takes a command for each.
        for _ in range(1 if number else MAX_SEARCH_CALLS):
            names = await self._read_names(after, count)
            if not names:
                return resources, None
            _, reply = await self._run("find", names, [fence, *holders])
            by_holder = set(map(text, reply))
            if number:
                by_holder |= await self._find_by_number(names, number)
            matching = [name for name in names if name in by_holder or name.startswith(query)]
            resources += await self._read_resources(matching)
            if len(resources) > limit:
                return resources[:limit], resources[limit - 1].name
            if len(names) < count:
                return resources, None
            after = names[-1]
            if len(resources) == limit:
                break
        return resources, after

    async def _find_by_number(self, names: Sequence[str], number: str) -> set[str]:
        """Return which of the resources a visitor with this number holds or waits for."""
        found = set()
        for resource in await self._read_resources(names):
            holders = [holder.holder for holder in resource.holders]
            if resource.waiting:
                holders += await self._scan_queue(resource.name, get_id_prefix(number))
            if any(is_visitor_id(h) and visitor_number(h) == number for h in holders):
                found.add(resource.name)
        return found

    async def _scan_queue(self, resource: str, prefix: str) -> Sequence[str]:
        """Return the waiting holders of a resource whose names begin with `prefix`."""
        scan = partial(self._redis.zscan, match=prefix + "*", count=SCAN_COUNT)
        key = keys.resource_key(self._name, resource, "line")
        cursor, rows = await self._scripts.command("find", scan, key, 0)
        while cursor:
            cursor, more = await self._scripts.command("find", scan, key, cursor)
            rows += more
        return [text(holder) for holder, _ in rows]

    async def count(self) -> int:
        """Count the resources that somebody holds or waits for."""
        return int(await self._scripts.command("count", self._redis.zcard, self._keys[1]))

    async def _read_names(self, after: str, count: int) -> Sequence[str]:
        low = f"({after}" if after else "-"
        command = self._redis.zrangebylex
        page = await self._scripts.command("list", command, self._keys[1], low, "+", 0, count)
        return [text(name) for name in page]

    async def _read_resources(self, names: Sequence[str]) -> Sequence[Resource]:
        """Return these resources, except those that nobody holds or waits for."""
        resources: list[Resource] = []
        for start in range(0, len(names), self._list_limit):
            _, rows = await self._run("list", names[start : start + self._list_limit], [0, 0])
            resources += map(_read_resource, rows)
        return [resource for resource in resources if resource.holders or resource.waiting]

    async def _run_batch(
        self, script: str, items: Sequence[tuple[Any, ...]]
    ) -> Sequence[HolderState]:
        if script == "ask":
            # The replica waits until this time for the batch. Some clients may not wait as long.
            latest_ms = self._compute_deadline_ms(self._timeout_ms + MAX_LAG_MS)
            items = [(*fields, _find_earliest_time(ms, latest_ms)) for *fields, ms in items]
        numbers: dict[str, int] = {}
        args: list[Any] = []
        for resource, *fields in items:
            args += [numbers.setdefault(resource, len(numbers) + 1), *fields]
        states = _read_states(await self._run(script, list(numbers), args, batch=len(items)))
        self._last_number = max(
            self._last_number, *(max(state.fence, state.order) for state in states)
        )
        return states

    def _compute_deadline_ms(self, duration_ms: int) -> int | None:
        """Return the time after `duration_ms` by Redis' clock, or None if the clock is unknown."""
        if self._known_since_ms is None:
            return None
        return duration_ms + (self._clock.now_ms() if self._now_ms is None else self._now_ms())

    async def _run(
        self, script: str, resources: Sequence[str], args: Sequence[Any], *, batch: int = 0
    ) -> Any:
        known_since_ms = "" if self._known_since_ms is None else self._known_since_ms
        parts = ("holders", "facts", "line", "due")
        resource_keys = [
            keys.resource_key(self._name, r, part) for r in resources for part in parts
        ]
        reply = await self._scripts.call(
            script,
            [*self._keys, *resource_keys],
            [self._settings, known_since_ms, self._last_number or "", *resources, *args],
            batch=batch,
        )
        if script not in {"due", "find", "list"}:
            self.record_existence(reply[1])
        return reply


def _find_earliest_time(*times_ms: int | None) -> int | str:
    """Return the earliest known time, or "" if all are unknown, as an argument of a script."""
    return min((ms for ms in times_ms if ms is not None), default="")


def _read_states(reply: Any) -> list[HolderState]:
    now_ms, _, is_recovering, rows = reply
    states = []
    for outcome, *numbers, wait, refresh_ms in rows:
        common = now_ms, is_recovering == 1, refresh_ms, None if wait < 0 else wait
        states.append(HolderState(LeaseOutcome(outcome), *common, *numbers))
    return states


def _read_resource(row: Any) -> Resource:
    name, waiting, fields, wait_ms, places = row
    holders = []
    for holder, ends_ms, facts in zip(fields[::3], fields[1::3], fields[2::3], strict=True):
        fence, _, started_ms = text(facts).partition(" ")
        holders.append(Holder(text(holder), int(fence or 0), int(started_ms or 0), int(ends_ms)))
    queue = tuple(
        WaitingHolder(text(holder), int(order), int(due_ms))
        for holder, order, due_ms in zip(places[::3], places[1::3], places[2::3], strict=True)
    )
    return Resource(text(name), tuple(holders), waiting, None if wait_ms < 0 else wait_ms, queue)
