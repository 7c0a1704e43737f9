"""Keeps a flood of newcomers from the store.

When newcomers come faster than the room's `shield_above`, a replica gives no more places
itself: it says so in a way that nginx may keep, and each browser takes its place by
`POST join`, a random moment later. That needs a token that is worth nothing for two seconds, so
that no program is ahead of browsers that wait. A client that sends no cookie and runs no page costs
nginx an answer, and nobody a place. One address may join 20 times a second.
"""

from dataclasses import dataclass, field
from enum import Enum, auto

from sidecar.kit.addresses import AddressLimit
from sidecar.rooms.bearer import is_global
from sidecar.visitors.verdict_lifetime import BRIEF_TTL_MS

#: The shield stays up for one to two of these, to the same moment on all replicas: while one
#: of them lets nginx keep its answer, the others get no requests, and would take that for the end
#: of the flood.
PERIOD_MS = 4_000
#: Then replicas look whether the flood is over, for longer than nginx keeps the last answer.
LOOK_MS = BRIEF_TTL_MS + 500
#: Newcomers of one address who may join a second, and at once: the visitors of an office or mobile
#: carrier behind one address join within seconds.
JOINS_PER_S, JOINS_AT_ONCE = 20, 200


class Shelter(Enum):
    """How one newcomer is treated."""

    #: The newcomer takes a place at once.
    NONE = auto()
    #: No place is given; nginx may keep the answer for a moment, for all newcomers.
    UP = auto()
    #: No place is given; each newcomer is counted, so nginx must not keep the answer.
    LOOKING = auto()


@dataclass(slots=True)
class Shield:
    """One replica's shield before one room.

    Newcomers fill a bucket of one second's worth that leaks at `above` a second; when it
    overflows, the shield goes up. While it looks, the rate is half of that and the bucket
    holds half a second's worth, so a flood that lasts is known by its first few.
    """

    #: Until when the shield is up, by the clock of Redis, ms.
    until_ms: int = 0
    _level: float = 0.0
    _level_ms: int = 0
    _joins: AddressLimit = field(
        default_factory=lambda: AddressLimit(per_s=JOINS_PER_S, burst=JOINS_AT_ONCE)
    )

    def meet_again(self, address: str, now_ms: int) -> Shelter:
        """Decide about a newcomer who joins from the waiting page, from this address. They were
        counted before."""
        is_limited = self.is_up(now_ms) and is_global(address)
        waits = is_limited and self._joins.wait_s(address, now_ms / 1000) > 0
        return Shelter.LOOKING if waits else Shelter.NONE

    def is_up(self, now_ms: int) -> bool:
        """Return True while the shield is up, or is looking whether the flood is over."""
        return now_ms < self.until_ms + LOOK_MS

    def meet(self, above: int, now_ms: int) -> Shelter:
        """Count a newcomer and decide how they are treated. `above` is newcomers a second; the time
        is that of Redis."""
        if now_ms < self.until_ms:
            return Shelter.UP
        looking = self.is_up(now_ms)
        rate = above / 2 if looking else above
        leaked = max(0, now_ms - self._level_ms) * rate / 1000
        self._level = max(0.0, self._level - leaked) + 1
        self._level_ms = now_ms
        if self._level > (max(1, rate / 2) if looking else rate):
            self.until_ms = (now_ms // PERIOD_MS + 2) * PERIOD_MS
            return Shelter.UP
        return Shelter.LOOKING if looking else Shelter.NONE

    def is_kept_by_nginx(self, now_ms: int) -> bool:
        """Return True while nginx may still answer newcomers with the raised shield's kept
        verdict."""
        return now_ms < self.until_ms + BRIEF_TTL_MS

    def learn(self, until_ms: int) -> None:
        """Raise the shield until another replica's ends."""
        self.until_ms = max(self.until_ms, until_ms)
