"""One room's state in the store: runs the scripts of lua/rooms, reads their replies."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from redis.exceptions import RedisError

from sidecar.base.errors import StoreError
from sidecar.base.model import Outcome, Pass, Standing, Ticket
from sidecar.store import keys
from sidecar.store.batch import Batcher
from sidecar.store.scripts import source

if TYPE_CHECKING:
    from types import TracebackType

    from redis.asyncio import Redis

    from sidecar.base.clock import StoreClock

#: Visitors in one script call. More would hold Redis too long for the others.
BATCH_LIMIT = 128
#: Revocations read at a time.
REVOCATIONS_LIMIT = 1000

#: The field of `stats` that says until when the shield is up.
_SHIELD = "shield_until_ms"

_VERBS = ("enter", "beat", "renew", "leave")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A room as the store knows it at one moment."""

    now_ms: int
    waiting: int
    active: int
    #: Of the active: called, and not yet here.
    provisional: int
    epoch: int
    revision: int
    #: What somebody who came now would wait; None when unknown.
    wait_ms: int | None
    #: Settings changed at run time, by name.
    overrides: dict[str, Any]
    counters: dict[str, float]
    #: visitor -> when it was revoked, ms
    revoked: dict[str, int]
    #: Until when some replica's shield is up, ms; 0 when none ever was.
    shield_until_ms: int


@dataclass(frozen=True, slots=True)
class Swept:
    """What a sweep removed."""

    waiting: int
    sessions: int
    revocations: int
    called: int
    more: bool


@dataclass(frozen=True, slots=True)
class Observer:
    """Told about every batch; the default looks away."""

    batch: Callable[[str, str, int, float], None] = lambda _room, _verb, _size, _seconds: None
    error: Callable[[str, str], None] = lambda _room, _verb: None


class RoomStore:
    """The scripts of one room.

    `settings` are the file's, as JSON for the scripts. `now_ms` overrides the
    store's time (tests). Every method raises StoreError when the store does not answer.
    """

    def __init__(  # noqa: PLR0913
        self,
        redis: Redis,
        room: str,
        *,
        settings: str,
        clock: StoreClock,
        observer: Observer | None = None,
        now_ms: Callable[[], int] | None = None,
        timeout_s: float = 1.0,
    ) -> None:
        self._redis = redis
        self._room = room
        self._settings = settings
        self._clock = clock
        self._observer = observer or Observer()
        self._now_ms = now_ms
        self._timeout_s = timeout_s
        self._keys = keys.room_keys(room)
        names = (*_VERBS, "sweep", "snapshot", "configure", "reset")
        self._scripts = {n: redis.register_script(source(f"rooms/{n}")) for n in names}
        self._enter, self._beat, self._renew, self._leave = (
            Batcher(self._batch_runner(verb), limit=BATCH_LIMIT) for verb in _VERBS
        )

    async def enter(self, visitor: str) -> Standing:
        """A session where a slot is free and nobody waits, else a place in line."""
        return await self._enter.submit((visitor, _random()))

    async def beat(self, ticket: Ticket) -> Standing:
        """A heartbeat; claims where called, puts back in line where lost."""
        return await self._beat.submit((ticket.visitor, ticket.order, ticket.epoch, _random()))

    async def renew(self, pass_: Pass) -> Standing:
        """A session's next stretch; brings it back where the store lost it."""
        return await self._renew.submit((pass_.visitor, pass_.order, pass_.started_ms))

    async def leave(self, visitor: str, *, why: str = "left") -> bool:
        """Gives up the place or session; whether there was one. `why`: left or released."""
        return (await self._leave.submit((visitor, why))).order == 1

    async def sweep(self, limit: int = 1000) -> Swept:
        _, waiting, sessions, revocations, called, more = await self._run("sweep", [limit])
        return Swept(waiting, sessions, revocations, called, bool(more))

    async def snapshot(self, *, revoked_since_ms: int = 0) -> Snapshot:
        reply = await self._run("snapshot", [revoked_since_ms, REVOCATIONS_LIMIT])
        now, waiting, active, provisional, epoch, revision, wait, config, stats, revoked = reply
        overrides = {
            name: json.loads(value)
            for name, value in _pairs(config)
            if name not in {"epoch", "revision"}
        }
        counters = {name: float(value) for name, value in _pairs(stats)}
        return Snapshot(
            now_ms=now,
            waiting=waiting,
            active=active,
            provisional=provisional,
            epoch=epoch,
            revision=revision,
            wait_ms=None if wait < 0 else wait,
            overrides=overrides,
            shield_until_ms=int(counters.pop(_SHIELD, 0)),
            counters=counters,
            revoked={name: int(float(value)) for name, value in _pairs(revoked)},
        )

    async def configure(self, changes: dict[str, Any]) -> int:
        """Sets settings that were checked; None goes back to the file's. The new revision."""
        args: list[Any] = []
        for name, value in changes.items():
            args += [name, "" if value is None else json.dumps(value)]
        _, revision = await self._run("configure", args)
        return int(revision)

    async def reset(self) -> int:
        """Empties the line. How many places there were."""
        _, removed, _ = await self._run("reset", [])
        return int(removed)

    async def line(self, *, offset: int, limit: int) -> list[tuple[str, int]]:
        """Waiting visitors and their order, from the head on."""
        return await self._range("waiting", offset, limit)

    async def sessions(self, *, offset: int, limit: int) -> list[tuple[str, int]]:
        """Active visitors and when their session ends (ms), soonest first."""
        return await self._range("active", offset, limit)

    async def take_turn(self, *, seconds: float) -> bool:
        """Whether this replica sweeps in this interval. It is given up by itself, so the
        death of its holder delays the next sweep and no more."""
        key = keys.sweep_turn_key(self._room)
        milliseconds = max(1, int(seconds * 1000))
        async with _translated("turn", self._timeout_s):
            return bool(await self._redis.set(key, "1", nx=True, px=milliseconds))

    async def raise_shield(self, until_ms: int) -> None:
        """Tells the other replicas, with their next snapshot, that newcomers come too fast."""
        key = keys.room_key(self._room, "stats")
        async with _translated("shield", self._timeout_s):
            await self._redis.hset(key, _SHIELD, str(until_ms))

    async def _range(self, name: str, offset: int, limit: int) -> list[tuple[str, int]]:
        async with _translated("list", self._timeout_s):
            rows = await self._redis.zrange(
                keys.room_key(self._room, name), offset, offset + limit - 1, withscores=True
            )
        pairs: list[tuple[bytes, float]] = list(rows)  # type: ignore[arg-type] # the driver's type is a union of all its replies
        return [(_text(member), int(score)) for member, score in pairs]

    def _batch_runner(
        self, verb: str
    ) -> Callable[[Sequence[tuple[Any, ...]]], Awaitable[list[Standing]]]:
        async def run(items: Sequence[tuple[Any, ...]]) -> list[Standing]:
            args = [field for item in items for field in item]
            began = time.perf_counter()
            reply = await self._run(verb, args)
            self._observer.batch(self._room, verb, len(items), time.perf_counter() - began)
            return _standings(reply)

        return run

    async def _run(self, name: str, args: list[Any]) -> Any:
        now = "" if self._now_ms is None else self._now_ms()
        try:
            async with _translated(name, self._timeout_s):
                reply = await self._scripts[name](
                    keys=self._keys, args=[now, self._settings, *args]
                )
        except StoreError:
            self._observer.error(self._room, name)
            raise
        self._clock.observe(reply[0])
        return reply


def _standings(reply: Any) -> list[Standing]:
    now, waiting, _active, epoch, _revision, spread, visitors = reply
    return [
        Standing(
            outcome=Outcome(outcome),
            now_ms=now,
            order=int(order),
            started_ms=started,
            expires_ms=expires,
            ahead=ahead,
            waiting=waiting,
            refresh_ms=refresh,
            wait_ms=None if wait < 0 else wait,
            spread=spread / 1000,
            limited_ms=limited,
            epoch=epoch,
        )
        for outcome, order, started, expires, ahead, refresh, wait, limited in visitors
    ]


class _translated:  # noqa: N801 - reads as a statement
    """Turns what the driver raises into StoreError, and bounds the time."""

    def __init__(self, what: str, timeout_s: float) -> None:
        self._what = what
        self._timeout = asyncio.timeout(timeout_s)

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            await self._timeout.__aexit__(kind, error, trace)
        except TimeoutError:
            raise StoreError(f"{self._what}: the store did not answer in time") from None
        if isinstance(error, (RedisError, OSError)):
            raise StoreError(f"{self._what}: {error or type(error).__name__}") from error


def _random() -> float:
    return secrets.randbits(53) / 2**53


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _pairs(flat: list[Any]) -> list[tuple[str, str]]:
    texts = [_text(value) for value in flat]
    return list(zip(texts[::2], texts[1::2], strict=True))
