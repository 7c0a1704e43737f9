"""The rules of a room: who passes, who waits, and what each is given.

Most verdicts about passes are made here from the signature alone; only joins, heartbeats and
renewals reach Redis.
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
from sidecar.rooms.exemptions import (
    has_exemptions,
    has_partial_rollout,
    is_exempt,
    is_outside,
    prove_outside,
)
from sidecar.rooms.fail_open import Fallback
from sidecar.rooms.longest_refresh import Refreshes
from sidecar.rooms.pass_lifetime import renewal_due_ms
from sidecar.rooms.places import (
    LotSource,
    apply_claim,
    claim_of,
    lot_of_newcomer,
    ticket_of,
    with_drawn_order,
)
from sidecar.rooms.settings import RoomSettings, effective
from sidecar.rooms.shield import Shelter, Shield
from sidecar.rooms.store.replies import Snapshot
from sidecar.rooms.store.scripts import REVOCATIONS_LIMIT, ClassClaim, RoomStore
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
#: How many used first passes a replica remembers. Others it reports to Redis again.
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
    #: Verifies grants. Without keys it accepts none.
    grants: Grants = field(default_factory=lambda: Grants("", []))
    #: The lottery draws of pre-queues; None: places are drawn by chance.
    draws: LotSource | None = None
    #: The file's settings with those changed at run time laid over them.
    settings: RoomSettings = field(init=False)
    #: Whether everybody passes, uncounted.
    is_open: bool = field(init=False)
    #: Whether verdicts depend on the client, not only on its cookie.
    checks_bearer: bool = field(init=False)
    snapshot: Snapshot | None = None
    _revoked: dict[str, int] = field(default_factory=dict)
    _revoked_seen_ms: int = 0
    #: Newcomers whose `enter` got no reply. The oldest are dropped: their places end by themselves.
    _orphans: deque[tuple[str, ClassClaim]] = field(default_factory=lambda: deque(maxlen=ORPHANS))
    _used: dict[str, None] = field(default_factory=dict)
    _shield: Shield = field(default_factory=Shield)
    _fallback: Fallback = field(default_factory=Fallback)
    _refreshes: Refreshes = field(default_factory=Refreshes)
    _reporting: set[asyncio.Task[None]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._apply(self.file_settings)

    def _apply(self, settings: RoomSettings) -> None:
        """Set the settings in force, and compute once what each request needs of them."""
        self.settings = settings
        self.is_open = settings.is_open
        self.checks_bearer = (
            settings.bind_pass in {"user_agent", "ip"}
            or settings.max_places_per_address is not None
            or has_partial_rollout(settings)
            or has_exemptions(settings)
        )

    async def check(  # noqa: C901 - in one piece: each coroutine more is paid with each poll
        self,
        token: Token | None,
        *,
        may_join: bool,
        from_page: bool = False,
        bearer: Bearer = NOBODY,
    ) -> Answer:
        """Decide about a request, as Gate documents. While the shield is up, only newcomers from
        the waiting page join."""
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
                    token = await apply_claim(token, claim_of(bearer), self.settings, self.store)
                placed = with_drawn_order(token, self.settings, self.draws)
                address = bearer.address_digest(self.name, self.settings)
                standing = await self.store.beat(placed, address=address)
                answer = answer_of(self._note_refresh(standing), token)
            else:
                answer = None
            if answer is None:
                if may_join and token is None:
                    await self._end_elsewhere(shown)
                answer = await self._newcomer(may_join, from_page, bearer, drawn)
        except StoreError as error:
            # The refresher logs this once a second; here it would flood the log.
            log.debug("store_away", room=self.name, error=str(error))
            answer = self._fail_open(token, may_join=may_join)
        if fingerprint and isinstance(answer.token, Pass):
            return replace(answer, token=replace(answer.token, fingerprint=fingerprint))
        return answer

    def _uncounted(self, token: Token | None, bearer: Bearer) -> Answer | None:
        """Return the verdict about an exempt request, or about a visitor who is still outside of
        the roll-out."""
        if is_exempt(self.settings, bearer):
            return Answer(State.ADMITTED, uncounted="exempt")
        if not isinstance(token, Outside) or not is_outside(token.draw, self.settings):
            return None
        keeps = token.signed_ms > self.clock.now_ms() - RESIGN_MS
        return Answer(
            State.ADMITTED, None if keeps else token, is_settled=keeps, uncounted="outside"
        )

    def _accepted(self, token: Ticket | Pass | None, fingerprint: str) -> Ticket | Pass | None:
        """Return the token; None if it is another client's, or was given up."""
        if token is None or (
            isinstance(token, Pass) and belongs_to_another(token.fingerprint, fingerprint)
        ):
            return None
        if self._is_valid(token):
            self.store.room_existed_since(token.joined_ms)
            return token
        return None if token.visitor in self._revoked else token

    async def _end_elsewhere(self, shown: Token | None) -> None:
        """End the session of a pass that comes from another address. A client that changes between
        IPv4 and IPv6 would otherwise fill two slots."""
        if isinstance(shown, Pass) and shown.fingerprint[:1] == "n" and self._is_valid(shown):
            await self.leave(shown)

    def _fail_open(self, token: Ticket | Pass | None, *, may_join: bool) -> Answer:
        """Return the verdict without Redis. The replica gives passes only while Redis counts as
        unavailable, not after one failed call."""
        now_ms, settings, is_away = self.clock.now_ms(), self.settings, self.store.is_away
        # Nobody is admitted before a room has opened, or after it has closed.
        is_open = settings.moments(now_ms).phase is Phase.OPEN
        may_enter = is_away and is_open and not self.clock.is_doubtful
        new_pass: Pass | None = None
        is_new = False
        if isinstance(token, Pass) and self._is_valid(token):
            new_pass = self._fallback.extend(token, settings, now_ms) if is_away else None
            if new_pass is None and is_away and self._may_be_unused(token):
                self._fallback.keep(replace(token, renewed_ms=0))  # reported as used
            if new_pass is None:
                return Answer(State.ADMITTED, is_settled=self._is_settled(token))
        elif isinstance(token, Ticket):
            new_pass = self._fallback.admit_waiting(token, settings, now_ms) if may_enter else None
            if new_pass is None:
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
            new_pass = self._fallback.admit_newcomer(settings, now_ms)
            is_new = True
        if new_pass is None:
            return Answer(State.NOT_QUEUED, store_unavailable=True)
        self._fallback.keep(new_pass)
        self.store.mark_unreported_admissions(now_ms)
        return Answer(State.ADMITTED, new_pass, joined_ms=new_pass.joined_ms, failed_open=is_new)

    async def leave(self, token: Token | None, *, why: str = "left") -> None:
        """Give up the place or session that the token proves."""
        if isinstance(token, Ticket | Pass):
            await self.release(token.visitor, why=why)

    async def release(self, visitor: str, *, why: str = "released", by: str = "") -> bool:
        """End a visitor's place or session. Return False if there was none. All replicas refuse the
        pass RELEASE_GRACE_MS later. `by` is the operator."""
        was_there = await self.store.leave(visitor, why=why, by=by)
        self._revoked[visitor] = self.clock.now_ms()
        return was_there

    async def refresh(self) -> Snapshot:
        """Read changed settings and revoked passes from Redis, and give back slots whose newcomers
        got no reply."""
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
        await self._report_admissions()
        await self._remind(snapshot)
        pass_ms = int(self.settings.session_duration * 1000)
        self._revoked = snapshot.still_of_use(self._revoked, pass_ms)
        self.snapshot = snapshot
        self._shield.learn(snapshot.shield_until_ms)
        settings, problems = effective(self.file_settings, snapshot.overrides, snapshot.now_ms)
        if problems:
            log.error("overrides_ignored", room=self.name, problems=problems)
        self._apply(settings)
        self._fallback.learn(snapshot, self.settings)
        if self.draws is not None:
            await self.draws.refresh(self.settings.events, snapshot)
        return snapshot

    async def _remind(self, snapshot: Snapshot) -> None:
        """Write what Redis lost, if it was emptied or has older data: who was revoked, and the
        settings changed at run time."""
        if self.snapshot is not None and snapshot.born_ms > self.snapshot.born_ms:
            hint = "places come back by themselves"
            if snapshot.counters.get("lost"):
                hint += "; single keys were lost: set maxmemory-policy of Redis to noeviction"
            log.warning("store_emptied", room=self.name, hint=hint)
            self._revoked_seen_ms = 0
            before = self.snapshot
            await self.store.remind(self._revoked, before.overrides, epoch=before.epoch)
        elif self.snapshot is not None and snapshot.behind > self.snapshot.behind:
            hint = "sessions and places of the last seconds come back by themselves"
            log.warning("store_behind", room=self.name, hint=hint)
            await self.store.remind(self._revoked, {}, epoch=0)

    async def _report_admissions(self) -> None:
        """Report the passes that this replica gave or prolonged without Redis at once, so that
        nobody is called into their slots."""
        while passes := self._fallback.take_unreported(self.clock.now_ms()):
            renewals = (self.store.renew(pass_) for pass_ in passes)
            replies = await asyncio.gather(*renewals, return_exceptions=True)
            for pass_, reply in zip(passes, replies, strict=True):
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

    def _is_valid(self, token: Ticket | Pass) -> bool:
        """Return True if the token is valid. A pass is, for a moment after its release."""
        now_ms = self.clock.now_ms()
        revoked_ms = self._revoked.get(token.visitor)
        if isinstance(token, Ticket):
            return revoked_ms is None
        if revoked_ms is not None and now_ms >= revoked_ms + RELEASE_GRACE_MS:
            return False
        return now_ms < token.expires_ms

    def _due_ms(self, pass_: Pass, fingerprint: str) -> int:
        """Return when a pass is to be renewed; 0 for now. A pass that Redis knows nothing of,
        because Redis was emptied or because a replica gave the pass by itself, is renewed with its
        next request."""
        emptied_ms = self.snapshot.recovery_ms if self.snapshot else 0
        if pass_.renewed_ms < max(1, emptied_ms) or pass_.fingerprint != fingerprint:
            return 0
        return renewal_due_ms(pass_, self.settings)

    def _is_settled(self, pass_: Pass) -> bool:
        """Return True if nginx may keep the verdict. nginx knows the cookie, and not who brings
        it."""
        return not pass_.fingerprint and self.clock.now_ms() + VERDICT_TTL_MS < pass_.expires_ms

    async def _by_pass(self, pass_: Pass, fingerprint: str) -> Answer | None:
        if not self._is_valid(pass_):
            return None
        due_ms, now_ms = self._due_ms(pass_, fingerprint), self.clock.now_ms()
        is_due = now_ms >= due_ms
        if is_due or self._may_be_unused(pass_):
            standing = await self.store.renew(pass_)
            if is_due or standing.outcome is not Outcome.ADMITTED:
                return answer_of(self._note_refresh(standing), pass_)
            self._used[pass_.visitor] = None
            if len(self._used) > USED:
                del self._used[next(iter(self._used))]
        settled = self._is_settled(pass_) and now_ms + VERDICT_TTL_MS < due_ms
        return Answer(State.ADMITTED, is_settled=settled)

    def _may_be_unused(self, pass_: Pass) -> bool:
        """Return True if Redis may not know yet that the visitor keeps cookies."""
        visitor = pass_.visitor
        return pass_.is_first and visitor not in self._used and visitor not in self._revoked

    def _note_refresh(self, standing: Standing) -> Standing:
        """Note the refresh that a visitor near the head was given, and return the standing."""
        is_near = (standing.calls or 0) < self.settings.total_active_users
        if standing.outcome is Outcome.WAITING and is_near:
            self._refreshes.note(standing.refresh_ms, standing.now_ms)
        return standing

    async def _newcomer(
        self, may_join: bool, from_page: bool, bearer: Bearer, drawn: int | None
    ) -> Answer:
        if self.settings.rollout_percent == 0:  # nobody needs a cookie
            return Answer(State.ADMITTED, is_settled=True, uncounted="outside")
        settings, now_ms = self.settings, self.clock.now_ms()
        outside = prove_outside(self.name, settings, bearer, drawn)
        if not may_join:
            # Such as a picture. nginx gives the shield's kept answer to all without a cookie.
            if outside and not from_page and not self._shield.is_kept_by_nginx(now_ms):
                return Answer(State.ADMITTED, uncounted="outside")
            return Answer(State.NOT_QUEUED, joins_later=self._shield.is_up(now_ms))
        is_alike = not has_exemptions(settings)
        if not outside and settings.moments(now_ms).phase is Phase.CLOSED:
            return Answer(State.CLOSED, is_settled=is_alike and not has_partial_rollout(settings))
        if not (outside and from_page):
            shelter = self._apply_shield(bearer)
            if shelter is not Shelter.NONE:
                is_settled = is_alike and shelter is Shelter.UP and not from_page
                return Answer(State.NOT_QUEUED, is_settled=is_settled, joins_later=True)
        if outside:
            return Answer(State.ADMITTED, outside, uncounted="outside")
        return await self._enter(bearer.address_digest(self.name, self.settings), claim_of(bearer))

    def _apply_shield(self, bearer: Bearer) -> Shelter:
        if bearer.has_waited:
            return self._shield.check_join(bearer.address, self.clock.now_ms())
        until_ms = self._shield.until_ms
        shelter = self._shield.count_newcomer(self.settings.shield_above, self.clock.now_ms())
        if self._shield.until_ms != until_ms:
            log.warning("shield_up", room=self.name)
            task = asyncio.create_task(self._report_shield())
            self._reporting.add(task)
            task.add_done_callback(self._reporting.discard)
        return shelter

    async def _report_shield(self) -> None:
        """Tell the other replicas to raise their shields. Without Redis, each replica has its
        own."""
        with contextlib.suppress(StoreError):
            await self.store.raise_shield(self._shield.until_ms)

    async def _enter(self, address: str, claim: ClassClaim) -> Answer:
        visitor = new_visitor()
        lot = lot_of_newcomer(visitor, self.settings, self.draws, self.clock.now_ms())
        try:
            standing = await self.store.enter(visitor, address=address, claim=claim, lot=lot)
        except StoreUnavailableError:
            raise  # nothing was sent
        except StoreError:
            # Redis may have given a place all the same, to a visitor who got no cookie.
            self._orphans.append((visitor, claim))
            raise
        if standing.outcome is Outcome.ADMITTED:
            self._fallback.count_admission()
        newcomer = ticket_of(visitor, standing, claim)
        # No script says GONE to a newcomer.
        return answer_of(self._note_refresh(standing), newcomer) or Answer(State.NOT_QUEUED)


class Rooms(Named[Room]):
    kind = "room"
