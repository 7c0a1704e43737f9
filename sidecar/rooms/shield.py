"""The shield, which keeps a flood of newcomers away from Redis.

When newcomers arrive faster than the room's `shield_above`, a replica gives no more places to
plain requests. Instead the replica sends an answer that nginx may cache, and each browser takes a
place by `POST join`, after a random delay. That request needs a token which becomes valid only
after two seconds, so that no program gets ahead of waiting browsers. A client without cookies and
scripts gets the answer cached by nginx, and no place. One address may join 20 times a second."""

from dataclasses import dataclass, field
from enum import Enum, auto

from sidecar.kit.addresses import AddressLimit
from sidecar.rooms.bearer import is_public_address
from sidecar.visitors.verdict_lifetime import BRIEF_TTL_MS

#: A raised shield stays up for one to two periods. It ends at the end of a period, and so on all
#: replicas at the same time. Otherwise, while nginx serves the cached answer of one replica, the
#: other replicas would get no requests, and conclude that the flood is over.
PERIOD_MS = 4_000
#: How long replicas probe, after the shield, whether the flood is over: longer than nginx caches.
PROBE_MS = BRIEF_TTL_MS + 500
#: The rate and the burst of joins from one IP address. All visitors behind the address of an office
#: or mobile carrier may join within seconds.
JOINS_PER_S, JOINS_BURST = 20, 200


class ShieldVerdict(Enum):
    """What the shield decides about one newcomer."""

    #: The newcomer gets a place at once.
    NONE = auto()
    #: The newcomer gets no place. nginx may cache the answer briefly, for all newcomers.
    UP = auto()
    #: The newcomer gets no place. Every newcomer must be counted, so nginx may not cache this.
    PROBING = auto()


@dataclass(slots=True)
class Shield:
    """One replica's shield of one room.

    A leaky bucket counts newcomers. It leaks `shield_above` newcomers a second, and holds as many.
    When it overflows, the shield goes up. While the shield probes, the bucket leaks half as many
    and holds half a second of them, so that the first newcomers of a continuing flood overflow it.
    """

    #: The time until which the shield stays up, in ms by the clock of Redis.
    until_ms: int = 0
    _level: float = 0.0
    _level_ms: int = 0
    _joins: AddressLimit = field(
        default_factory=lambda: AddressLimit(per_s=JOINS_PER_S, burst=JOINS_BURST)
    )

    def check_join(self, address: str, now_ms: int) -> ShieldVerdict:
        """Return the verdict about a newcomer who was counted before and now joins from the waiting
        page. Only the limit on joins from one IP address may delay such a newcomer."""
        is_limited = self.is_active(now_ms) and is_public_address(address)
        must_wait = is_limited and self._joins.wait_s(address, now_ms / 1000) > 0
        return ShieldVerdict.PROBING if must_wait else ShieldVerdict.NONE

    def is_active(self, now_ms: int) -> bool:
        """Return True while the shield is up, or is probing whether the flood is over."""
        return now_ms < self.until_ms + PROBE_MS

    def count_newcomer(self, shield_above: int, now_ms: int) -> ShieldVerdict:
        """Count a newcomer, and return the verdict. `shield_above` is in newcomers per second."""
        if now_ms < self.until_ms:
            return ShieldVerdict.UP
        is_probing = self.is_active(now_ms)
        rate = shield_above / 2 if is_probing else shield_above
        leaked = max(0, now_ms - self._level_ms) * rate / 1000
        self._level = max(0.0, self._level - leaked) + 1
        self._level_ms = now_ms
        if self._level > (max(1, rate / 2) if is_probing else rate):
            self.until_ms = (now_ms // PERIOD_MS + 2) * PERIOD_MS
            return ShieldVerdict.UP
        return ShieldVerdict.PROBING if is_probing else ShieldVerdict.NONE

    def is_cached_by_nginx(self, now_ms: int) -> bool:
        """Return True while nginx may still serve an answer that it cached during the shield."""
        return now_ms < self.until_ms + BRIEF_TTL_MS

    def raise_until(self, until_ms: int) -> None:
        """Keep the shield up at least until this time, because another replica's shield is up."""
        self.until_ms = max(self.until_ms, until_ms)
