"""The rules of a room: who passes, who waits, what each is given.

Most verdicts about passes are made here from the signature alone; only joins,
heartbeats and renewals reach the store.
"""

import asyncio
import contextlib
from collections import deque
from dataclasses import dataclass, field, replace

import structlog

from sidecar.kit.clock import StoreClock
from sidecar.kit.errors import StoreError, StoreUnavailableError
from sidecar.kit.names import Named
from sidecar.rooms.bearer import NOBODY, Bearer, belongs_to_another
from sidecar.rooms.exemptions import exempts_some, find_outside, is_exempt, is_for_part, is_outside
from sidecar.rooms.fail_open import Fallback
from sidecar.rooms.longest_refresh import Refreshes
from sidecar.rooms.pass_lifetime import renewal_due_ms
from sidecar.rooms.places import Draws, claim_of, lot_of_newcomer, reclassified, ticket_of, with_lot
from sidecar.rooms.settings import RoomSettings, effective
from sidecar.rooms.shield import Shelter, Shield
from sidecar.rooms.store.replies import Snapshot
from sidecar.rooms.store.scripts import REVOCATIONS_LIMIT, Claim, RoomStore
from sidecar.visitors.answer import Answer, answer_of
from sidecar.visitors.grants import Grants
from sidecar.visitors.model import (
    DEFAULT_REFRESH_MS,
    RESIGN_MS,
    Outcome,
    Outside,
    Pass,
    Phase,
    Standing,
    State,
    Ticket,
    Token,
)
from sidecar.visitors.tokens import Tokens, new_visitor
from sidecar.visitors.verdict_lifetime import RELEASE_GRACE_MS, VERDICT_TTL_MS

#: How many unanswered newcomers a replica remembers.
ORPHANS = 1000
#: How many first passes a replica remembers to be used. It tells the store of others again.
USED = 10_000

log = structlog.get_logger()


@dataclass(slots=True)
class Room:
    """One room as this replica sees it."""

    name: str
    file_settings: RoomSettings
    tokens: Tokens
    store: RoomStore
    clock: StoreClock
    #: Without keys no grant is believed.
    grants: Grants = field(default_factory=lambda: Grants("", []))
    #: None: nothing is drawn but by chance.
    draws: Draws | None = None
    #: The file's settings with those changed at run time laid over them.
    settings: RoomSettings = field(init=False)
    #: Whether everybody passes, uncounted.
    is_open: bool = field(init=False)
    #: Whether verdicts depend on the client, and not on its cookie alone.
    checks_bearer: bool = field(init=False)
    snapshot: Snapshot | None = None
    _revoked: dict[str, int] = field(default_factory=dict)
    _revoked_seen_ms: int = 0
    #: Newcomers whose `enter` got no reply. Bounded: what is not released ends by itself.
    _orphans: deque[tuple[str, Claim]] = field(default_factory=lambda: deque(maxlen=ORPHANS))
    _used: dict[str, None] = field(default_factory=dict)
    _shield: Shield = field(default_factory=Shield)
    _fallback: Fallback = field(default_factory=Fallback)
    _refreshes: Refreshes = field(default_factory=Refreshes)
    _reporting: set[asyncio.Task[None]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._learn(self.file_settings)

    def _learn(self, settings: RoomSettings) -> None:
        """Computes once what each request needs of the settings."""
        self.settings = settings
        self.is_open = settings.is_open
        self.checks_bearer = (
            settings.bind_pass in {"user_agent", "ip"}
            or settings.max_places_per_address is not None
            or is_for_part(settings)
            or exempts_some(settings)
        )

    async def check(  # noqa: C901 - in one piece: each coroutine more is paid with each poll
        self,
        token: Token | None,
        *,
        may_join: bool,
        from_page: bool = False,
        bearer: Bearer = NOBODY,
    ) -> Answer:
        """As Gate says. While the shield is up, only the waiting page's newcomers join."""
        if self.is_open:
            return Answer(State.ADMITTED)
        drawn, fingerprint = None, ""
        if self.checks_bearer or bearer is not NOBODY or isinstance(token, Outside):
            uncounted = self._uncounted(token, bearer)
            if uncounted is not None:
                return uncounted
            fingerprint = bearer.fingerprint(self.name, self.settings)
            if isinstance(token, Outside):
                drawn, token = token.draw, None
        shown, token = token, self._accepted(token, fingerprint)
        try:
            if isinstance(token, Pass):
                answer = await self._by_pass(token, fingerprint)
            elif isinstance(token, Ticket):
                if bearer is not NOBODY:
                    token = await reclassified(token, claim_of(bearer), self.settings, self.store)
                placed = with_lot(token, self.settings, self.draws)
                address = bearer.place(self.name, self.settings)
                standing = await self.store.beat(placed, address=address)
                answer = answer_of(self._noted(standing), token)
            else:
                answer = None
            if answer is None:
                if may_join and token is None:
                    await self._end_elsewhere(shown)
                answer = await self._newcomer(may_join, from_page, bearer, drawn)
        except StoreError as error:
            # Counted, and logged once a second by the refresher; here it would flood the log.
            log.debug("store_away", room=self.name, error=str(error))
            answer = self._fail_open(token, may_join=may_join)
        if fingerprint and isinstance(answer.token, Pass):
            return replace(answer, token=replace(answer.token, fingerprint=fingerprint))
        return answer

    def _uncounted(self, token: Token | None, bearer: Bearer) -> Answer | None:
        """The verdict about an exempt request, or a visitor who was outside and still is."""
        if is_exempt(self.settings, bearer):
            return Answer(State.ADMITTED, uncounted="exempt")
        if not isinstance(token, Outside) or not is_outside(token.draw, self.settings):
            return None
        keeps = token.signed_ms > self.clock.now_ms() - RESIGN_MS
        given = None if keeps else token
        return Answer(State.ADMITTED, given, is_settled=keeps, uncounted="outside")

    def _accepted(self, token: Ticket | Pass | None, fingerprint: str) -> Ticket | Pass | None:
        """The token, unless it is somebody else's, or is known to be given up."""
        if token is None or (
            isinstance(token, Pass) and belongs_to_another(token.fingerprint, fingerprint)
        ):
            return None
        if self._honours(token):
            self.store.room_existed_since(token.joined_ms)
            return token
        return None if token.visitor in self._revoked else token

    async def _end_elsewhere(self, shown: Token | None) -> None:
        """Of a pass that another address brings: IPv4 and IPv6 in turn would fill two slots."""
        if isinstance(shown, Pass) and shown.fingerprint[:1] == "n" and self._honours(shown):
            await self.leave(shown)

    def _fail_open(self, token: Ticket | Pass | None, *, may_join: bool) -> Answer:
        """The verdict without the store. The replica gives passes by itself only while Redis is
        unavailable, not after one failed call."""
        now_ms, settings, is_away = self.clock.now_ms(), self.settings, self.store.is_away
        # Nobody is let in before a room has opened, or after it has closed.
        is_open = settings.moments(now_ms).phase is Phase.OPEN
        may_enter = is_away and is_open and not self.clock.is_doubtful
        given: Pass | None = None
        is_new = False
        if isinstance(token, Pass) and self._honours(token):
            given = self._fallback.longer(token, settings, now_ms) if is_away else None
            if given is None and is_away and self._may_be_unused(token):
                self._fallback.keep(replace(token, renewed_ms=0))  # Redis hears that it is used
            if given is None:
                return Answer(State.ADMITTED, is_settled=self._is_settled(token))
        elif isinstance(token, Ticket):
            given = self._fallback.waiting(token, settings, now_ms) if may_enter else None
            if given is None:
                self._refreshes.note(DEFAULT_REFRESH_MS, now_ms)
                # Signed anew: nginx chooses the replica by the ticket's text, and the next may
                # reach the store.
                return Answer(
                    State.WAITING,
                    token,
                    joined_ms=token.joined_ms,
                    visitor=token.visitor,
                    store_unavailable=True,
                )
        elif may_join and may_enter:
            given = self._fallback.newcomer(settings, now_ms)
            is_new = True
        if given is None:
            return Answer(State.NOT_QUEUED, store_unavailable=True)
        self._fallback.keep(given)
        self.store.mark_unreported_admissions(now_ms)
        return Answer(State.ADMITTED, given, joined_ms=given.joined_ms, failed_open=is_new)

    async def leave(self, token: Token | None, *, why: str = "left") -> None:
        """Gives up the place or the session that the token proves."""
        if isinstance(token, Ticket | Pass):
            await self.release(token.visitor, why=why)

    async def release(self, visitor: str, *, why: str = "released", by: str = "") -> bool:
        """Ends a visitor's stay; whether there was one. All replicas refuse their pass
        RELEASE_GRACE_MS later. `by`: the operator."""
        known = await self.store.leave(visitor, why=why, by=by)
        self._revoked[visitor] = self.clock.now_ms()
        return known

    async def refresh(self) -> Snapshot:
        """Learns changed settings and revoked passes from the store; gives back slots whose
        newcomers got no reply."""
        was_away = self.store.is_away
        self.store.set_longest_refresh_near_head(self._refreshes.longest(self.clock.now_ms()))
        if not was_away:
            await self._release_orphans()
        while True:
            snapshot = await self.store.snapshot(revoked_since_ms=self._revoked_seen_ms)
            self._revoked.update(snapshot.revoked)
            newest = max(snapshot.revoked.values(), default=self._revoked_seen_ms)
            if len(snapshot.revoked) < REVOCATIONS_LIMIT or newest == self._revoked_seen_ms:
                break
            self._revoked_seen_ms = newest
        self._revoked_seen_ms = newest
        if was_away:
            await self._release_orphans()  # before our own admissions are reported
        await self._report_given()
        await self._remind(snapshot)
        pass_ms = int(self.settings.session_duration * 1000)
        self._revoked = snapshot.still_of_use(self._revoked, pass_ms)
        self.snapshot = snapshot
        self._shield.learn(snapshot.shield_until_ms)
        settings, problems = effective(self.file_settings, snapshot.overrides, snapshot.now_ms)
        if problems:
            log.error("overrides_ignored", room=self.name, problems=problems)
        self._learn(settings)
        self._fallback.learn(snapshot, self.settings)
        if self.draws is not None:
            await self.draws.refresh(self.settings.events, snapshot)
        return snapshot

    async def _remind(self, snapshot: Snapshot) -> None:
        """A store that was emptied has forgotten who was revoked, and what was changed at run
        time; the replicas have not."""
        if self.snapshot is not None and snapshot.born_ms > self.snapshot.born_ms:
            hint = "places come back by themselves"
            if snapshot.counters.get("lost"):
                hint += "; single keys were lost: set maxmemory-policy of Redis to noeviction"
            log.warning("store_emptied", room=self.name, hint=hint)
            self._revoked_seen_ms = 0
            known = self.snapshot
            await self.store.remind(self._revoked, known.overrides, epoch=known.epoch)
        elif self.snapshot is not None and snapshot.behind > self.snapshot.behind:
            hint = "sessions and places of the last seconds come back by themselves"
            log.warning("store_behind", room=self.name, hint=hint)
            await self.store.remind(self._revoked, {}, epoch=0)

    async def _report_given(self) -> None:
        """Redis hears at once of the passes that this replica gave or prolonged by itself, and not
        when their visitors come back: so nobody is called into their slots."""
        while given := self._fallback.take_given(self.clock.now_ms()):
            renewals = (self.store.renew(pass_) for pass_ in given)
            replies = await asyncio.gather(*renewals, return_exceptions=True)
            for pass_, reply in zip(given, replies, strict=True):
                if isinstance(reply, StoreError):
                    self._fallback.keep(pass_)
            failed = [reply for reply in replies if isinstance(reply, BaseException)]
            if failed:
                raise failed[0]

    async def _release_orphans(self) -> None:
        while self._orphans:
            visitor, claim = self._orphans.popleft()  # at once: refreshes may run side by side
            try:
                await self.store.take_back(visitor, claim)
            except StoreError:
                self._orphans.append((visitor, claim))
                raise

    def _honours(self, token: Ticket | Pass) -> bool:
        """Whether the token is still valid: a pass is, for a moment after its release."""
        now_ms = self.clock.now_ms()
        revoked_ms = self._revoked.get(token.visitor)
        if isinstance(token, Ticket):
            return revoked_ms is None
        if revoked_ms is not None and now_ms >= revoked_ms + RELEASE_GRACE_MS:
            return False
        return now_ms < token.expires_ms

    def _due_ms(self, pass_: Pass, fingerprint: str) -> int:
        """When it is to be renewed; 0: now. A store that knows nothing of a session, because it was
        emptied or because a replica gave the pass by itself, learns of it with the pass's
        next request."""
        emptied_ms = self.snapshot.recovery_ms if self.snapshot else 0
        if pass_.renewed_ms < max(1, emptied_ms) or pass_.fingerprint != fingerprint:
            return 0
        return renewal_due_ms(pass_, self.settings)

    def _is_settled(self, pass_: Pass) -> bool:
        """Whether nginx may keep the verdict: it knows a cookie, and not who brings it."""
        return not pass_.fingerprint and self.clock.now_ms() + VERDICT_TTL_MS < pass_.expires_ms

    async def _by_pass(self, pass_: Pass, fingerprint: str) -> Answer | None:
        if not self._honours(pass_):
            return None
        due_ms, now_ms = self._due_ms(pass_, fingerprint), self.clock.now_ms()
        is_due = now_ms >= due_ms
        if is_due or self._may_be_unused(pass_):
            standing = await self.store.renew(pass_)
            if is_due or standing.outcome is not Outcome.ADMITTED:
                return answer_of(self._noted(standing), pass_)
            self._used[pass_.visitor] = None
            if len(self._used) > USED:
                del self._used[next(iter(self._used))]
        settled = self._is_settled(pass_) and now_ms + VERDICT_TTL_MS < due_ms
        return Answer(State.ADMITTED, is_settled=settled)

    def _may_be_unused(self, pass_: Pass) -> bool:
        """Whether the store may not know that its visitor keeps cookies."""
        visitor = pass_.visitor
        return pass_.is_first and visitor not in self._used and visitor not in self._revoked

    def _noted(self, standing: Standing) -> Standing:
        """Remembers the refresh that visitors near the head were given."""
        is_near = (standing.calls or 0) < self.settings.total_active_users
        if standing.outcome is Outcome.WAITING and is_near:
            self._refreshes.note(standing.refresh_ms, standing.now_ms)
        return standing

    async def _newcomer(
        self, may_join: bool, from_page: bool, bearer: Bearer, drawn: int | None
    ) -> Answer:
        if self.settings.rollout_percent == 0:  # so for everybody, and nobody needs a cookie
            return Answer(State.ADMITTED, is_settled=True, uncounted="outside")
        settings, now_ms = self.settings, self.clock.now_ms()
        outside = find_outside(self.name, settings, bearer, drawn)
        if not may_join:
            # A page's picture, say. nginx gives the shield's kept answer to all without a cookie.
            if outside and not from_page and not self._shield.is_kept_by_nginx(now_ms):
                return Answer(State.ADMITTED, uncounted="outside")
            return Answer(State.NOT_QUEUED, joins_later=self._shield.is_up(now_ms))
        is_alike = not exempts_some(settings)
        if not outside and settings.moments(now_ms).phase is Phase.CLOSED:
            return Answer(State.CLOSED, is_settled=is_alike and not is_for_part(settings))
        if not (outside and from_page):
            shelter = self._meet(bearer)
            if shelter is not Shelter.NONE:
                is_settled = is_alike and shelter is Shelter.UP and not from_page
                return Answer(State.NOT_QUEUED, is_settled=is_settled, joins_later=True)
        if outside:
            return Answer(State.ADMITTED, outside, uncounted="outside")
        return await self._enter(bearer.place(self.name, self.settings), claim_of(bearer))

    def _meet(self, bearer: Bearer) -> Shelter:
        if bearer.has_waited:
            return self._shield.meet_again(bearer.address, self.clock.now_ms())
        known_ms = self._shield.until_ms
        shelter = self._shield.meet(self.settings.shield_above, self.clock.now_ms())
        if self._shield.until_ms != known_ms:
            log.warning("shield_up", room=self.name)
            task = asyncio.create_task(self._report_shield())
            self._reporting.add(task)
            task.add_done_callback(self._reporting.discard)
        return shelter

    async def _report_shield(self) -> None:
        """So that all replicas raise theirs. Without the store, each has its own."""
        with contextlib.suppress(StoreError):
            await self.store.raise_shield(self._shield.until_ms)

    async def _enter(self, address: str, claim: Claim) -> Answer:
        visitor = new_visitor()
        lot = lot_of_newcomer(visitor, self.settings, self.draws, self.clock.now_ms())
        try:
            standing = await self.store.enter(visitor, address=address, claim=claim, lot=lot)
        except StoreUnavailableError:
            raise  # nothing was sent
        except StoreError:
            # It may have been done all the same, for somebody who was given no cookie.
            self._orphans.append((visitor, claim))
            raise
        if standing.outcome is Outcome.ADMITTED:
            self._fallback.admitted()
        newcomer = ticket_of(visitor, standing, claim)
        # No script says GONE to a newcomer.
        return answer_of(self._noted(standing), newcomer) or Answer(State.NOT_QUEUED)


class Rooms(Named[Room]):
    kind = "room"
