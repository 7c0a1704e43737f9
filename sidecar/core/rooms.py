"""The rules of a room: who passes, who waits, what each is given.

Most verdicts about passes are made here from the signature alone; only joins,
heartbeats and renewals reach the store.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import structlog

from sidecar.base.errors import ConfigError, StoreError, UnknownRoomError
from sidecar.base.model import (
    RELEASE_GRACE_MS,
    RENEW_MIN_MS,
    VERDICT_TTL_MS,
    Outcome,
    Pass,
    Standing,
    State,
    Ticket,
)
from sidecar.base.tokens import Tokens, new_visitor
from sidecar.core.estimate import estimate
from sidecar.core.shield import Shelter, Shield
from sidecar.store.rooms import REVOCATIONS_LIMIT, Snapshot

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from sidecar.base.clock import StoreClock
    from sidecar.base.settings import RoomSettings
    from sidecar.core.estimate import Wait
    from sidecar.store.rooms import RoomStore

#: A ticket that was signed longer ago is signed anew at a heartbeat.
RESIGN_MS = 3_600_000
#: How many unanswered newcomers a replica remembers.
ORPHANS = 1000

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Answer:
    """What a visitor is told, and the token to give them (None: keep what they have)."""

    state: State
    token: Ticket | Pass | None = None
    standing: Standing | None = None
    joined_ms: int | None = None
    #: The store did not answer: newcomers wait, those inside keep passing.
    store_away: bool = False
    #: Holds for VERDICT_TTL_MS: the pass verifies, and is not due to be renewed in that time;
    #: or the shield is up before whoever comes without a cookie.
    is_settled: bool = False

    @property
    def wait(self) -> Wait | None:
        waits = self.standing is not None and self.state is State.WAITING
        return estimate(self.standing) if waits and self.standing else None


@dataclass(slots=True)
class Room:
    """One room as this replica sees it."""

    name: str
    file_settings: RoomSettings
    tokens: Tokens
    store: RoomStore
    clock: StoreClock
    #: The file's settings with those changed at run time laid over them.
    settings: RoomSettings = field(init=False)
    snapshot: Snapshot | None = None
    _revoked: dict[str, int] = field(default_factory=dict)
    _revoked_seen_ms: int = 0
    #: Newcomers whose `enter` got no reply. Bounded: what is not released ends by itself.
    _orphans: deque[str] = field(default_factory=lambda: deque(maxlen=ORPHANS))
    _shield: Shield = field(default_factory=Shield)
    _telling: set[asyncio.Task[None]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.settings = self.file_settings

    async def check(
        self, token: Ticket | Pass | None, *, may_join: bool, is_asked: bool = False
    ) -> Answer:
        """The verdict about one request.

        `may_join`: whether a newcomer takes a place; otherwise they are told NOT_QUEUED, and
        also while the shield is up, unless they ask for a place by name (`is_asked`).
        """
        if self.is_open:
            return Answer(State.ADMITTED)
        try:
            if isinstance(token, Pass):
                answer = await self._by_pass(token)
            elif isinstance(token, Ticket):
                answer = await self._by_ticket(token)
            else:
                answer = None
            if answer is None:
                answer = await self._newcomer(may_join=may_join, is_asked=is_asked)
        except StoreError as error:
            # Counted, and said once a second by the refresher; here it would flood the log.
            log.debug("store_away", room=self.name, error=str(error))
            if isinstance(token, Pass) and self._verifies(token):
                return Answer(State.ADMITTED)
            if isinstance(token, Ticket):
                return Answer(State.WAITING, joined_ms=token.joined_ms, store_away=True)
            return Answer(State.NOT_QUEUED, store_away=True)
        return answer

    async def leave(self, token: Ticket | Pass | None, *, why: str = "left") -> None:
        """Gives up the place or the session that the token proves."""
        if token is not None:
            await self.release(token.visitor, why=why)

    async def release(self, visitor: str, *, why: str = "released") -> bool:
        """Ends a visitor's stay; whether there was one. All replicas refuse their pass
        RELEASE_GRACE_MS later."""
        known = await self.store.leave(visitor, why=why)
        self._revoked[visitor] = self.clock.now_ms()
        return known

    async def refresh(self) -> Snapshot:
        """Learns changed settings and revoked passes from the store; gives back the slots
        that nobody knows they have."""
        await self._release_orphans()
        while True:
            snapshot = await self.store.snapshot(revoked_since_ms=self._revoked_seen_ms)
            self._revoked.update(snapshot.revoked)
            newest = max(snapshot.revoked.values(), default=self._revoked_seen_ms)
            if len(snapshot.revoked) < REVOCATIONS_LIMIT or newest == self._revoked_seen_ms:
                break
            self._revoked_seen_ms = newest
        self._revoked_seen_ms = newest
        self._forget_revoked(before_ms=snapshot.now_ms - self._pass_ms)
        self.snapshot = snapshot
        self._shield.learn(snapshot.shield_until_ms)
        try:
            self.settings = self.file_settings.changed(snapshot.overrides)
        except ConfigError as error:
            log.error("overrides_ignored", room=self.name, problems=error.problems)
        return snapshot

    async def _release_orphans(self) -> None:
        while self._orphans:
            visitor = self._orphans.popleft()  # at once: refreshes may run side by side
            try:
                await self.store.leave(visitor, why="released")
            except StoreError:
                self._orphans.append(visitor)
                raise

    @property
    def is_open(self) -> bool:
        """Whether everybody passes, uncounted."""
        return self.settings.suspended or self.settings.queueing_method == "passthrough"

    @property
    def _pass_ms(self) -> int:
        return int(self.settings.session_duration * 1000)

    def _verifies(self, pass_: Pass) -> bool:
        now_ms = self.clock.now_ms()
        revoked_ms = self._revoked.get(pass_.visitor)
        if revoked_ms is not None and now_ms >= revoked_ms + RELEASE_GRACE_MS:
            return False
        return now_ms < pass_.expires_ms

    def _is_due(self, pass_: Pass, in_ms: int = 0) -> bool:
        due_ms = max(self._pass_ms // 6, RENEW_MIN_MS)
        return self.clock.now_ms() + in_ms >= pass_.renewed_ms + due_ms

    async def _by_pass(self, pass_: Pass) -> Answer | None:
        if not self._verifies(pass_):
            return None
        if not self._is_due(pass_):
            return Answer(State.ADMITTED, is_settled=not self._is_due(pass_, in_ms=VERDICT_TTL_MS))
        return self._answer(await self.store.renew(pass_), pass_)

    async def _by_ticket(self, ticket: Ticket) -> Answer | None:
        return self._answer(await self.store.beat(ticket), ticket)

    async def _newcomer(self, *, may_join: bool, is_asked: bool) -> Answer:
        if not may_join:
            return Answer(State.NOT_QUEUED)
        if not is_asked:
            shelter = self._meet()
            if shelter is not Shelter.NONE:
                return Answer(State.NOT_QUEUED, is_settled=shelter is Shelter.UP)
        return await self._enter()

    def _meet(self) -> Shelter:
        known_ms = self._shield.until_ms
        shelter = self._shield.meet(self.settings.shield_above, self.clock.now_ms())
        if self._shield.until_ms != known_ms:
            log.warning("shield_up", room=self.name)
            task = asyncio.create_task(self._tell_shield())
            self._telling.add(task)
            task.add_done_callback(self._telling.discard)
        return shelter

    async def _tell_shield(self) -> None:
        """So that all replicas raise theirs. Without the store, each has its own."""
        with contextlib.suppress(StoreError):
            await self.store.raise_shield(self._shield.until_ms)

    async def _enter(self) -> Answer:
        visitor = new_visitor()
        try:
            standing = await self.store.enter(visitor)
        except StoreError:
            # It may have been done all the same, for somebody who was given no cookie.
            self._orphans.append(visitor)
            raise
        newcomer = Ticket(visitor, standing.order, standing.now_ms, standing.epoch)
        answer = self._answer(standing, newcomer)
        if answer is None:  # no script says GONE to somebody new
            return Answer(State.NOT_QUEUED)
        return answer

    def _answer(self, standing: Standing, token: Ticket | Pass) -> Answer | None:
        """None: the token is worth nothing, its bearer is a newcomer."""
        match standing.outcome:
            case Outcome.ADMITTED:
                given = Pass(
                    token.visitor, standing.order, token.joined_ms, token.epoch,
                    started_ms=standing.started_ms,
                    renewed_ms=standing.now_ms,
                    expires_ms=standing.expires_ms,
                )  # fmt: skip
                return Answer(State.ADMITTED, given, standing, token.joined_ms)
            case Outcome.WAITING:
                ticket = Ticket(token.visitor, standing.order, token.joined_ms, standing.epoch)
                keeps = (
                    isinstance(token, Ticket)
                    and token.epoch == standing.epoch
                    and token.signed_ms > standing.now_ms - RESIGN_MS
                )
                return Answer(State.WAITING, None if keeps else ticket, standing, token.joined_ms)
            case Outcome.FULL:
                return Answer(State.FULL, standing=standing)
            case Outcome.REJECTED:
                return Answer(State.CLOSED, standing=standing)
            case Outcome.GONE:
                return None

    def _forget_revoked(self, before_ms: int) -> None:
        """A pass that old is due, and the store refuses it."""
        self._revoked = {v: at for v, at in self._revoked.items() if at >= before_ms}


class Rooms:
    """All rooms of this replica."""

    def __init__(self, rooms: Iterable[Room]) -> None:
        self._rooms = {room.name: room for room in rooms}

    def __iter__(self) -> Any:
        return iter(self._rooms.values())

    def find(self, name: str | None) -> Room | None:
        return self._rooms.get(name) if name else None

    def get(self, name: str) -> Room:
        """Raises UnknownRoomError."""
        room = self._rooms.get(name)
        if room is None:
            raise UnknownRoomError(name)
        return room
