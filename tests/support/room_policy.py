"""A room's rules about who is next, in plain Python: orders, sub-queues, weights."""

from fractions import Fraction

from sidecar.rooms.settings import RoomSettings
from sidecar.visitors.model import Phase

BAND = 2**51
DRAWS = 2**50
FRONT = 4 * BAND


def phase(settings: RoomSettings, now: int) -> Phase:
    return settings.moments(now).phase


def apply_event(settings: RoomSettings, now: int) -> RoomSettings:
    """Return the settings with the overrides of an open event."""
    moments = settings.moments(now)
    is_open = moments.event is not None and moments.phase is Phase.OPEN
    return settings.model_copy(update=moments.event.overrides) if is_open else settings


def next_arrival(now: int, last: int) -> int:
    """Return the next arrival, µs, a multiple of 8."""
    return max(now * 1000, (last // 8 + 1) * 8)


def is_random(settings: RoomSettings) -> bool:
    return settings.queueing_method == "random"


def is_weighted(settings: RoomSettings) -> bool:
    return any(line.weight for line in settings.lines)


def is_by_arrival(settings: RoomSettings) -> bool:
    return bool(settings.classes) and settings.display == "arrival" and not is_random(settings)


def offset_of(settings: RoomSettings, name: str) -> int:
    """Return the difference between a class's order and the arrival."""
    if name not in settings.classes:
        return 0
    rules = settings.classes[name]
    names = [line.name for line in settings.lines]
    band = len(names) - 1 - names.index(rules.line) if rules.line else 0
    band = band if names else rules.priority
    head_start = 0 if is_random(settings) else round(rules.head_start * 1000) * 1000
    return sorted(settings.classes).index(name) + 1 - head_start - band * BAND


def arrival_of(settings: RoomSettings, order: int) -> int:
    """Return the arrival from which an order was made, by its last three bits."""
    for number, name in enumerate(sorted(settings.classes), start=1):
        if number == order % 8:
            head_start = 0 if is_random(settings) else settings.classes[name].head_start
            order += round(head_start * 1000) * 1000 - number
            break
    return order % BAND // 8 * 8


def is_drawn(order: int) -> bool:
    return order < -3 * BAND


def line_of(settings: RoomSettings, order: int) -> int | None:
    """Return the sub-queue's number from 0; None if there are none or the place was drawn."""
    count = len(settings.lines)
    if not count or is_drawn(order):
        return None
    return int(min(count - 1, max(0, count - 1 + order // BAND)))


def lowest_order(settings: RoomSettings, line: int | None) -> int:
    return 0 if line is None else -(len(settings.lines) - 1 - line) * BAND


class Weights:
    """Tijdeman's rule in exact fractions: the credit of each sub-queue."""

    def __init__(self) -> None:
        self.credits: dict[int, Fraction] = {}

    def choose(self, settings: RoomSettings, busy: set[int]) -> tuple[int, dict[int, Fraction]]:
        """Return the next sub-queue, and the credits after a call from it."""
        weights = {line: settings.lines[line].weight or 0 for line in sorted(busy)}
        total = sum(weights.values())
        share = {line: Fraction(weight, total) for line, weight in weights.items()}
        saved = {line: self.credits.get(line, Fraction(0)) + share[line] for line in share}
        enough = Fraction(1, 2 * (len(busy) - 1)) if len(busy) > 1 else Fraction(0)
        line = min(
            saved,
            key=lambda n: (saved[n] < enough, (1 - enough - saved[n]) / share[n], n),
        )
        return line, {**saved, line: saved[line] - 1}
