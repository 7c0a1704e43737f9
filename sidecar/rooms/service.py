"""Decides which visitors of a room pass, which ones wait, and which token each visitor gets.

Most passes are checked by their signature alone. Only joins, heartbeats and renewals use Redis."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import structlog
from aiohttp import web

from sidecar.kit.clock import StoreClock
from sidecar.kit.errors import StoreError, StoreUnavailableError
from sidecar.kit.names import Named
from sidecar.rooms.bearer import NOBODY, Bearer, belongs_to_other_client
from sidecar.rooms.exemptions import (
    has_exemptions,
    has_partial_rollout,
    is_exempt,
    is_outside,
    prove_outside,
)
from sidecar.rooms.fail_open import Fallback
from sidecar.rooms.longest_refresh import Refreshes
from sidecar.rooms.pass_lifetime import compute_renewal_due_ms
from sidecar.rooms.places import (
    LotSource,
    add_drawn_order,
    apply_claim,
    find_lot,
    issue_ticket,
    read_claim,
)
from sidecar.rooms.settings import RoomSettings, merge_settings
from sidecar.rooms.shield import Shield, ShieldVerdict
from sidecar.rooms.store.replies import Snapshot
from sidecar.rooms.store.scripts import REVOCATIONS_LIMIT, ClassClaim, RoomStore
from sidecar.visitors.answer import Answer, build_answer
from sidecar.visitors.grants import Grants
from sidecar.visitors.model import (
    DEFAULT_REFRESH_MS,
    TICKET_RENEW_MS,
    Outside,
    Pass,
    Phase,
    QueueOutcome,
    Standing,
    Ticket,
    Token,
    VisitorState,
)
from sidecar.visitors.tokens import Tokens, new_visitor
from sidecar.visitors.verdict_lifetime import RELEASE_GRACE_MS, VERDICT_TTL_MS

#: The maximum number of remembered newcomers whose join got no reply from Redis.
MAX_ORPHANS = 1000
#: The maximum number of remembered visitors whose first use of a pass was reported to Redis.
MAX_USED_PASSES = 10_000

log = structlog.get_logger()


@dataclass(slots=True)
class WaitingRoom:
    """One room as this replica sees it."""

    name: str
    file_settings: RoomSettings
    tokens: Tokens
    store: RoomStore
    clock: StoreClock
    #: Verifies grants. The default has no keys, so that no grant is valid.
    grants: Grants = field(default_factory=lambda: Grants("", []))
    #: The lottery draws of pre-queues. If None, nobody gets a place in a pre-queue.
    draws: LotSource | None = None
    #: Returns those of the settings that the Lua scripts read, when the file is read again.
    get_script_settings: Callable[[RoomSettings], dict[str, Any]] = RoomSettings.get_script_settings
    #: The settings in force: those of the file, of changes at run time, and of an open event.
    settings: RoomSettings = field(init=False)
    #: Whether everybody passes without being counted.
    is_open: bool = field(init=False)
    #: Whether verdicts depend on the client and not only on its cookie.
    depends_on_client: bool = field(init=False)
    snapshot: Snapshot | None = None
    #: The times of revocations, in ms, by visitor; and the latest time that was read from Redis.
    _revoked: dict[str, int] = field(default_factory=dict)
    _last_revocation_ms: int = 0
    #: Newcomers whose `enter` got no reply, oldest first. Beyond MAX_ORPHANS the oldest are
    #: dropped, and their places expire.
    _orphans: deque[tuple[str, ClassClaim]] = field(
        default_factory=lambda: deque(maxlen=MAX_ORPHANS)
    )
    _used_passes: dict[str, None] = field(default_factory=dict)
    _shield: Shield = field(default_factory=Shield)
    _fallback: Fallback = field(default_factory=Fallback)
    _refreshes: Refreshes = field(default_factory=Refreshes)
    _shield_reports: set[asyncio.Task[None]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._apply_settings(self.file_settings)

    def _apply_settings(self, settings: RoomSettings) -> None:
        """Put these settings into force, and compute the values that each request needs."""
        self.settings = settings
        self.is_open = settings.is_open
        self.depends_on_client = (
            settings.bind_pass in {"user_agent", "ip"}
            or settings.max_places_per_address is not None
            or has_partial_rollout(settings)
            or has_exemptions(settings)
        )

    def configure(self, file_settings: RoomSettings) -> None:
        """Replace the settings from the settings file. Changes made at run time stay in force.

        Scripts that were sent before run with the old settings. While Redis is unavailable, this
        replica still gives only the slots that were free in the last snapshot."""
        self.file_settings = file_settings
        self.store.set_settings(self.get_script_settings(file_settings))
        overrides = self.snapshot.overrides if self.snapshot else {}
        settings, _ = merge_settings(file_settings, overrides, self.clock.now_ms())
        self._apply_settings(settings)

    async def check(  # noqa: C901 - each further coroutine would slow down every poll
        self,
        token: Token | None,
        *,
        may_join: bool,
        from_page: bool = False,
        bearer: Bearer = NOBODY,
    ) -> Answer:
        """Return the verdict on a request. With `may_join`, a newcomer joins the queue. While the
        shield is up, only newcomers from the waiting page join. `from_page` is True if that page
        sent the request, False if a proxy checks it."""
        if self.is_open:
            return Answer(VisitorState.ADMITTED)
        rollout_number, fingerprint = None, ""
        if self.depends_on_client or bearer is not NOBODY or isinstance(token, Outside):
            uncounted_answer = self._check_uncounted(token, bearer)
            if uncounted_answer is not None:
                return uncounted_answer
            fingerprint = bearer.compute_fingerprint(self.name, self.settings)
            if isinstance(token, Outside):
                rollout_number, token = token.rollout_number, None
        shown_token, token = token, self._accept_token(token, fingerprint)
        try:
            if isinstance(token, Pass):
                answer = await self._check_pass(token, fingerprint)
            elif isinstance(token, Ticket):
                if bearer is not NOBODY:
                    token = await apply_claim(token, read_claim(bearer), self.settings, self.store)
                placed_ticket = add_drawn_order(token, self.settings, self.draws)
                address = bearer.compute_address_digest(self.name, self.settings)
                standing = await self.store.beat(placed_ticket, address=address)
                answer = build_answer(self._record_refresh(standing), token)
            else:
                answer = None
            if answer is None:
                if may_join and token is None:
                    await self._end_session_of_old_address(shown_token)
                answer = await self._handle_newcomer(may_join, from_page, bearer, rollout_number)
        except StoreError as error:
            # refresh() logs the failure once a second. Here a warning would flood the log.
            log.debug("store_away", room=self.name, error=str(error))
            answer = self._fail_open(token, may_join=may_join)
        if fingerprint and isinstance(answer.token, Pass):
            return replace(answer, token=replace(answer.token, fingerprint=fingerprint))
        return answer

    def _check_uncounted(self, token: Token | None, bearer: Bearer) -> Answer | None:
        """Return the verdict about an exempt request, or about a visitor who is still outside the
        roll-out. Return None if the room applies to the request."""
        if is_exempt(self.settings, bearer):
            return Answer(VisitorState.ADMITTED, uncounted="exempt")
        if not isinstance(token, Outside) or not is_outside(token.rollout_number, self.settings):
            return None
        is_fresh = token.signed_ms > self.clock.now_ms() - TICKET_RENEW_MS
        return Answer(
            VisitorState.ADMITTED,
            None if is_fresh else token,
            is_settled=is_fresh,
            uncounted="outside",
        )

    def _accept_token(self, token: Ticket | Pass | None, fingerprint: str) -> Ticket | Pass | None:
        """Return the token, or None if the token belongs to another client or was revoked."""
        if token is None or (
            isinstance(token, Pass) and belongs_to_other_client(token.fingerprint, fingerprint)
        ):
            return None
        if self._is_valid(token):
            self.store.record_room_existed_since(token.joined_ms)
            return token
        return None if token.visitor in self._revoked else token

    async def _end_session_of_old_address(self, token: Token | None) -> None:
        """End the session of a pass that is bound to another IP address than the client's.
        Otherwise a client that changes between IPv4 and IPv6 would fill two slots."""
        if isinstance(token, Pass) and token.fingerprint[:1] == "n" and self._is_valid(token):
            await self.leave(token)

    def _fail_open(self, token: Ticket | Pass | None, *, may_join: bool) -> Answer:
        """Return the verdict about a request for which Redis did not reply. The replica issues
        passes only while Redis counts as unavailable, not after a single failed command."""
        now_ms, settings, is_away = self.clock.now_ms(), self.settings, self.store.is_away
        # Nobody is admitted before the room opens or after it closes.
        is_open = settings.schedule_at(now_ms).phase is Phase.OPEN
        may_enter = is_away and is_open and not self.clock.is_doubtful
        new_pass: Pass | None = None
        is_new = False
        if isinstance(token, Pass) and self._is_valid(token):
            new_pass = self._fallback.extend_pass(token, settings, now_ms) if is_away else None
            if new_pass is None and is_away and self._is_unconfirmed_first_pass(token):
                # The report tells Redis that the client has used the pass.
                self._fallback.add_unreported_pass(replace(token, renewed_ms=0))
            if new_pass is None:
                is_settled = self._is_verdict_cacheable(token)
                return Answer(VisitorState.ADMITTED, is_settled=is_settled)
        elif isinstance(token, Ticket):
            new_pass = (
                self._fallback.admit_from_queue(token, settings, now_ms) if may_enter else None
            )
            if new_pass is None:
                self._refreshes.record(DEFAULT_REFRESH_MS, now_ms)
                # Sign the ticket again: nginx chooses the replica by the cookie's value, so the
                # next poll may go to another replica, which may reach Redis.
                return Answer(
                    VisitorState.WAITING,
                    token,
                    joined_ms=token.joined_ms,
                    visitor=token.visitor,
                    store_unavailable=True,
                )
        elif may_join and may_enter:
            new_pass = self._fallback.admit_newcomer(settings, now_ms)
            is_new = True
        if new_pass is None:
            return Answer(VisitorState.NOT_QUEUED, store_unavailable=True)
        self._fallback.add_unreported_pass(new_pass)
        self.store.mark_unreported_admissions(now_ms)
        return Answer(
            VisitorState.ADMITTED, new_pass, joined_ms=new_pass.joined_ms, failed_open=is_new
        )

    async def leave(self, token: Token | None, *, why: str = "left") -> None:
        """Give up the place or session of the token's visitor. Raises StoreError."""
        if isinstance(token, Ticket | Pass):
            await self.release(token.visitor, why=why)

    async def release(self, visitor: str, *, why: str = "released", by: str = "") -> bool:
        """End a visitor's place or session. Return False if the visitor had neither. All replicas
        refuse the pass after RELEASE_GRACE_MS. `by` is the operator's name."""
        existed = await self.store.leave(visitor, why=why, by=by)
        self._revoked[visitor] = self.clock.now_ms()
        return existed

    async def refresh(self) -> Snapshot:
        """Read changed settings, revoked passes and figures from Redis, apply them, and return the
        snapshot. Also remove the places and sessions of newcomers who got no reply."""
        was_away = self.store.is_away
        self.store.set_longest_refresh_near_head(self._refreshes.find_longest(self.clock.now_ms()))
        if not was_away:
            await self._release_orphans()
        while True:
            snapshot = await self.store.snapshot(revoked_since_ms=self._last_revocation_ms)
            self._revoked.update(snapshot.revoked)
            latest_ms = max(snapshot.revoked.values(), default=self._last_revocation_ms)
            if len(snapshot.revoked) < REVOCATIONS_LIMIT or latest_ms == self._last_revocation_ms:
                break
            self._last_revocation_ms = latest_ms
        self._last_revocation_ms = latest_ms
        if was_away:
            await self._release_orphans()  # before this replica reports its own admissions
        await self._report_admissions()
        await self._restore_lost_data(snapshot)
        session_ms = int(self.settings.session_duration * 1000)
        self._revoked = snapshot.drop_expired_revocations(self._revoked, session_ms)
        self.snapshot = snapshot
        self._shield.raise_until(snapshot.shield_until_ms)
        settings, problems = merge_settings(self.file_settings, snapshot.overrides, snapshot.now_ms)
        if problems:
            log.error("overrides_ignored", room=self.name, problems=problems)
        self._apply_settings(settings)
        self._fallback.update_limits(snapshot, self.settings)
        if self.draws is not None:
            await self.draws.publish(self.settings.events, snapshot)
        return snapshot

    async def _restore_lost_data(self, snapshot: Snapshot) -> None:
        """Write revocations and settings changed at run time to Redis again if it was emptied. If
        it came back with older data than before, write only the revocations."""
        if self.snapshot is not None and snapshot.born_ms > self.snapshot.born_ms:
            hint = "places come back by themselves"
            if snapshot.counters.get("lost"):
                hint += "; single keys were lost: set maxmemory-policy of Redis to noeviction"
            log.warning("store_emptied", room=self.name, hint=hint)
            self._last_revocation_ms = 0
            last = self.snapshot
            learned = {} if last.learned is None else {"learned": last.learned.to_json()}
            overrides = last.overrides | learned
            await self.store.restore_lost_data(self._revoked, overrides, epoch=last.epoch)
        elif self.snapshot is not None and snapshot.rollbacks > self.snapshot.rollbacks:
            hint = "sessions and places of the last seconds come back by themselves"
            log.warning("store_behind", room=self.name, hint=hint)
            await self.store.restore_lost_data(self._revoked, {}, epoch=0)

    async def _report_admissions(self) -> None:
        """Report to Redis the passes that this replica issued or extended without Redis."""
        while passes := self._fallback.take_unreported_passes(self.clock.now_ms()):
            renewals = (self.store.renew(pass_) for pass_ in passes)
            replies = await asyncio.gather(*renewals, return_exceptions=True)
            for pass_, reply in zip(passes, replies, strict=True):
                if isinstance(reply, StoreError):
                    self._fallback.add_unreported_pass(pass_)
            failed = [reply for reply in replies if isinstance(reply, BaseException)]
            if failed:
                raise failed[0]

    async def _release_orphans(self) -> None:
        while self._orphans:
            visitor, claim = self._orphans.popleft()  # now, because refreshes may overlap
            try:
                await self.store.undo_enter(visitor, claim)
            except StoreError:
                self._orphans.append((visitor, claim))
                raise

    def _is_valid(self, token: Ticket | Pass) -> bool:
        """Return True if the token is valid. A released pass stays valid for RELEASE_GRACE_MS."""
        now_ms = self.clock.now_ms()
        revoked_ms = self._revoked.get(token.visitor)
        if isinstance(token, Ticket):
            return revoked_ms is None
        if revoked_ms is not None and now_ms >= revoked_ms + RELEASE_GRACE_MS:
            return False
        return now_ms < token.expires_ms

    def _find_renewal_due_ms(self, pass_: Pass, fingerprint: str) -> int:
        """Return the time from which a request renews the pass, in ms. Return 0 if Redis does not
        know the pass: it has lost its data since, or a replica alone issued the pass."""
        emptied_ms = self.snapshot.recovery_ms if self.snapshot else 0
        if pass_.renewed_ms < max(1, emptied_ms) or pass_.fingerprint != fingerprint:
            return 0
        return compute_renewal_due_ms(pass_, self.settings)

    def _is_verdict_cacheable(self, pass_: Pass) -> bool:
        """Return True if nginx may cache the verdict about a pass. nginx caches by cookie, so the
        verdict about a pass that is bound to one client would hold for every client."""
        return not pass_.fingerprint and self.clock.now_ms() + VERDICT_TTL_MS < pass_.expires_ms

    async def _check_pass(self, pass_: Pass, fingerprint: str) -> Answer | None:
        if not self._is_valid(pass_):
            return await self._check_expired_pass(pass_)
        due_ms, now_ms = self._find_renewal_due_ms(pass_, fingerprint), self.clock.now_ms()
        is_due = now_ms >= due_ms
        if is_due or self._is_unconfirmed_first_pass(pass_):
            standing = await self.store.renew(pass_)
            if is_due or standing.outcome is not QueueOutcome.ADMITTED:
                return build_answer(self._record_refresh(standing), pass_)
            self._used_passes[pass_.visitor] = None
            if len(self._used_passes) > MAX_USED_PASSES:
                del self._used_passes[next(iter(self._used_passes))]
        is_settled = self._is_verdict_cacheable(pass_) and now_ms + VERDICT_TTL_MS < due_ms
        return Answer(VisitorState.ADMITTED, is_settled=is_settled)

    async def _check_expired_pass(self, pass_: Pass) -> Answer | None:
        """Return the verdict about an expired pass, but None if its session was not extended."""
        latest_ms = pass_.expires_ms + int((self.settings.max_extension or 0) * 1000)
        if pass_.visitor in self._revoked or self.clock.now_ms() >= latest_ms:
            return None
        standing = await self.store.renew(pass_, is_expired=True)
        is_admitted = standing.outcome is QueueOutcome.ADMITTED
        return build_answer(standing, pass_) if is_admitted else None

    def _is_unconfirmed_first_pass(self, pass_: Pass) -> bool:
        """Return True for a first pass if Redis may not know yet that the browser sent it back."""
        visitor = pass_.visitor
        return pass_.is_first and visitor not in self._used_passes and visitor not in self._revoked

    def _record_refresh(self, standing: Standing) -> Standing:
        """Record the refresh of a visitor who waits near the head, and return the standing."""
        is_near = (standing.calls or 0) < self.settings.total_active_users
        if standing.outcome is QueueOutcome.WAITING and is_near:
            self._refreshes.record(standing.refresh_ms, standing.now_ms)
        return standing

    async def _handle_newcomer(
        self, may_join: bool, from_page: bool, bearer: Bearer, rollout_number: int | None
    ) -> Answer:
        if self.settings.rollout_percent == 0:  # all visitors are outside, and need no cookie
            return Answer(VisitorState.ADMITTED, is_settled=True, uncounted="outside")
        settings, now_ms = self.settings, self.clock.now_ms()
        outside = prove_outside(self.name, settings, bearer, rollout_number)
        if not may_join:
            # Such a request may be for an image. nginx may send any client without a cookie the
            # answer cached while the shield was up, so visitors outside the roll-out get it too.
            if outside and not from_page and not self._shield.is_cached_by_nginx(now_ms):
                return Answer(VisitorState.ADMITTED, uncounted="outside")
            return Answer(VisitorState.NOT_QUEUED, joins_later=self._shield.is_active(now_ms))
        is_cacheable = not has_exemptions(settings)
        if not outside and settings.schedule_at(now_ms).phase is Phase.CLOSED:
            return Answer(
                VisitorState.CLOSED, is_settled=is_cacheable and not has_partial_rollout(settings)
            )
        if not (outside and from_page):
            verdict = self._apply_shield(bearer)
            if verdict is not ShieldVerdict.NONE:
                is_settled = is_cacheable and verdict is ShieldVerdict.UP and not from_page
                return Answer(VisitorState.NOT_QUEUED, is_settled=is_settled, joins_later=True)
        if outside:
            return Answer(VisitorState.ADMITTED, outside, uncounted="outside")
        return await self._enter(
            bearer.compute_address_digest(self.name, self.settings), read_claim(bearer)
        )

    def _apply_shield(self, bearer: Bearer) -> ShieldVerdict:
        if bearer.has_waited:
            return self._shield.check_join(bearer.address, self.clock.now_ms())
        until_ms = self._shield.until_ms
        verdict = self._shield.count_newcomer(self.settings.shield_above, self.clock.now_ms())
        if self._shield.until_ms != until_ms:
            log.warning("shield_up", room=self.name)
            task = asyncio.create_task(self._report_shield())
            self._shield_reports.add(task)
            task.add_done_callback(self._shield_reports.discard)
        return verdict

    async def _report_shield(self) -> None:
        """Ask the other replicas through Redis to raise their shields. If Redis does not reply,
        each replica raises its shield when it detects the flood itself."""
        with contextlib.suppress(StoreError):
            await self.store.raise_shield(self._shield.until_ms)

    async def _enter(self, address: str, claim: ClassClaim) -> Answer:
        visitor = new_visitor()
        lot = find_lot(visitor, self.settings, self.draws, self.clock.now_ms())
        try:
            standing = await self.store.enter(visitor, address=address, claim=claim, lot=lot)
        except StoreUnavailableError:
            raise  # the script was never sent, so there is no place to remove later
        except StoreError:
            # Redis may have created a place, but the visitor gets no cookie for it.
            self._orphans.append((visitor, claim))
            raise
        if standing.outcome is QueueOutcome.ADMITTED:
            self._fallback.count_admission()
        newcomer = issue_ticket(visitor, standing, claim)
        # The reply is GONE if the client had given up before the script ran.
        answer = build_answer(self._record_refresh(standing), newcomer)
        return answer or Answer(VisitorState.NOT_QUEUED)


class WaitingRooms(Named[WaitingRoom]):
    """The rooms of this replica, in the order of the configuration."""

    kind = "room"


ROOMS = web.AppKey("rooms", WaitingRooms)


def room_of(request: web.Request) -> WaitingRoom:
    """Return the room named in a request's path. Raises UnknownNameError."""
    return request.app[ROOMS].get(request.match_info["room"])
