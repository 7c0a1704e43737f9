"""One room in Redis: runs the scripts of rooms/lua in batches, and reads their replies."""

import json
import math
import os
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sidecar.kit.batch import Batcher
from sidecar.kit.clock import LATE_MS, StoreClock
from sidecar.kit.errors import StoreError
from sidecar.kit.shorten import shorten_values
from sidecar.rooms import redis_keys as keys
from sidecar.rooms.appearance import APPEARANCE
from sidecar.rooms.store.lists import Lists
from sidecar.rooms.store.plain_commands import PlainCommands
from sidecar.rooms.store.replies import SHIELD, Snapshot, Swept, read_snapshot, read_standings
from sidecar.rooms.store.transfer import Transfer
from sidecar.storage.redis.connect import Store
from sidecar.storage.redis.driver_errors import text as text_of
from sidecar.storage.redis.scripts import Observer, RedisScripts
from sidecar.visitors.model import Pass, Standing, Ticket
from sidecar.visitors.verdict_lifetime import RELEASE_HOLD_MS, RESPONSE_MS

#: Visitors in one script call. More would hold Redis too long for the others.
BATCH_LIMIT = 128
#: Visitors in one script call of a room with sub-queues or classes, where each costs Redis two or
#: three times as much.
LINES_BATCH_LIMIT = 64
#: Revocations read at a time.
REVOCATIONS_LIMIT = 1000

_VERBS = ("enter", "beat", "renew", "leave")
#: The scripts sent most get only the keys that they need (rooms/lua/parts/room.lua).
_KEYS_OF = {"enter": 15, "beat": 14, "renew": 13}
#: These scripts only read, so they keep nothing of what the replica tells them.
_READING = {"forecast", "find", "queue"}


@dataclass(frozen=True, slots=True)
class ClassClaim:
    """A class that a visitor claims: without `grant` any number of times, by a grant once until
    `expires_ms`."""

    class_name: str
    grant: str = ""
    expires_ms: int = 0


NO_CLAIM = ClassClaim("")


@dataclass(frozen=True, slots=True)
class Lot:
    """The number in [0, 1) that decides a visitor's place in the pre-queue that begins at
    `begins_ms`."""

    number: float
    begins_ms: int


def _hash_of(setting: str) -> str:
    """Return the Redis key for a setting changed at run time. The scripts read `config` with each
    request."""
    return "look" if setting in APPEARANCE else "config"


@dataclass(frozen=True, slots=True)
class Pace:
    """How a queue moves. Times are in ms; -1: unknown, or never."""

    cap: int
    #: How many of the waiting visitors are called within a minute.
    called_in_a_minute: int
    first_ms: int
    last_ms: int


class ChangedSinceError(Exception):
    """The named setting has another value by now, so nothing was changed."""


class RoomStore(PlainCommands):
    """The scripts of one room. Every method raises StoreError when Redis does not answer. While
    Redis is unavailable, only the refresher calls it, by `snapshot`."""

    def __init__(  # noqa: PLR0913
        self,
        redis: Store,
        room: str,
        *,
        settings: Mapping[str, Any],
        clock: StoreClock,
        observer: Observer | None = None,
        now_ms: Callable[[], int] | None = None,
        timeout_s: float = 1.0,
        replica: str = "",
    ) -> None:
        """Args:
        settings: The file's, as RoomSettings.for_scripts returns them.
        now_ms: Overrides the time of Redis (tests).
        replica: The replica's id, to count replicas by.
        """
        super().__init__(redis, room, timeout_s=timeout_s)
        # Only the refresher tries an unavailable Redis; no other call may be a probe.
        self._scripts = RedisScripts(
            redis,
            "rooms",
            room,
            observer=observer,
            timeout_s=timeout_s,
            probe_timeout_s=math.inf,
            now=now_ms,
            on_time=clock.observe,
        )
        self._settings = json.dumps(settings)
        self._replica = replica
        self._existed_since_ms: int | None = None
        self._unreported_since_ms: int | None = None
        self._near_ms: int | None = None
        self._measured_at = ""
        self._clock = clock
        self._now_ms = now_ms
        #: What operators see of the room's visitors and its log.
        self.lists = Lists(redis, room, self._run, timeout_s=timeout_s)
        #: The room's visitors as pages, to move them to another Redis.
        self.transfer = Transfer(redis, room, self._run, timeout_s=timeout_s)
        self._keys = keys.room_keys(room)
        self._keys_of = {verb: self._keys[:number] for verb, number in _KEYS_OF.items()}
        is_plain = not settings.keys() & {"classes", "lines"}
        limit = BATCH_LIMIT if is_plain else LINES_BATCH_LIMIT
        self._enter, self._beat, self._renew, self._leave = (
            Batcher(self._batch_runner(verb), limit=limit) for verb in _VERBS
        )

    @property
    def is_away(self) -> bool:
        """Whether Redis stopped answering, so that all calls but `snapshot` fail at once."""
        return self._scripts.is_away

    def room_existed_since(self, since_ms: int) -> None:
        """Note that the room existed at that time. A Redis with younger data was emptied."""
        if self._existed_since_ms is None or since_ms < self._existed_since_ms:
            self._existed_since_ms = since_ms

    def mark_unreported_admissions(self, now_ms: int) -> None:
        """Note that this replica admitted or kept a visitor whom Redis does not know. The first
        script that succeeds reports it."""
        if self._unreported_since_ms is None:
            self._unreported_since_ms = now_ms

    def set_longest_refresh_near_head(self, refresh_ms: int | None) -> None:
        """Set the longest refresh that visitors near the head were given lately. After a loss they
        come back within that time. None: this replica cannot know it."""
        self._near_ms = refresh_ms

    async def enter(
        self,
        visitor: str,
        *,
        address: str = "",
        claim: ClassClaim = NO_CLAIM,
        lot: Lot | None = None,
    ) -> Standing:
        """Give a session if a slot is free and nobody waits, else a place in the queue.

        `address` is the visitor's, for max_places_per_address. Without the `lot` for it nobody gets
        a place in a pre-queue.
        """
        draw, lot_of = (_random(), 0) if lot is None else (lot.number, lot.begins_ms)
        claimed = claim.class_name, claim.grant, claim.expires_ms
        began, until_ms = time.monotonic(), self._store_ms() + RESPONSE_MS
        standing = await self._enter.submit(
            (visitor, repr(draw), lot_of, address, *claimed, until_ms)
        )
        if time.monotonic() - began > RESPONSE_MS / 1000:
            raise StoreError("enter: the reply came when no client waited for it any more")
        return standing

    def beat(self, ticket: Ticket, *, address: str = "") -> Awaitable[Standing]:
        """Keep a waiting visitor's place, restore a lost one, or begin the session of a called
        visitor. `address` as in enter()."""
        jitter = round(random.random(), 3)  # noqa: S311 - spreads polls, and decides nothing
        return self._beat.submit(
            (
                ticket.visitor,
                ticket.order,
                ticket.epoch,
                jitter,
                ticket.joined_ms,
                ticket.signed_ms,
                address,
            )
        )

    def renew(self, pass_: Pass) -> Awaitable[Standing]:
        """Renew a session, or restore one that Redis lost or never knew."""
        alone = ""
        if not pass_.renewed_ms:
            alone = "waited" if pass_.joined_ms < pass_.started_ms else "new"
        return self._renew.submit(
            (pass_.visitor, pass_.order, pass_.started_ms, pass_.expires_ms, alone)
        )

    async def leave(self, visitor: str, *, why: str = "left", by: str = "") -> bool:
        """Give up a place or session. Return False if there was none. `why` is left or released,
        `by` the operator."""
        return (await self._leave.submit((visitor, by, why))).order == 1

    async def take_back(self, visitor: str, claim: ClassClaim = NO_CLAIM) -> bool:
        """Give up a place or session that its visitor never received, and the grant that was used
        for it."""
        return (await self._leave.submit((visitor, claim.grant, "unseen"))).order == 1

    async def sweep(self, limit: int = 1000) -> Swept:
        _, waiting, sessions, revocations, called, more = await self._run("sweep", [limit])
        return Swept(waiting, sessions, revocations, called, bool(more))

    async def snapshot(self, *, revoked_since_ms: int = 0) -> Snapshot:
        """Read the room. Sent also while Redis counts as unavailable, to notice when it is back."""
        args = [revoked_since_ms, REVOCATIONS_LIMIT, self._replica, self._measured_at]
        snapshot = read_snapshot(await self._run("snapshot", args, is_probe=True))
        self.room_existed_since(snapshot.born_ms)
        self._measured_at = repr(snapshot.counters["measured_at"])
        return snapshot

    async def configure(
        self,
        changes: dict[str, Any],
        *,
        by: str = "",
        undone: Mapping[str, str] | None = None,
    ) -> int:
        """Change settings that were checked, None resets one, and return the new revision.

        `undone`: the JSON values that an undo sets back, by name. Raises ChangedSinceError if one
        of them is not in force any more.
        """
        what = "change" if undone is None else "undo"
        args: list[Any] = [by, json.dumps(shorten_values(changes)), what]
        for name, value in changes.items():
            text = "" if value is None else json.dumps(without_none(value))
            must = "*" if undone is None else undone[name]
            args += [keys.ROOM_KEYS.index(_hash_of(name)) + 1, name, text, must]
        _, revision, stale = await self._run("configure", args)
        if stale:
            raise ChangedSinceError(text_of(stale))
        return int(revision)

    async def forecast(self, changes: dict[str, Any]) -> tuple[int, int, int, Pace, Pace]:
        """Return the time of Redis, how many wait and are inside, how the queue moves, and how it
        would move with these values."""
        args = [
            part
            for name, value in changes.items()
            for part in (name, json.dumps(without_none(value)))
        ]
        now_ms, waiting, active, *paces = await self._run("forecast", args)
        return now_ms, waiting, active, Pace(*paces[:4]), Pace(*paces[4:])

    async def reset(self, *, by: str = "") -> int:
        """Empty the queue and return how many places there were."""
        _, removed, _ = await self._run("reset", [by])
        return int(removed)

    async def move(self, visitor: str, position: int, *, by: str, why: str = "") -> int:
        """Move a visitor in their queue; position 0 is back to where they were before. Return the
        new position, a little before the wanted one if no order is free between two.

        Return 0 if the visitor is not waiting, -1 if no order is free nearby, -2 if the pre-queue
        is not drawn yet, -3 if nobody moved the visitor.
        """
        _, moved = await self._run("move", [visitor, position, by, why])
        return int(moved)

    async def reclassify(
        self, visitor: str, claim: ClassClaim, *, by: str = "", why: str = ""
    ) -> int:
        """Give a waiting visitor a class, "" for none, and return their position. By a grant (`by`
        is "") only if that takes them ahead.

        Return 0 if the visitor is not waiting, -1 if the grant was used, -2 if the place is drawn:
        drawn places have no class.
        """
        _, reclassified = await self._run(
            "grade", [visitor, claim.class_name, claim.grant, claim.expires_ms, by, why]
        )
        return int(reclassified)

    async def remind(
        self, revoked: dict[str, int], overrides: dict[str, Any], *, epoch: int
    ) -> None:
        """Write the revocations (visitor -> when, ms) and changed settings to a Redis that was
        emptied or has older data. What it has learnt meanwhile stays."""
        config = {name: json.dumps(value) for name, value in overrides.items()}
        if epoch:
            config["epoch"] = str(epoch)
        for name, value in config.items():
            await self._ask("remind", self._redis.hsetnx(self._key(_hash_of(name)), name, value))
        rows = list(revoked.items())
        for start in range(0, len(rows), REVOCATIONS_LIMIT):
            part = dict(rows[start : start + REVOCATIONS_LIMIT])
            for name in ("revoked", "spent"):
                await self._ask("remind", self._redis.zadd(self._key(name), part, nx=True))
            ends = {visitor: at + RELEASE_HOLD_MS for visitor, at in part.items()}
            ended = self._redis.zadd(self._key("active"), ends, xx=True, lt=True)
            await self._ask("remind", ended)

    async def acquire_leader_lease(self, work: str, *, seconds: float) -> bool:
        """Return True if this replica does the work in this interval. The lease expires by itself,
        so the death of its holder only delays the next time."""
        key = keys.leader_key(self._name, work)
        milliseconds = max(1, int(seconds * 1000))
        lease = self._redis.set(key, "1", nx=True, px=milliseconds)
        return bool(await self._ask("leader lease", lease))

    async def release_leader_lease(self, work: str) -> None:
        """Let another replica try after the work failed, before the interval is over."""
        await self._ask("leader lease", self._redis.delete(keys.leader_key(self._name, work)))

    async def raise_shield(self, until_ms: int) -> None:
        """Tell the other replicas, with their next snapshot, to raise their shields."""
        await self._ask("shield", self._redis.hset(self._key("stats"), SHIELD, str(until_ms)))

    def _batch_runner(
        self, verb: str
    ) -> Callable[[Sequence[tuple[Any, ...]]], Awaitable[list[Standing]]]:
        async def run(items: Sequence[tuple[Any, ...]]) -> list[Standing]:
            if verb == "enter":
                latest_ms = self._deadline_ms()
                items = [(*fields, min(until_ms, latest_ms)) for *fields, until_ms in items]
            args = [field for item in items for field in item]
            return read_standings(await self._run(verb, args, batch=len(items)))

        return run

    def _store_ms(self) -> int:
        return self._clock.now_ms() if self._now_ms is None else self._now_ms()

    def _deadline_ms(self) -> int:
        """Return when this replica stops waiting for a batch that is sent now, by the clock of
        Redis. The clients of the batch may give up sooner."""
        return self._store_ms() + int(self._timeout_s * 1000) + LATE_MS

    async def _run(
        self, name: str, args: list[Any], *, batch: int = 0, is_probe: bool = False
    ) -> Any:
        """Run a script, with what the replica knows in front of its arguments
        (rooms/lua/parts/room.lua)."""
        unreported_ms = self._unreported_since_ms
        facts = (self._near_ms, self._existed_since_ms, unreported_ms)
        reply = await self._scripts.call(
            name,
            self._keys_of.get(name, self._keys),
            [self._settings, *("" if ms is None else ms for ms in facts), *args],
            batch=batch,
            is_probe=is_probe,
        )
        is_reported = unreported_ms is not None and name not in _READING
        if is_reported and unreported_ms == self._unreported_since_ms:
            self._unreported_since_ms = None
        return reply


def without_none(value: Any) -> Any:
    """Return the value without None in it, since null is a value to the scripts."""
    if isinstance(value, dict):
        return {name: without_none(part) for name, part in value.items() if part is not None}
    if isinstance(value, (list, tuple)):
        return [without_none(part) for part in value]
    return value


def _random() -> float:
    """Return a number in [0, 1) that decides the order in a random room, so nobody may foresee
    it."""
    return (int.from_bytes(os.urandom(7), "big") >> 3) / 2**53
