"""A latch: it keeps a message from being sent again and again while a number swings."""

from dataclasses import dataclass, replace

APART_MS = 60_000


@dataclass(frozen=True, slots=True)
class Latch:
    is_on: bool = False
    #: When it last came on; 0: never.
    on_ms: int = 0
    #: Since when its opposite has held, while it is on. None: it does not hold.
    resting_ms: int | None = None

    def step(self, now_ms: int, *, rises: bool, rests: bool, rest_ms: int = 0) -> "Latch":
        if not self.is_on:
            may = now_ms - self.on_ms >= APART_MS
            return Latch(is_on=True, on_ms=now_ms) if rises and may else self
        if not rests:
            return replace(self, resting_ms=None)
        since_ms = now_ms if self.resting_ms is None else self.resting_ms
        if now_ms - since_ms >= rest_ms:
            return Latch(on_ms=self.on_ms)
        return replace(self, resting_ms=since_ms)
