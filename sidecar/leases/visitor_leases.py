"""Guards leased resources behind a proxy: visitors with a lease of the resource may pass, and other
visitors wait. A visitor has one cookie for all resources of a template. The cookie identifies the
visitor, but does not prove a lease, which may end at any time. So each request reads the lease from
Redis."""

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from zlib import crc32

import structlog

from sidecar.kit.clock import StoreClock
from sidecar.kit.errors import StoreError
from sidecar.kit.names import SEPARATOR
from sidecar.leases.model import HolderState, LeaseOutcome
from sidecar.leases.service import TemplateLeases
from sidecar.rooms.bearer import NOBODY, Bearer
from sidecar.rooms.settings import RoomSettings
from sidecar.visitors.answer import Answer
from sidecar.visitors.grants import Grants
from sidecar.visitors.model import (
    TICKET_RENEW_MS,
    QueueOutcome,
    Standing,
    Ticket,
    Token,
    VisitorState,
)
from sidecar.visitors.tokens import COOKIE_PREFIX, Tokens, new_visitor

#: The placeholder for the resource's name in a template's message.
_NAME_PLACEHOLDER = "{resource}"
#: The inputs from which visitors/estimate.py computes the range of the expected wait. They make the
#: range narrow, because terms end on time, unlike sessions in a room.
_ESTIMATE_CALLS = 100
_ESTIMATE_SPREAD = 0.1

#: The visitor's state and outcome for each outcome at the resource. Other outcomes: NOT_QUEUED.
_OUTCOMES = {
    LeaseOutcome.GRANTED: (VisitorState.ADMITTED, QueueOutcome.ADMITTED),
    LeaseOutcome.WAITING: (VisitorState.WAITING, QueueOutcome.WAITING),
    LeaseOutcome.FULL: (VisitorState.FULL, QueueOutcome.FULL),
}

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class GuardedResource:
    """A leased resource, created for one request. The endpoints for proxies and visitors use it as
    they use a WaitingRoom (gate/contract.py). All its tokens are tickets:

    - `visitor` is the holder.
    - `order` is the visitor's newest place in any queue of the template.
    - `epoch` is that queue's number.
    - `joined_ms` is the time of Redis' first reply, or 0 before it.
    """

    #: The names of the template and the resource, such as seat~17.
    name: str
    resource: str
    template: TemplateLeases
    tokens: Tokens
    settings: RoomSettings
    grants: Grants
    snapshot: None = None
    depends_on_client: bool = False

    @property
    def clock(self) -> StoreClock:
        return self.template.clock

    async def check(
        self,
        token: Token | None,
        *,
        may_join: bool,
        from_page: bool = False,
        bearer: Bearer = NOBODY,  # noqa: ARG002 - all bearers are treated alike
    ) -> Answer:
        """Take or find the visitor's lease, and return the verdict. `from_page`: the request is for
        a page of /_waitroom/. Without a cookie, such a request gets only a cookie, and no lease,
        because anybody can request these pages for any resource."""
        ticket = token if isinstance(token, Ticket) else None
        if ticket is None and (from_page or not may_join):
            new_ticket = Ticket(new_visitor(), 0, 0, 0) if from_page else None
            return Answer(VisitorState.NOT_QUEUED, new_ticket)
        if ticket is not None and ticket.joined_ms:
            self.template.store.record_existence(ticket.joined_ms)
        ticket_or_new = ticket or Ticket(new_visitor(), 0, 0, 0)
        try:
            state = await self._take_poll_or_renew(
                ticket_or_new, may_join=may_join, from_page=from_page
            )
        except StoreError as error:
            log.debug("store_away", lease=self.name, error=str(error))
            if ticket is not None:
                return Answer(VisitorState.WAITING, visitor=ticket.visitor, store_unavailable=True)
            # Set the cookie, because Redis may have granted the lease despite the error.
            return Answer(VisitorState.NOT_QUEUED, ticket_or_new, store_unavailable=True)
        return _make_answer(state, ticket_or_new, self._queue_number)

    async def leave(self, token: Token | None, *, why: str = "left") -> None:  # noqa: ARG002
        """Release the visitor's lease, or remove the visitor from the queue."""
        if isinstance(token, Ticket):
            await self.template.release(self.resource, token.visitor)

    @property
    def _queue_number(self) -> int:
        """Return the number that identifies this resource's queue in tickets."""
        return crc32(self.resource.encode())

    async def _take_poll_or_renew(
        self, ticket: Ticket, *, may_join: bool, from_page: bool
    ) -> HolderState:
        template, visitor = self.template, ticket.visitor
        order = ticket.order if ticket.epoch == self._queue_number else None
        if may_join:
            state = await template.take(self.resource, visitor, order=order)
        else:
            state = await template.poll(self.resource, visitor)
            # Restore the place of a visitor whose page was open when Redis was emptied.
            if state.is_recovering and state.outcome is LeaseOutcome.GONE and from_page and order:
                state = await template.take(self.resource, visitor, order=order)
        if not from_page and self._needs_renewal(state):
            with contextlib.suppress(StoreError):
                renewed = await template.renew(self.resource, visitor, state.fence)
                return renewed if renewed.outcome is LeaseOutcome.GRANTED else state
        return state

    def _needs_renewal(self, state: HolderState) -> bool:
        """Return True if the lease must be renewed: it is in the second half of its term, can be
        renewed, and `max_term` is not reached."""
        settings = self.template.settings
        if state.outcome is not LeaseOutcome.GRANTED or not settings.renewable:
            return False
        if settings.max_term and state.expires_ms >= state.started_ms + settings.max_term * 1000:
            return False
        return state.now_ms > state.expires_ms - settings.term * 1000 / 2


class Resources:
    """The guarded resources of all templates. `keys` sign the cookies; the last is the newest."""

    def __init__(self, templates: Iterable[TemplateLeases] = (), keys: Sequence[str] = ()) -> None:
        #: By template name, a resource without a name, which is copied for each request.
        self._unnamed_resources = {
            template.name: _make_unnamed_resource(template, keys) for template in templates
        }

    def find_template_name(self, name: str) -> str:
        """Return the template's name for a name such as seat~17, even if the template does not
        allow the resource. Return "" if there is no such template."""
        template, separator, _ = name.partition(SEPARATOR)
        return template if separator and template in self._unnamed_resources else ""

    def find(self, name: str) -> GuardedResource | None:
        """Return the resource for a name such as seat~17. None if there is no such template, or it
        does not allow the resource."""
        prefix, _, resource = name.partition(SEPARATOR)
        unnamed = self._unnamed_resources.get(prefix)
        if unnamed is None or not unnamed.template.settings.allows(resource):
            return None
        settings = unnamed.settings
        message = unnamed.template.settings.message
        if message is not None and _NAME_PLACEHOLDER in message:
            message = message.replace(_NAME_PLACEHOLDER, resource)
            settings = settings.model_copy(update={"message": message})
        return replace(unnamed, name=name, resource=resource, settings=settings)


def _make_unnamed_resource(template: TemplateLeases, keys: Sequence[str]) -> GuardedResource:
    # The signed name has the separator, because a room of that name may have signed tickets too.
    tokens = Tokens(template.name + SEPARATOR, list(keys), template.clock)
    tokens.cookie_name = COOKIE_PREFIX + template.name
    # A ticket is signed again at most once an hour, and must be valid until the term ends.
    tokens.lifetime_ms += round(template.settings.term * 1000)
    settings = RoomSettings(
        total_active_users=template.settings.capacity,
        max_waiting=template.settings.max_waiting,
        queueing_status_code=template.settings.queueing_status_code,
        message=template.settings.message,
    )
    return GuardedResource("", "", template, tokens, settings, Grants("", []))


def _make_answer(state: HolderState, ticket: Ticket, queue_number: int) -> Answer:
    token = _make_new_ticket(state, ticket, queue_number)
    if state.outcome not in _OUTCOMES:
        return Answer(VisitorState.NOT_QUEUED, token)
    visitor_state, outcome = _OUTCOMES[state.outcome]
    standing = Standing(
        outcome,
        state.now_ms,
        order=state.fence or state.order,
        started_ms=state.started_ms,
        expires_ms=state.expires_ms,
        ahead=state.ahead,
        waiting=state.waiting,
        refresh_ms=state.refresh_ms,
        wait_ms=state.wait_ms,
        spread=_ESTIMATE_SPREAD,
        recovery_stage=2 if state.is_recovering and not state.fence else 0,
        calls=_ESTIMATE_CALLS,
    )
    if visitor_state is VisitorState.FULL:
        return Answer(visitor_state, token, standing)
    joined_ms = state.started_ms or state.order // 1000
    return Answer(visitor_state, token, standing, joined_ms, ticket.visitor)


def _make_new_ticket(state: HolderState, ticket: Ticket, queue_number: int) -> Ticket | None:
    """Return the new ticket for the cookie. None if the visitor's ticket need not change."""
    is_fresh = ticket.joined_ms > 0 and ticket.signed_ms > state.now_ms - TICKET_RENEW_MS
    is_newer = state.order > ticket.order
    if is_fresh and not is_newer:
        return None
    joined_ms = ticket.joined_ms or state.now_ms
    if is_newer:
        return Ticket(ticket.visitor, state.order, joined_ms, queue_number)
    return Ticket(ticket.visitor, ticket.order, joined_ms, ticket.epoch)
