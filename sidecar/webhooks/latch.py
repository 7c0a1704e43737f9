"""A latch, which keeps a message from being sent again while a number goes up and down."""

from dataclasses import dataclass, replace

#: The shortest time from one turning on to the next.
MIN_INTERVAL_MS = 60_000


@dataclass(frozen=True, slots=True)
class Latch:
    """A condition of a room that is on or off."""

    is_on: bool = False
    #: When the latch last turned on. 0 if it never did.
    on_ms: int = 0
    #: Since when the opposite of the condition has held. None if the latch is off or the opposite
    #: does not hold.
    resting_ms: int | None = None

    def step(self, now_ms: int, *, sets: bool, resets: bool, reset_ms: int = 0) -> "Latch":
        """Return the latch after a check of its room. The latch turns on if `sets`, and off if
        `resets` has been True for `reset_ms`."""
        if not self.is_on:
            can_turn_on = sets and now_ms - self.on_ms >= MIN_INTERVAL_MS
            return Latch(is_on=True, on_ms=now_ms) if can_turn_on else self
        if not resets:
            return replace(self, resting_ms=None)
        since_ms = now_ms if self.resting_ms is None else self.resting_ms
        if now_ms - since_ms >= reset_ms:
            return Latch(on_ms=self.on_ms)
        return replace(self, resting_ms=since_ms)
