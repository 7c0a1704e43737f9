"""The verdict about one visitor, as a room gives it."""

from sidecar.kit.values import value
from sidecar.visitors.estimate import Wait, estimate
from sidecar.visitors.model import RESIGN_MS, Outcome, Pass, Phase, Standing, State, Ticket, Token


@value
class Answer:
    """The response to a visitor, and the token to give them (None: keep what they have)."""

    state: State
    token: Token | None = None
    standing: Standing | None = None
    joined_ms: int | None = None
    #: The visitor's id, if Redis was asked.
    visitor: str | None = None
    #: Redis is unavailable: newcomers wait, and visitors inside keep passing.
    store_unavailable: bool = False
    #: A fail-open admission: Redis does not know this newcomer.
    failed_open: bool = False
    #: Whether the answer holds for VERDICT_TTL_MS and for every request with the same key in nginx:
    #: cookie, class and exemption. So it is for a pass that needs no renewal in that time, for a
    #: visitor outside the roll-out, and if everybody without a cookie is refused.
    is_settled: bool = False
    #: The shield is up: a newcomer joins later, at the `join_url` of the status document.
    joins_later: bool = False
    #: Why the visitor passes uncounted: outside, exempt; for metrics only.
    uncounted: str = ""

    @property
    def wait(self) -> Wait | None:
        waits = self.standing is not None and self.state is State.WAITING
        return estimate(self.standing) if waits and self.standing else None


def answer_of(standing: Standing, token: Ticket | Pass) -> Answer | None:
    """Return what a script's reply means for the token's visitor, or None if the token is void."""
    match standing.outcome:
        case Outcome.ADMITTED:
            given = Pass(
                token.visitor,
                standing.order,
                token.joined_ms,
                token.epoch,
                started_ms=standing.started_ms,
                renewed_ms=standing.now_ms,
                expires_ms=standing.expires_ms,
            )
            return Answer(State.ADMITTED, given, standing, token.joined_ms, token.visitor)
        case Outcome.WAITING:
            order = token.order if standing.phase is Phase.PREQUEUE else standing.order
            keeps = (
                isinstance(token, Ticket)
                and token.epoch == standing.epoch
                and token.order == order
                and token.signed_ms > standing.now_ms - RESIGN_MS
            )
            ticket = None
            if not keeps:
                name = token.class_name if isinstance(token, Ticket) else ""
                epoch = standing.epoch
                ticket = Ticket(token.visitor, order, token.joined_ms, epoch, class_name=name)
            return Answer(State.WAITING, ticket, standing, token.joined_ms, token.visitor)
        case Outcome.FULL:
            return Answer(State.FULL, standing=standing)
        case Outcome.REJECTED:
            return Answer(State.CLOSED, standing=standing)
        case Outcome.GONE:
            return None
