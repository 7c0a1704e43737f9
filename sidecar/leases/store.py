"""A template's leases in Redis: calls the scripts of leases/lua and reads their replies."""

import json
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sidecar.kit.batch import CallBatcher
from sidecar.kit.clock import LATE_MS, StoreClock
from sidecar.leases import redis_keys as keys
from sidecar.leases.model import HolderState, LeaseOutcome
from sidecar.leases.settings import LeaseSettings
from sidecar.storage.redis.connect import Store
from sidecar.storage.redis.driver_errors import text
from sidecar.storage.redis.scripts import Observer, RedisScripts
from sidecar.visitors.verdict_lifetime import RESPONSE_MS

#: The most calls in one script call, for any resources. More would block Redis for too long.
BATCH_LIMIT = 64
#: The most resources in one script call of a sweep.
SWEEP_LIMIT = 50
#: The most holders in one script call of a listing, counted as if every resource were full.
LIST_LIMIT = 2000
#: The most resources in one script call of a search, and the most script calls of one search.
SEARCH_LIMIT = 500
SEARCHES = 10


@dataclass(frozen=True, slots=True)
class Holder:
    """A holder of a resource. Times are in ms by Redis' clock. `fence` and `started_ms` are 0 if
    the holder was called and has not yet taken the lease."""

    holder: str
    fence: int
    started_ms: int
    expires_ms: int


class WaitingHolder(NamedTuple):
    """A place in the queue. `order` is when the holder joined, µs of Redis' clock, or more."""

    holder: str
    order: int
    due_ms: int


@dataclass(frozen=True, slots=True)
class Resource:
    """One leased resource: its holders, ordered by expiry, and the length of its queue."""

    name: str
    holders: tuple[Holder, ...]
    waiting: int
    #: How long a newcomer would wait. None if unknown.
    wait_ms: int | None
    #: The requested page of the queue.
    queue: tuple[WaitingHolder, ...]


class LeaseStore:
    """A template's leases in Redis. Tests pass `now_ms` to replace Redis' clock."""

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
        self._settings = _settings_json(settings)
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
            CallBatcher(self._batch_runner(verb), limit=BATCH_LIMIT)
            for verb in ("ask", "renew", "release")
        )

    @property
    def is_away(self) -> bool:
        return self._scripts.is_away

    def note_existence(self, since_ms: int) -> None:
        """Note that Redis had the template's state at `since_ms`. If Redis has a state created
        later, it was emptied."""
        if self._known_since_ms is None or since_ms < self._known_since_ms:
            self._known_since_ms = since_ms

    async def ask(
        self, resource: str, holder: str, *, may_join: bool = True, order: int | None = None
    ) -> HolderState:
        """Take or find the holder's lease or place in the queue, as a heartbeat. `order` is that
        of a place that Redis may have lost."""
        jitter = random.random()  # noqa: S311 - only spreads polls
        place = "" if order is None else order
        until_ms = self._until_ms(RESPONSE_MS)
        return await self._ask.submit((resource, holder, int(may_join), place, jitter, until_ms))

    async def renew(self, resource: str, holder: str, fence: int) -> HolderState:
        """Renew a lease, even one that Redis has lost. The outcome is GRANTED with the new expiry,
        NOT_RENEWED with the old expiry, or STALE."""
        return await self._renew.submit((resource, holder, fence))

    async def release(self, resource: str, holder: str, fence: int | None = None) -> HolderState:
        """Release the lease with this fencing number or, without a number, the holder's lease or
        place. The outcome is GRANTED if something was released, STALE if the holder has another
        lease, GONE if there was nothing to release."""
        return await self._release.submit((resource, holder, "" if fence is None else fence))

    async def sweep(self, limit: int = 200) -> tuple[int, bool]:
        """End leases and call holders at resources that no request is about. Return how many
        resources were swept, and whether more may be due."""
        _, due = await self._run("due", [], [limit])
        names = [text(name) for name in due]
        is_more = len(names) >= limit
        # Run the script at least once, so that each replica notices when Redis was emptied.
        for start in range(0, max(1, len(names)), SWEEP_LIMIT):
            *_, unfinished = await self._run("sweep", names[start : start + SWEEP_LIMIT], [])
            is_more = is_more or unfinished > 0
        return len(names), is_more

    async def list(self, *, after: str = "", limit: int = 100) -> list[Resource]:
        """List the resources that are held or waited for, by name, after the name `after`."""
        resources: list[Resource] = []
        while len(resources) < limit:
            number = min(limit - len(resources), self._list_limit)
            names = await self._read_names(after, number)
            if names:
                after = names[-1]
                found = await self._read_resources(names)
                resources += [each for each in found if each.holders or each.waiting]
            if len(names) < number:
                break
        return resources

    async def show(self, resource: str, *, first: int = 0, limit: int = 0) -> Resource:
        """Return one resource, with a page of its queue."""
        [state] = await self._read_resources([resource], first, limit)
        return state

    async def find(
        self, query: str, holders: Sequence[str], *, after: str = "", limit: int = 100
    ) -> tuple[Sequence[Resource], str | None]:
        """Find resources whose name begins with `query`, that one of the holders (by their names
        in Redis) holds or waits for, or with a lease that has `query` as its fencing number.

        One call searches only some resources. Return also the name after which to continue. None
        if all resources were searched."""
        number = min(SEARCH_LIMIT, self._list_limit)
        resources: list[Resource] = []
        is_end = False
        for _ in range(SEARCHES):
            names = await self._read_names(after, number)
            if names:
                matching = await self._matching_names(query, holders, names)
                found = await self._read_resources(matching)
                resources += [each for each in found if each.holders or each.waiting]
                after = names[-1]
            is_end = len(names) < number
            if is_end or len(resources) >= limit:
                break
        if resources[limit:]:
            return resources[:limit], resources[limit - 1].name
        return resources, None if is_end else after

    async def _matching_names(
        self, query: str, holders: Sequence[str], names: Sequence[str]
    ) -> Sequence[str]:
        fence = query if query.isdecimal() else ""
        _, reply = await self._run("find", names, [fence, *holders])
        by_holder = set(map(text, reply))
        return [name for name in names if name in by_holder or name.startswith(query)]

    async def _read_names(self, after: str, number: int) -> Sequence[str]:
        low = f"({after}" if after else "-"
        command = self._redis.zrangebylex
        page = await self._scripts.command("list", command, self._resources, low, "+", 0, number)
        return [text(name) for name in page]

    async def _read_resources(
        self, names: Sequence[str], first: int = 0, limit: int = 0
    ) -> Sequence[Resource]:
        resources: list[Resource] = []
        for start in range(0, len(names), self._list_limit):
            part = names[start : start + self._list_limit]
            _, rows = await self._run("list", part, [first, limit])
            resources += map(_read_resource, rows)
        return resources

    async def count(self) -> int:
        """Count the resources that are held or waited for."""
        return int(await self._scripts.command("count", self._redis.zcard, self._resources))

    def _batch_runner(
        self, verb: str
    ) -> Callable[[Sequence[tuple[Any, ...]]], Awaitable[Sequence[HolderState]]]:
        async def run(items: Sequence[tuple[Any, ...]]) -> list[HolderState]:
            numbers: dict[str, int] = {}
            args: list[Any] = []
            if verb == "ask":
                latest_ms = self._deadline_ms()
                items = [(*fields, _earlier(until_ms, latest_ms)) for *fields, until_ms in items]
            for resource, *fields in items:
                args += [numbers.setdefault(resource, len(numbers) + 1), *fields]
            states = _read_states(await self._run(verb, list(numbers), args, batch=len(items)))
            latest = max((max(state.fence, state.order) for state in states), default=0)
            self._last_number = max(self._last_number, latest)
            return states

        return run

    def _deadline_ms(self) -> int | None:
        """Return when this replica will stop waiting for a batch that is sent now. The batch's
        clients may give up sooner."""
        return self._until_ms(int(self._timeout_s * 1000) + LATE_MS)

    def _until_ms(self, ms: int) -> int | None:
        """Return the time in `ms` from now, by Redis' clock. None while that clock is unknown."""
        if self._known_since_ms is None:
            return None
        return ms + (self._clock.now_ms() if self._now_ms is None else self._now_ms())

    async def _run(
        self, name: str, resources: Sequence[str], args: Sequence[Any], *, batch: int = 0
    ) -> Any:
        known_since = "" if self._known_since_ms is None else self._known_since_ms
        last = self._last_number or ""
        parts = ("holders", "facts", "line", "due")
        of_resources = [keys.resource_key(self._name, r, part) for r in resources for part in parts]
        reply = await self._scripts.call(
            name,
            [self._state, self._resources, self._ends, *of_resources],
            [self._settings, known_since, last, *resources, *args],
            batch=batch,
        )
        if name not in {"due", "find", "list"}:
            self.note_existence(reply[1])
        return reply


def _settings_json(settings: LeaseSettings) -> str:
    """Return the settings as the scripts read them, in ms."""
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
    """Return the earlier time as a script's argument: "" if both are unknown."""
    return min((ms for ms in (until_ms, latest_ms) if ms is not None), default="")


def _read_states(reply: Any) -> list[HolderState]:
    now, _born, is_recovering, rows = reply

    def read(row: Any) -> HolderState:
        outcome, fence, started, expires, order, ahead, waiting, wait, refresh = row
        return HolderState(
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


def _read_resource(row: Any) -> Resource:
    name, waiting, fields, wait, places = row
    holders = []
    for holder, ends, facts in zip(fields[::3], fields[1::3], fields[2::3], strict=True):
        fence, _, started = text(facts).partition(" ")
        holders.append(Holder(text(holder), int(fence or 0), int(started or 0), int(ends)))
    queue = tuple(
        WaitingHolder(text(holder), int(order), int(due))
        for holder, order, due in zip(places[::3], places[1::3], places[2::3], strict=True)
    )
    return Resource(text(name), tuple(holders), waiting, None if wait < 0 else wait, queue)
