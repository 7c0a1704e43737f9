"""What the rules of a room answer about one visitor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sidecar.base.model import State
from sidecar.core.estimate import estimate

if TYPE_CHECKING:
    from sidecar.base.model import Standing, Token
    from sidecar.core.estimate import Wait


@dataclass(frozen=True, slots=True)
class Answer:
    """What a visitor is told, and the token to give them (None: keep what they have)."""

    state: State
    token: Token | None = None
    standing: Standing | None = None
    joined_ms: int | None = None
    #: Whose answer it is, where the store was asked about somebody.
    visitor: str | None = None
    #: The store did not answer: newcomers wait, those inside keep passing.
    store_away: bool = False
    #: A newcomer whom this replica let in by itself: the store knows nothing of them.
    let_in_alone: bool = False
    #: Holds for VERDICT_TTL_MS and for every request with the same cookie, class and exemption by
    #: nginx, which are the key that nginx keeps it by: the pass verifies, and is not due to be
    #: renewed in that time; the bearer is outside; or all who come without a cookie are refused.
    is_settled: bool = False
    #: Why somebody passes uncounted: outside, exempt. The word is for the metrics only.
    uncounted: str = ""

    @property
    def wait(self) -> Wait | None:
        waits = self.standing is not None and self.state is State.WAITING
        return estimate(self.standing) if waits and self.standing else None
