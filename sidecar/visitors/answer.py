"""Defines the verdict of a room or leased resource: whether a visitor's request may pass."""

from sidecar.kit.values import value
from sidecar.visitors.estimate import Wait, estimate
from sidecar.visitors.model import (
    TICKET_RENEW_MS,
    Pass,
    Phase,
    QueueOutcome,
    Standing,
    Ticket,
    Token,
    VisitorState,
)


@value
class Answer:
    """The verdict about a visitor. If `token` is None, the cookie stays as it is."""

    state: VisitorState
    token: Token | None = None
    standing: Standing | None = None
    joined_ms: int | None = None
    #: The visitor's id. None if Redis was not asked.
    visitor: str | None = None
    #: True if Redis is unavailable. Then newcomers wait, and admitted visitors still pass.
    store_unavailable: bool = False
    #: True if the visitor was admitted while Redis was unavailable (fail-open).
    failed_open: bool = False
    #: True if nginx may cache the verdict for VERDICT_TTL_MS, for all requests with the same
    #: cookie, class and exemption: for a pass that needs no renewal in that time, for a visitor
    #: outside the roll-out, and while everybody without a cookie is refused.
    is_settled: bool = False
    #: True if the shield is up. Then nothing about newcomers is stored until they request the
    #: `join_url` in the status document.
    joins_later: bool = False
    #: Why the visitor needs no session: "outside" (of the roll-out) or "exempt". Empty otherwise.
    uncounted: str = ""

    @property
    def wait(self) -> Wait | None:
        """The estimated wait. None if the visitor does not wait or the wait is unknown."""
        is_waiting = self.state is VisitorState.WAITING
        return estimate(self.standing) if is_waiting and self.standing else None


def build_answer(standing: Standing, token: Ticket | Pass) -> Answer | None:
    """Return the verdict that follows from a script's standing, or None if the token is void."""
    match standing.outcome:
        case QueueOutcome.ADMITTED:
            new_pass = Pass(
                token.visitor,
                standing.order,
                token.joined_ms,
                token.epoch,
                started_ms=standing.started_ms,
                renewed_ms=standing.now_ms,
                expires_ms=standing.expires_ms,
            )
            return Answer(VisitorState.ADMITTED, new_pass, standing, token.joined_ms, token.visitor)
        case QueueOutcome.WAITING:
            order = token.order if standing.phase is Phase.PREQUEUE else standing.order
            is_up_to_date = (
                isinstance(token, Ticket)
                and token.epoch == standing.epoch
                and token.order == order
                and token.signed_ms > standing.now_ms - TICKET_RENEW_MS
            )
            class_name = token.class_name if isinstance(token, Ticket) else ""
            place = token.visitor, order, token.joined_ms, standing.epoch
            ticket = None if is_up_to_date else Ticket(*place, class_name=class_name)
            return Answer(VisitorState.WAITING, ticket, standing, token.joined_ms, token.visitor)
        case QueueOutcome.FULL:
            return Answer(VisitorState.FULL, standing=standing)
        case QueueOutcome.REJECTED:
            return Answer(VisitorState.CLOSED, standing=standing)
        case QueueOutcome.GONE:
            return None
