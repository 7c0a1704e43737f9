"""A model of a room's rules about who is next, in plain Python.

A visitor's order is the number by which the queue is sorted. It encodes the sub-queue or priority,
the arrival, and in its last three bits the class.
"""

from fractions import Fraction

from sidecar.rooms.settings import RoomSettings
from sidecar.visitors.model import Phase

#: The distance between the orders of two sub-queues or priorities.
BAND = 2**51
#: Draw numbers are below this.
DRAWS = 2**50
#: How far drawn places are ahead of all others.
FRONT = 4 * BAND


def phase(settings: RoomSettings, now: int) -> Phase:
    return settings.schedule_at(now).phase


def apply_event(settings: RoomSettings, now: int) -> RoomSettings:
    """Return the settings with the overrides of an open event, and those of a hold."""
    schedule, hold = settings.schedule_at(now), settings.hold
    if schedule.event is not None and schedule.phase is Phase.OPEN:
        settings = settings.model_copy(update=schedule.event.overrides)
    if hold is None or now >= hold.until + 120_000:
        return settings
    gentle = max(1, settings.total_active_users / 2)
    held = {
        "queue_all": settings.queue_all or now < hold.until,
        "new_users_per_minute": min(gentle, settings.new_users_per_minute or gentle),
    }
    return settings.model_copy(update=held)


def next_arrival(now: int, last: int) -> int:
    """Return the arrival of the next visitor in µs. It is a multiple of 8, and after `last`."""
    return max(now * 1000, (last // 8 + 1) * 8)


def is_random(settings: RoomSettings) -> bool:
    return settings.queueing_method == "random"


def is_weighted(settings: RoomSettings) -> bool:
    return any(line.weight for line in settings.lines)


def is_by_arrival(settings: RoomSettings) -> bool:
    return bool(settings.classes) and settings.display == "arrival" and not is_random(settings)


def offset_of(settings: RoomSettings, name: str) -> int:
    """Return what is added to an arrival for the order of a visitor of this class."""
    if name not in settings.classes:
        return 0
    rules = settings.classes[name]
    names = [line.name for line in settings.lines]
    band = len(names) - 1 - names.index(rules.line) if rules.line else 0
    band = band if names else rules.priority
    head_start = 0 if is_random(settings) else round(rules.head_start * 1000) * 1000
    return sorted(settings.classes).index(name) + 1 - head_start - band * BAND


def arrival_of(settings: RoomSettings, order: int) -> int:
    """Return the arrival from which an order was computed."""
    for number, name in enumerate(sorted(settings.classes), start=1):
        if number == order % 8:
            head_start = 0 if is_random(settings) else settings.classes[name].head_start
            order += round(head_start * 1000) * 1000 - number
            break
    return order % BAND // 8 * 8


def is_drawn(order: int) -> bool:
    return order < -3 * BAND


def line_of(settings: RoomSettings, order: int) -> int | None:
    """Return the number of an order's sub-queue, from 0. None if the room has no sub-queues, or if
    the place was drawn."""
    count = len(settings.lines)
    if not count or is_drawn(order):
        return None
    return int(min(count - 1, max(0, count - 1 + order // BAND)))


def lowest_order(settings: RoomSettings, line: int | None) -> int:
    """Return the lowest order in a sub-queue."""
    return 0 if line is None else -(len(settings.lines) - 1 - line) * BAND


class Weights:
    """Chooses sub-queues by weight, with Tijdeman's rule in exact fractions. `credits` has the
    share of calls that each sub-queue is owed."""

    def __init__(self) -> None:
        self.credits: dict[int, Fraction] = {}

    def choose(self, settings: RoomSettings, busy: set[int]) -> tuple[int, dict[int, Fraction]]:
        """Return which of the `busy` sub-queues is next, and the credits after that call."""
        weights = {line: settings.lines[line].weight or 0 for line in sorted(busy)}
        total = sum(weights.values())
        share = {line: Fraction(weight, total) for line, weight in weights.items()}
        saved = {line: self.credits.get(line, Fraction(0)) + share[line] for line in share}
        enough = Fraction(1, 2 * (len(busy) - 1)) if len(busy) > 1 else Fraction(0)
        line = min(saved, key=lambda n: (saved[n] < enough, (1 - enough - saved[n]) / share[n], n))
        return line, {**saved, line: saved[line] - 1}
