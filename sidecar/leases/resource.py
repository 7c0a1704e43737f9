"""One resource of a template of leases, as proxies guard it: the holder passes, others wait.

A visitor has one cookie for all resources of a template. It says who they are and not what they
hold: the store is asked about every request, because a lease ends exactly.
"""

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple
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

#: In a template's message: the resource's name.
_NAME = "{resource}"
#: Terms end when they end, and not by chance as stays do: the estimate is as sure as if it were
#: made of so many calls, with so much spread.
_CALLS = 100
_SPREAD = 0.1

log = structlog.get_logger()


class _Kind(NamedTuple):
    """What all resources of a template have in common."""

    template: Template
    tokens: Tokens
    settings: RoomSettings
    grants: Grants


@dataclass(frozen=True, slots=True)
class Resource:
    """A Gate, made for one request. Its tokens are tickets: the visitor is the holder, `order` the
    newest place that they took in some queue of the template, `epoch` which queue that is, and
    `joined_ms` when Redis knew them first (0: it has not answered them yet)."""

    #: With the template's: seat~17.
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
        """Without a cookie only what a proxy guards is taken: the site says which names there are,
        and at /_waitroom/ anybody can make names up. A visitor there gets a cookie first."""
        ticket = token if isinstance(token, Ticket) else None
        if ticket is None and (from_page or not may_join):
            given = Ticket(new_visitor(), 0, 0, 0) if from_page else None
            return Answer(State.NOT_QUEUED, given)
        if ticket is not None and ticket.joined_ms:
            self.template.store.knows(ticket.joined_ms)
        known = ticket or Ticket(new_visitor(), 0, 0, 0)
        try:
            hold = await self._ask(known, may_join=may_join, from_page=from_page)
        except StoreError as error:
            log.debug("store_away", lease=self.name, error=str(error))
            if ticket is not None:
                return Answer(State.WAITING, visitor=ticket.visitor, store_unavailable=True)
            # With the cookie, because it may have been done all the same.
            return Answer(State.NOT_QUEUED, known, store_unavailable=True)
        return _answer(hold, known, self._queue)

    async def leave(self, token: Token | None, *, why: str = "left") -> None:  # noqa: ARG002
        """Gives up the lease, the turn or the place in the queue."""
        if isinstance(token, Ticket):
            await self.template.release(self.resource, token.visitor)

    @property
    def _queue(self) -> int:
        """Which of the template's queues it is, as a ticket says it."""
        return crc32(self.resource.encode())

    async def _ask(self, ticket: Ticket, *, may_join: bool, from_page: bool) -> Hold:
        template, visitor = self.template, ticket.visitor
        order = ticket.order if ticket.epoch == self._queue else None
        if may_join:
            hold = await template.take(self.resource, visitor, order=order)
        else:
            hold = await template.look(self.resource, visitor)
            # Whose page is open while the store was emptied gets the place back.
            if hold.is_recovering and hold.outcome is LeaseOutcome.GONE and from_page and order:
                hold = await template.take(self.resource, visitor, order=order)
        if not from_page and self._is_due(hold):
            with contextlib.suppress(StoreError):
                renewed = await template.renew(self.resource, visitor, hold.fence)
                return renewed if renewed.outcome is LeaseOutcome.GRANTED else hold
        return hold

    def _is_due(self, hold: Hold) -> bool:
        """A lease that is renewable is renewed by use, in the second half of its term, as long as
        `max_term` lets it end later."""
        settings = self.template.settings
        if hold.outcome is not LeaseOutcome.GRANTED or not settings.renewable:
            return False
        if settings.max_term and hold.expires_ms >= hold.started_ms + settings.max_term * 1000:
            return False
        return hold.now_ms > hold.expires_ms - settings.term * 1000 / 2


class Resources:
    """The resources of all templates."""

    def __init__(self, templates: Iterable[Template] = (), keys: Sequence[str] = ()) -> None:
        """`keys`: as those that sign rooms' cookies, oldest to newest."""
        self._kinds = {template.name: _kind(template, list(keys)) for template in templates}

    def template_of(self, name: str) -> str:
        """Of a name such as seat~17, also where no resource may have it; "" where the template is
        unknown."""
        template, is_of, _ = name.partition(SEPARATOR)
        return template if is_of and template in self._kinds else ""

    def find(self, name: str) -> Resource | None:
        """Of a name such as seat~17; None where the template is unknown, or no resource may have
        the name."""
        prefix, _, resource = name.partition(SEPARATOR)
        kind = self._kinds.get(prefix)
        if kind is None or not kind.template.settings.has(resource):
            return None
        template, tokens, settings, grants = kind
        message = settings.message
        if message is not None and _NAME in message:
            settings = settings.model_copy(update={"message": message.replace(_NAME, resource)})
        return Resource(name, resource, template, tokens, settings, grants)


def _kind(template: Template, keys: list[str]) -> _Kind:
    # A room that was called so once signed tickets of its own.
    tokens = Tokens(template.name + SEPARATOR, keys, template.clock)
    tokens.cookie_name = COOKIE_PREFIX + template.name
    # Signed anew each hour at the most: its holder must be known until the term is over.
    tokens.lifetime_ms += round(template.settings.term * 1000)
    settings = RoomSettings(
        total_active_users=template.settings.capacity,
        max_waiting=template.settings.max_waiting,
        queueing_status_code=template.settings.queueing_status_code,
        message=template.settings.message,
    )
    return _Kind(template, tokens, settings, Grants("", []))


def _answer(hold: Hold, ticket: Ticket, queue: int) -> Answer:
    token = _given(hold, ticket, queue)
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


def _given(hold: Hold, ticket: Ticket, queue: int) -> Ticket | None:
    """The ticket to give; None: theirs will do."""
    is_known = ticket.joined_ms > 0 and ticket.signed_ms > hold.now_ms - RESIGN_MS
    is_newer = hold.order > ticket.order
    if is_known and not is_newer:
        return None
    joined_ms = ticket.joined_ms or hold.now_ms
    order, queue = (hold.order, queue) if is_newer else (ticket.order, ticket.epoch)
    return Ticket(ticket.visitor, order, joined_ms, queue)
