"""A latch with hysteresis, which prevents a message at each change of a fluctuating number."""

from dataclasses import dataclass, replace

#: The shortest time between two moments at which a latch turns on.
MIN_INTERVAL_MS = 60_000


@dataclass(frozen=True, slots=True)
class Latch:
    """The state of a latch for one condition of a room."""

    is_on: bool = False
    #: When the latch last turned on, or 0 if it never did.
    on_ms: int = 0
    #: The time since which the condition to turn off has been true; None if not, or if off.
    resting_ms: int | None = None

    def update(
        self, now_ms: int, *, turn_on: bool, turn_off: bool, off_after_ms: int = 0
    ) -> "Latch":
        """Return the latch after a check of its room. It turns on if `turn_on` is True, and off if
        `turn_off` has been True for `off_after_ms`."""
        if not self.is_on:
            can_turn_on = turn_on and now_ms - self.on_ms >= MIN_INTERVAL_MS
            return Latch(is_on=True, on_ms=now_ms) if can_turn_on else self
        if not turn_off:
            return replace(self, resting_ms=None)
        since_ms = now_ms if self.resting_ms is None else self.resting_ms
        if now_ms - since_ms >= off_after_ms:
            return Latch(on_ms=self.on_ms)
        return replace(self, resting_ms=since_ms)
