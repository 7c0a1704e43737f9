"""Runs the Lua scripts of rooms/lua for one room, some in batches, and reads their replies."""

import json
import math
import os
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

from sidecar.kit.batch import CallBatcher
from sidecar.kit.clock import MAX_LAG_MS, StoreClock
from sidecar.kit.errors import StoreError
from sidecar.kit.shorten import shorten_values
from sidecar.rooms import redis_keys as keys
from sidecar.rooms.adaptive.signals import LONGEST_S
from sidecar.rooms.appearance import APPEARANCE
from sidecar.rooms.messages import TABLE_FIELD, split_json_message, split_message, to_json
from sidecar.rooms.store.lists import Lists
from sidecar.rooms.store.plain_commands import PlainCommands
from sidecar.rooms.store.replies import SHIELD_FIELD, Snapshot, Sweep, read_snapshot, read_standings
from sidecar.rooms.store.transfer import Transfer
from sidecar.storage.redis.connect import Store
from sidecar.storage.redis.driver_errors import text as text_of
from sidecar.storage.redis.scripts import Observer, RedisScripts
from sidecar.visitors.model import Pass, Standing, Ticket
from sidecar.visitors.verdict_lifetime import RELEASE_HOLD_MS, RESPONSE_MS

#: The maximum number of visitors in one script call. More would block Redis for too long.
BATCH_LIMIT = 128
#: The maximum number of visitors in one script call of a room with sub-queues or classes. There
#: Redis needs two or three times as long for each visitor.
LINES_BATCH_LIMIT = 64
#: The maximum number of revocations that one snapshot reads.
REVOCATIONS_LIMIT = 1000

#: How many of ROOM_KEYS the most frequent scripts get (rooms/lua/parts/room.lua).
_KEY_COUNTS = {"enter": 15, "beat": 14, "renew": 13}
#: The scripts that write nothing, not even what the replica reports with each call.
_READ_ONLY_SCRIPTS = {"forecast", "find", "queue"}


@dataclass(frozen=True, slots=True)
class ClassClaim:
    """A class that a visitor claims. `grant` is the id of a one-time grant, which is valid until
    `expires_ms`. If `grant` is "", the class may be claimed any number of times."""

    class_name: str
    grant: str = ""
    expires_ms: int = 0


NO_CLAIM = ClassClaim("")


@dataclass(frozen=True, slots=True)
class Lot:
    """The number in [0, 1) that decides a place in the pre-queue that begins at `begins_ms`."""

    number: float
    begins_ms: int


def _choose_hash(setting: str) -> str:
    """Return the name of the Redis hash that stores a setting changed at run time. Long values are
    not in `config`, because most scripts read all of `config` with each call."""
    return "look" if setting in APPEARANCE or setting == TABLE_FIELD else "config"


@dataclass(frozen=True, slots=True)
class Pace:
    """A forecast of how the queue moves."""

    cap: int
    #: How many waiting visitors are called within a minute.
    called_in_a_minute: int
    #: In how many ms the first and the last waiting visitor are called; -1 if unknown or never.
    first_ms: int
    last_ms: int


class ChangedSinceError(Exception):
    """Raised if a setting was changed again since the change to undo. Holds the setting's name."""


class RoomStore(PlainCommands):
    """Runs the Lua scripts of one room. Every method raises StoreError if Redis does not reply.
    While Redis counts as unavailable, all scripts but `snapshot` fail at once."""

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
        settings: The configured settings, as RoomSettings.get_script_settings returns them.
        now_ms: Replaces the time of Redis (for tests).
        replica: The replica's id, by which Redis counts replicas.
        """
        super().__init__(redis, room, timeout_s=timeout_s)
        # The infinite probe timeout lets only snapshot() probe whether Redis is available again.
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
        self._replica = replica
        self._existed_since_ms: int | None = None
        self._unreported_since_ms: int | None = None
        self._longest_near_ms: int | None = None
        self._measured_at = ""
        self._clock = clock
        self._now_ms = now_ms
        #: Reads the room's visitors and log, for operators.
        self.lists = Lists(redis, room, self._run, timeout_s=timeout_s)
        #: Reads and writes the room's visitors in pages, to move them to another Redis.
        self.transfer = Transfer(redis, room, self._run, timeout_s=timeout_s)
        self._keys = keys.room_keys(room)
        self._script_keys = {script: self._keys[:number] for script, number in _KEY_COUNTS.items()}
        self._batchers = [
            CallBatcher(partial(self._run_batch, script), limit=BATCH_LIMIT)
            for script in ("enter", "beat", "renew", "leave")
        ]
        self._enter, self._beat, self._renew, self._leave = self._batchers
        self.set_settings(settings)

    def set_settings(self, settings: Mapping[str, Any]) -> None:
        """Use these configured settings (see __init__) for all later scripts."""
        self._settings = json.dumps(settings)
        is_plain = not settings.keys() & {"classes", "lines"}
        for batcher in self._batchers:
            batcher.limit = BATCH_LIMIT if is_plain else LINES_BATCH_LIMIT

    @property
    def is_away(self) -> bool:
        """True while Redis counts as unavailable, and all scripts but `snapshot` fail at once."""
        return self._scripts.is_away

    def record_room_existed_since(self, since_ms: int) -> None:
        """Record that the room existed at a time. If Redis has only newer data, it was emptied."""
        if self._existed_since_ms is None or since_ms < self._existed_since_ms:
            self._existed_since_ms = since_ms

    def mark_unreported_admissions(self, now_ms: int) -> None:
        """Keep the time since which this replica has admitted visitors or extended passes without
        Redis. It is `now_ms`, unless an earlier time is kept. The next script call reports it."""
        if self._unreported_since_ms is None:
            self._unreported_since_ms = now_ms

    def set_longest_refresh_near_head(self, refresh_ms: int | None) -> None:
        """Set the longest refresh (poll interval) of visitors near the head, or None if it is
        unknown. If Redis loses its data, these visitors poll again within that time."""
        self._longest_near_ms = refresh_ms

    async def enter(
        self,
        visitor: str,
        *,
        address: str = "",
        claim: ClassClaim = NO_CLAIM,
        lot: Lot | None = None,
    ) -> Standing:
        """Give a newcomer a session if a slot is free and nobody waits, else a place in the queue.

        `address` is the address digest for max_places_per_address. In a pre-queue, a visitor
        without a `lot` in that pre-queue gets no place."""
        number, lot_begins_ms = (_random_float(), 0) if lot is None else (lot.number, lot.begins_ms)
        claim_fields = claim.class_name, claim.grant, claim.expires_ms
        began, until_ms = time.monotonic(), self._get_now_ms() + RESPONSE_MS
        standing = await self._enter.submit(
            (visitor, repr(number), lot_begins_ms, address, *claim_fields, until_ms)
        )
        if time.monotonic() - began > RESPONSE_MS / 1000:
            raise StoreError("enter: the reply came when no client waited for it any more")
        return standing

    def beat(self, ticket: Ticket, *, address: str = "") -> Awaitable[Standing]:
        """Keep a waiting visitor's place, restore a lost place, or begin the session of a called
        visitor. `address` has the same meaning as in enter()."""
        jitter = round(random.random(), 3)  # noqa: S311 - only spreads polls over time
        place = ticket.visitor, ticket.order, ticket.epoch
        return self._beat.submit((*place, jitter, ticket.joined_ms, ticket.signed_ms, address))

    def renew(self, pass_: Pass, *, is_expired: bool = False) -> Awaitable[Standing]:
        """Renew a session. Create the session again if Redis lost it or never knew it. A pass that
        `is_expired` counts only if its session was extended."""
        admission = "expired" if is_expired else ""
        if not (pass_.renewed_ms or is_expired):
            admission = "waited" if pass_.joined_ms < pass_.started_ms else "new"
        return self._renew.submit(
            (pass_.visitor, pass_.order, pass_.started_ms, pass_.expires_ms, admission)
        )

    async def leave(self, visitor: str, *, why: str = "left", by: str = "") -> bool:
        """Remove a visitor's place or session. Return False if the visitor had neither. `why` is
        "left" or "released"; `by` is the operator's name."""
        return (await self._leave.submit((visitor, by, why))).order == 1

    async def extend(self, visitor: str, extend_ms: int) -> bool:
        """Extend a visitor's session to `extend_ms` from now, but by at most max_extension. A later
        end stays as it is. Return False if the visitor has no session."""
        _, has_session = await self._run("extend", [visitor, extend_ms])
        return bool(has_session)

    async def undo_enter(self, visitor: str, claim: ClassClaim = NO_CLAIM) -> bool:
        """Remove a place or session whose visitor never got the reply, and make the claimed grant
        valid again. Return False if there is no such place or session."""
        return (await self._leave.submit((visitor, claim.grant, "unseen"))).order == 1

    async def sweep(self, limit: int = 1000) -> Sweep:
        _, waiting, sessions, revocations, called, has_more = await self._run("sweep", [limit])
        return Sweep(waiting, sessions, revocations, called, bool(has_more))

    async def snapshot(self, *, revoked_since_ms: int = 0) -> Snapshot:
        """Read the state of the room. This script is sent even while Redis counts as unavailable,
        to detect when Redis replies again."""
        args = [revoked_since_ms, REVOCATIONS_LIMIT, self._replica, self._measured_at]
        snapshot = read_snapshot(await self._run("snapshot", args, is_probe=True))
        self.record_room_existed_since(snapshot.born_ms)
        self._measured_at = repr(snapshot.counters["measured_at"])
        return snapshot

    async def configure(
        self,
        changes: dict[str, Any],
        *,
        by: str = "",
        why: str = "",
        values_to_undo: Mapping[str, str] | None = None,
    ) -> int:
        """Change settings, which the caller has validated, and return the new revision. None resets
        a setting to its configured value. `why` is the operator's reason, for the log.

        For an undo, `values_to_undo` has the JSON value of each setting after the change to undo.
        Raises ChangedSinceError if a setting no longer has this value."""
        what = "change" if values_to_undo is None else "undo"
        # No setting is called "why".
        detail = {**({"why": why} if why else {}), **shorten_values(changes)}
        args: list[Any] = [by, json.dumps(detail), what]
        expected_values = None if values_to_undo is None else split_json_message(values_to_undo)
        for name, value in split_message(changes).items():
            expected = "*" if expected_values is None else expected_values[name]
            key_index = keys.ROOM_KEYS.index(_choose_hash(name)) + 1
            args += [key_index, name, to_json(drop_none(value)), expected]
        _, revision, changed_setting = await self._run("configure", args)
        if changed_setting:
            name = text_of(changed_setting)
            raise ChangedSinceError("message" if name == TABLE_FIELD else name)
        return int(revision)

    async def store_learned(
        self, learned: Mapping[str, Any], *, expected: str, event: str = "", field: str = "learned"
    ) -> bool:
        """Store what an adaptive room has learned, or a hold if `field` is "hold". Return False and
        change nothing if Redis no longer has the `expected` text, which read_learned() returned.
        `event` is the site's new state in words, for the history."""
        _, is_stored = await self._run("adapt", [expected, json.dumps(learned), event, "", field])
        return bool(is_stored)

    async def forget_learned(self, *, by: str) -> None:
        await self._run("adapt", ["*", "", "", by, "learned"])

    async def read_learned(self, field: str = "learned") -> str:
        """Return what an adaptive room has learned ("learned"), or its "hold", as JSON, or ""."""
        stored = await self._send("adapt", self._redis.hget(self._key("config"), field))
        return "" if stored is None else text_of(stored)

    async def count_responses(self, step: int, counts: Mapping[str, int]) -> None:
        """Add counts of the site's sampled responses (rooms/adaptive/signals.py) to a step."""
        key, commands = keys.site_key(self._name, step), self._redis.pipeline(transaction=False)
        for name, number in counts.items():
            commands.hincrby(key, name, number)
        commands.expire(key, LONGEST_S + 30)
        await self._send("adapt", commands.execute())

    async def read_responses(self, steps: Iterable[int]) -> list[dict[str, int]]:
        commands = self._redis.pipeline(transaction=False)
        for step in steps:
            commands.hgetall(keys.site_key(self._name, step))
        replies = await self._send("adapt", commands.execute())
        return [{text_of(k): int(v) for k, v in reply.items()} for reply in replies]

    async def forecast(self, changes: dict[str, Any]) -> tuple[int, int, int, Pace, Pace]:
        """Return the time by Redis's clock in ms, how many visitors wait, how many are active, the
        forecast with the current settings, and the forecast with the changes."""
        fields = ((name, json.dumps(drop_none(value))) for name, value in changes.items())
        reply = await self._run("forecast", [*chain.from_iterable(fields)])
        now_ms, waiting, active, *paces = reply
        return now_ms, waiting, active, Pace(*paces[:4]), Pace(*paces[4:])

    async def reset(self, *, by: str = "") -> int:
        """Empty the queue, and return the number of removed places."""
        _, removed, _ = await self._run("reset", [by])
        return int(removed)

    async def move(self, visitor: str, position: int, *, by: str, why: str = "") -> int:
        """Move a waiting visitor to a position in the queue. Position 0 means back to the place
        before the first move. Return the new position; it is smaller than `position` if no order
        between two visitors is free there.

        Return 0 if the visitor is not waiting, -1 if no order is free nearby, -2 if the pre-queue
        is not drawn yet, -3 if the visitor was never moved and so cannot go back."""
        _, new_position = await self._run("move", [visitor, position, by, why])
        return int(new_position)

    async def reclassify(
        self, visitor: str, claim: ClassClaim, *, by: str = "", why: str = ""
    ) -> int:
        """Give a waiting visitor a class, "" for none, and return the visitor's position. Without
        an operator (`by` is ""), the class changes only if that moves the visitor ahead.

        Return 0 if the visitor is not waiting, -1 if the grant was used, -2 if the place was drawn.
        """
        _, new_position = await self._run(
            "grade", [visitor, claim.class_name, claim.grant, claim.expires_ms, by, why]
        )
        return int(new_position)

    async def restore_lost_data(
        self, revoked: dict[str, int], overrides: dict[str, Any], *, epoch: int
    ) -> None:
        """Write revocations (visitor -> time in ms) and changed settings to a Redis that was
        emptied or has older data. Do not overwrite values that Redis has."""
        stored = split_message(overrides).items()
        config = {
            name: json.dumps(value)
            for name, value in stored
            if (name, value) != (TABLE_FIELD, None)
        }
        if epoch:
            config["epoch"] = str(epoch)
        for name, value in config.items():
            key = self._key(_choose_hash(name))
            await self._send("remind", self._redis.hsetnx(key, name, value))
        rows = list(revoked.items())
        for start in range(0, len(rows), REVOCATIONS_LIMIT):
            part = dict(rows[start : start + REVOCATIONS_LIMIT])
            for name in ("revoked", "spent"):
                await self._send("remind", self._redis.zadd(self._key(name), part, nx=True))
            ends = {visitor: at + RELEASE_HOLD_MS for visitor, at in part.items()}
            command = self._redis.zadd(self._key("active"), ends, xx=True, lt=True)
            await self._send("remind", command)

    async def acquire_leader_lease(self, task: str, *, seconds: float) -> bool:
        """Try to get the leader lease of this interval, and return True if this replica got it. The
        lease expires, so if its holder dies, another replica does the task in the next interval."""
        key, milliseconds = keys.leader_key(self._name, task), max(1, int(seconds * 1000))
        lease = self._redis.set(key, "1", nx=True, px=milliseconds)
        return bool(await self._send("leader lease", lease))

    async def release_leader_lease(self, task: str) -> None:
        """Release the lease after the task failed, so that another replica may try at once."""
        await self._send("leader lease", self._redis.delete(keys.leader_key(self._name, task)))

    async def raise_shield(self, until_ms: int) -> None:
        """Store the time until which the shield stays up, for the other replicas' snapshots."""
        write = self._redis.hset(self._key("stats"), SHIELD_FIELD, str(until_ms))
        await self._send("shield", write)

    async def _run_batch(self, script: str, items: Sequence[tuple[Any, ...]]) -> list[Standing]:
        if script == "enter":
            latest_ms = self._find_deadline_ms()
            items = [(*fields, min(until_ms, latest_ms)) for *fields, until_ms in items]
        args = [*chain.from_iterable(items)]
        return read_standings(await self._run(script, args, batch=len(items)))

    def _get_now_ms(self) -> int:
        return self._clock.now_ms() if self._now_ms is None else self._now_ms()

    def _find_deadline_ms(self) -> int:
        """Return the time, by Redis's clock, at which this replica stops waiting for the reply to a
        batch that is sent now. The clients whose calls are in the batch may give up earlier."""
        return self._get_now_ms() + int(self._timeout_s * 1000) + MAX_LAG_MS

    async def _run(
        self, name: str, args: list[Any], *, batch: int = 0, is_probe: bool = False
    ) -> Any:
        """Run a script and return its reply. The script's arguments begin with the settings and
        three times that only this replica knows (rooms/lua/parts/room.lua)."""
        unreported_ms = self._unreported_since_ms
        times_ms = (self._longest_near_ms, self._existed_since_ms, unreported_ms)
        reply = await self._scripts.call(
            name,
            self._script_keys.get(name, self._keys),
            [self._settings, *("" if ms is None else ms for ms in times_ms), *args],
            batch=batch,
            is_probe=is_probe,
        )
        is_reported = unreported_ms is not None and name not in _READ_ONLY_SCRIPTS
        if is_reported and unreported_ms == self._unreported_since_ms:
            self._unreported_since_ms = None
        return reply


def drop_none(value: Any) -> Any:
    """Return the value without its entries that are None: the Lua scripts treat null as a value."""
    if isinstance(value, dict):
        return {name: drop_none(part) for name, part in value.items() if part is not None}
    if isinstance(value, (list, tuple)):
        return [drop_none(part) for part in value]
    return value


def _random_float() -> float:
    """Return an unpredictable number in [0, 1), for rooms whose queueing_method is random."""
    return (int.from_bytes(os.urandom(7), "big") >> 3) / 2**53
