"""A leased resource as proxies guard it: its holder passes, other visitors wait.

A visitor has one cookie for all resources of a template. The cookie identifies the visitor and not
what they hold: Redis is asked about every request, because a lease ends on time.
"""

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from zlib import crc32

import structlog

from sidecar.kit.clock import StoreClock
from sidecar.kit.errors import StoreError
from sidecar.kit.names import SEPARATOR
from sidecar.leases.model import Hold, LeaseOutcome
from sidecar.leases.service import Template
from sidecar.rooms.bearer import NOBODY, Bearer
from sidecar.rooms.settings import RoomSettings
from sidecar.visitors.answer import Answer
from sidecar.visitors.grants import Grants
from sidecar.visitors.model import RESIGN_MS, Outcome, Standing, State, Ticket, Token
from sidecar.visitors.tokens import COOKIE_PREFIX, Tokens, new_visitor

#: Stands for the resource's name in a template's message.
_NAME = "{resource}"
#: How certain an estimate is: terms end on time, unlike stays, so it counts as if it came from this
#: many calls with this spread.
_CALLS = 100
_SPREAD = 0.1

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class GuardedResource:
    """A Gate, made for one request. Its tokens are tickets: the visitor is the holder, `order` the
    newest place that the visitor took in any queue of the template, `epoch` that queue, and
    `joined_ms` when Redis first answered the visitor (0: not yet)."""

    #: With the template's name: seat~17.
    name: str
    resource: str
    template: Template
    tokens: Tokens
    settings: RoomSettings
    grants: Grants
    snapshot: None = None
    checks_bearer: bool = False

    @property
    def clock(self) -> StoreClock:
        return self.template.clock

    async def check(
        self,
        token: Token | None,
        *,
        may_join: bool,
        from_page: bool = False,
        bearer: Bearer = NOBODY,  # noqa: ARG002 - all bearers are alike
    ) -> Answer:
        """Take or find the lease. Without a cookie only a proxy's request takes one: a page at
        /_waitroom/ can be asked for with any name, so its visitor gets a cookie first."""
        ticket = token if isinstance(token, Ticket) else None
        if ticket is None and (from_page or not may_join):
            new_ticket = Ticket(new_visitor(), 0, 0, 0) if from_page else None
            return Answer(State.NOT_QUEUED, new_ticket)
        if ticket is not None and ticket.joined_ms:
            self.template.store.note_existence(ticket.joined_ms)
        sent = ticket or Ticket(new_visitor(), 0, 0, 0)
        try:
            hold = await self._ask(sent, may_join=may_join, from_page=from_page)
        except StoreError as error:
            log.debug("store_away", lease=self.name, error=str(error))
            if ticket is not None:
                return Answer(State.WAITING, visitor=ticket.visitor, store_unavailable=True)
            # With the cookie: Redis may have granted the lease all the same.
            return Answer(State.NOT_QUEUED, sent, store_unavailable=True)
        return _answer(hold, sent, self._queue)

    async def leave(self, token: Token | None, *, why: str = "left") -> None:  # noqa: ARG002
        """Release the visitor's lease, turn or place in the queue."""
        if isinstance(token, Ticket):
            await self.template.release(self.resource, token.visitor)

    @property
    def _queue(self) -> int:
        """The number of this resource's queue in tickets."""
        return crc32(self.resource.encode())

    async def _ask(self, ticket: Ticket, *, may_join: bool, from_page: bool) -> Hold:
        template, visitor = self.template, ticket.visitor
        order = ticket.order if ticket.epoch == self._queue else None
        if may_join:
            hold = await template.take(self.resource, visitor, order=order)
        else:
            hold = await template.look(self.resource, visitor)
            # A page that was open when Redis was emptied gets its place back.
            if hold.is_recovering and hold.outcome is LeaseOutcome.GONE and from_page and order:
                hold = await template.take(self.resource, visitor, order=order)
        if not from_page and self._is_due(hold):
            with contextlib.suppress(StoreError):
                renewed = await template.renew(self.resource, visitor, hold.fence)
                return renewed if renewed.outcome is LeaseOutcome.GRANTED else hold
        return hold

    def _is_due(self, hold: Hold) -> bool:
        """Return whether to renew: use renews a renewable lease in the second half of its term,
        until `max_term`."""
        settings = self.template.settings
        if hold.outcome is not LeaseOutcome.GRANTED or not settings.renewable:
            return False
        if settings.max_term and hold.expires_ms >= hold.started_ms + settings.max_term * 1000:
            return False
        return hold.now_ms > hold.expires_ms - settings.term * 1000 / 2


class Resources:
    """The resources of all templates. `keys` sign the cookies, oldest to newest."""

    def __init__(self, templates: Iterable[Template] = (), keys: Sequence[str] = ()) -> None:
        #: Of each template, what its resources share.
        self._prototypes = {one.name: _prototype(one, list(keys)) for one in templates}

    def template_of(self, name: str) -> str:
        """Return the template in a name such as seat~17, even if the resource is not allowed; ""
        if the template is unknown."""
        template, is_of, _ = name.partition(SEPARATOR)
        return template if is_of and template in self._prototypes else ""

    def find(self, name: str) -> GuardedResource | None:
        """Return the resource of a name such as seat~17; None if the template is unknown or does
        not allow the resource."""
        prefix, _, resource = name.partition(SEPARATOR)
        prototype = self._prototypes.get(prefix)
        if prototype is None or not prototype.template.settings.has(resource):
            return None
        settings = prototype.settings
        message = settings.message
        if message is not None and _NAME in message:
            settings = settings.model_copy(update={"message": message.replace(_NAME, resource)})
        return replace(prototype, name=name, resource=resource, settings=settings)


def _prototype(template: Template, keys: list[str]) -> GuardedResource:
    # A room of this name may once have signed tickets of its own.
    tokens = Tokens(template.name + SEPARATOR, keys, template.clock)
    tokens.cookie_name = COOKIE_PREFIX + template.name
    # A ticket is signed anew once an hour at most, and must be valid until the term is over.
    tokens.lifetime_ms += round(template.settings.term * 1000)
    settings = RoomSettings(
        total_active_users=template.settings.capacity,
        max_waiting=template.settings.max_waiting,
        queueing_status_code=template.settings.queueing_status_code,
        message=template.settings.message,
    )
    return GuardedResource("", "", template, tokens, settings, Grants("", []))


def _answer(hold: Hold, ticket: Ticket, queue: int) -> Answer:
    token = _new_ticket(hold, ticket, queue)
    match hold.outcome:
        case LeaseOutcome.GRANTED:
            standing = Standing(
                Outcome.ADMITTED,
                hold.now_ms,
                order=hold.fence,
                started_ms=hold.started_ms,
                expires_ms=hold.expires_ms,
            )
            return Answer(State.ADMITTED, token, standing, hold.started_ms, ticket.visitor)
        case LeaseOutcome.WAITING:
            standing = _waiting(hold, Outcome.WAITING)
            joined_ms = hold.order // 1000
            return Answer(State.WAITING, token, standing, joined_ms, ticket.visitor)
        case LeaseOutcome.FULL:
            return Answer(State.FULL, token, _waiting(hold, Outcome.FULL))
        case _:
            return Answer(State.NOT_QUEUED, token)


def _waiting(hold: Hold, outcome: Outcome) -> Standing:
    return Standing(
        outcome,
        hold.now_ms,
        order=hold.order,
        ahead=hold.ahead,
        waiting=hold.waiting,
        refresh_ms=hold.refresh_ms,
        wait_ms=hold.wait_ms,
        spread=_SPREAD,
        recovery_stage=2 if hold.is_recovering else 0,
        calls=_CALLS,
    )


def _new_ticket(hold: Hold, ticket: Ticket, queue: int) -> Ticket | None:
    """Return the ticket to set as the cookie; None if the visitor's is still good."""
    is_fresh = ticket.joined_ms > 0 and ticket.signed_ms > hold.now_ms - RESIGN_MS
    is_newer = hold.order > ticket.order
    if is_fresh and not is_newer:
        return None
    joined_ms = ticket.joined_ms or hold.now_ms
    order, queue = (hold.order, queue) if is_newer else (ticket.order, ticket.epoch)
    return Ticket(ticket.visitor, order, joined_ms, queue)
