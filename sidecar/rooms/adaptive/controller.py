"""The control law: how many visitors may be inside, by how the site responds.

The law acts on one value, the ceiling, which is the room's cap while it is lower. Nobody is thrown
out, and the order of the queue stays as it is. It compares the p90 of the response times and the
share of errors with targets that the operator set, learns only while the room is full, and answers
trouble within two ticks: visitors leave slowly, so a cut counts those whom the site could not serve
(Little's law) instead of repeating a factor.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal

from sidecar.rooms.adaptive.signals import ERRORS, RESPONSES, Counts

#: How often the law runs, in seconds.
TICK_S = 5
#: The windows from which the shortest with ENOUGH responses is chosen, in seconds.
WINDOWS_S = (10, 20, 30, 60, 120, 300)
ENOUGH, FEWEST = 60, 20
SLOW_S, LONG_S, SILENCE_S = 60, 300, 20
#: Errors below this number in a window may be accidents.
FEWEST_ERRORS = 5
#: How many ticks in a row above the target make an overload.
OVERLOAD_TICKS = 2
#: The strain above which the ceiling does not grow.
EASE = 0.75
#: Growth of the ceiling per minute: the least and the most at first, that up to KNOWN of what the
#: site is known to bear, and that beyond it.
FIRST_GROWTH, REGROWTH, CREEP = (0.1, 0.5), 0.5, 0.03
#: The share of what the site is known to bear that may enter fast, and at once.
KNOWN, AT_ONCE = 0.85, 0.5
#: How far beyond the mean number inside the ceiling may go: always, and more after a quiet time.
STEP, BOOST, QUIET_S = 0.07, 0.4, 900.0
#: In which time what was learned follows a lower ceiling, in seconds.
FORGET_S = 600.0
#: A cut is futile if this share of visitors brings no less than this share of the strain.
FUTILE_INSIDE, FUTILE_STRAIN = 0.7, 0.8
#: The bounds of the mean stay that the law reckons with, in seconds.
SHORTEST_STAY_S, LONGEST_STAY_S = 120.0, 900.0

StateName = Literal["no signal", "overloaded", "slow without load", "strained", "healthy"]


@dataclass(frozen=True, slots=True)
class Targets:
    """What the operator asks of the site.

    Args:
        p90_s: The highest p90 of response times in seconds, or None.
        max_errors: The highest share of errors, from 0 to 1, or None.
        lowest: How many visitors the site bears for sure.
        highest: The room's cap.
    """

    p90_s: float | None
    max_errors: float | None
    lowest: int
    highest: int


@dataclass(slots=True)
class Learned:
    """What the law remembers from tick to tick, and over sales. Redis stores it as JSON."""

    ceiling: float = 0.0
    #: How many visitors the site is believed to sustain; None before the first overload.
    good: float | None = None
    #: The most visitors that were inside for a whole stay while the site was healthy.
    served: float = 0.0
    state: StateName = "no signal"
    #: Ticks in a row above the target, and when the last overload was, in s; 0: never.
    above: int = 0
    overload_s: float = 0.0
    #: At the beginning of an overload: how many were inside, and the worst strain since.
    entry_inside: float | None = None
    entry_strain: float = 0.0
    #: How many were inside when a cut turned out to be futile.
    futile: float | None = None
    #: Ticks in a row with so few inside that a cut could turn out to be futile.
    few: int = 0
    #: Responses a second for each visitor inside, as usual; None before the first signal.
    usual: float | None = None
    #: The p90 in s and the share of errors of the last tick, and of how many responses.
    p90_s: float = 0.0
    error_share: float = 0.0
    responses: int = 0
    #: The mean number inside over about one stay, and how many ticks it covers.
    past: float = 0.0
    ticks: int = 0

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "Learned":
        """Return what Redis stores. Values that only another version knows are left out."""
        return cls(
            **{field.name: values[field.name] for field in fields(cls) if field.name in values}
        )

    def to_json(self) -> dict[str, Any]:
        """Return the values for Redis, rounded. `usual` may be small, and moves in small steps."""
        return {
            name: round(value, 6) if isinstance(value, float) else value
            for name, value in asdict(self).items()
        }


@dataclass(frozen=True, slots=True)
class Reading:
    """What is known about a room at a tick.

    Args:
        now_s: The time in seconds.
        inside: How many visitors are inside.
        stay_s: The mean time that a slot is held, in seconds.
        count: Returns the counts of the last so many seconds.
    """

    now_s: float
    inside: int
    stay_s: float
    count: Callable[[int], Counts]


@dataclass(frozen=True, slots=True)
class _Site:
    """How the site does at a tick: `strain` over the shortest window with enough responses, and
    `slow` over a minute at least."""

    reading: Reading
    window: int
    counts: Counts
    strain: float
    slow: float


def tick(learned: Learned, targets: Targets, reading: Reading) -> None:
    """Run the law once, and change `learned`."""
    inside, count = reading.inside, reading.count
    stay_s = min(LONGEST_STAY_S, max(SHORTEST_STAY_S, reading.stay_s))
    ticks = int(stay_s // TICK_S)
    learned.ticks = min(ticks, learned.ticks + 1)
    # Exponential smoothing, whose values are half a stay old on average, as a stay's mean is.
    learned.past += (inside - learned.past) * max(1 / learned.ticks, 2 / ticks)
    window = next((w for w in WINDOWS_S if count(w)[RESPONSES] >= ENOUGH), WINDOWS_S[-1])
    counts = count(window)
    learned.responses = counts[RESPONSES]
    learned.p90_s, learned.error_share = counts.percentile_s(0.9), counts.error_share
    if counts[RESPONSES] < FEWEST or _is_silent(learned, inside, count(SILENCE_S)):
        learned.state, learned.above = "no signal", 0
        most = min(learned.ceiling, inside + 1, learned.good or float("inf"))
        learned.ceiling = max(_at_once(learned, targets), most)
    else:
        site = _Site(
            reading=replace(reading, stay_s=stay_s),
            window=window,
            counts=counts,
            strain=find_strain(targets, counts),
            slow=find_strain(targets, count(max(window, SLOW_S))),
        )
        learned.above = learned.above + 1 if site.strain > 1 else 0
        if learned.above >= OVERLOAD_TICKS:
            _cut(learned, targets, site)
        else:
            learned.ceiling = max(learned.ceiling, inside)  # the site bears these: cut no further
            if _is_strained(learned, targets, site):
                learned.state = "strained"
                learned.ceiling = max(targets.lowest, min(learned.ceiling, inside + 1))
            else:
                _grow(learned, targets, site)
    learned.ceiling = min(learned.ceiling, targets.highest)


def find_strain(targets: Targets, counts: Counts) -> float:
    """Return how near the site is to its targets: 1 is at the target, 2 is twice as bad."""
    strains = [0.0]
    if targets.p90_s is not None:
        strains.append(counts.percentile_s(0.9) / targets.p90_s)
    if targets.max_errors is not None and counts[ERRORS] >= FEWEST_ERRORS:
        strains.append(counts.error_share / targets.max_errors)
    return max(strains)


def _at_once(learned: Learned, targets: Targets) -> float:
    """Return how many may enter at once, whatever the site says."""
    return max(targets.lowest, AT_ONCE * (learned.good or 0.0))


def _is_silent(learned: Learned, inside: int, recent: Counts) -> bool:
    """Return True if far fewer responses come than usual from so many visitors."""
    usual = learned.usual or 0.0
    due = SILENCE_S * inside * usual
    if due >= 30 and recent[RESPONSES] < 0.1 * due:
        return True
    if inside:
        seen = recent[RESPONSES] / SILENCE_S / inside
        usual = usual or seen
        learned.usual = usual + (seen - usual) * TICK_S / LONG_S
    return False


def _cut(learned: Learned, targets: Targets, site: _Site) -> None:
    """Lower the ceiling by those whom the site does not serve in time, or stop where fewer visitors
    did not help."""
    inside, counts = site.reading.inside, site.counts
    if learned.entry_inside is None:
        learned.entry_inside, learned.entry_strain = float(inside), site.slow
    if learned.state not in {"overloaded", "slow without load"}:
        good = learned.past if learned.good is None else min(learned.good, learned.past)
        learned.good = max(targets.lowest, good)
        learned.ceiling, learned.few = min(learned.ceiling, inside), 0
    learned.overload_s = site.reading.now_s
    learned.entry_strain = max(site.slow, learned.entry_strain)
    few = FUTILE_INSIDE * min(learned.entry_inside, learned.served)
    learned.few = learned.few + 1 if inside <= few else 0
    # The minute may show how it was with more visitors. Short visits end faster than it passes.
    is_seen = learned.few * TICK_S > site.window
    is_futile = min(site.slow, site.strain) >= FUTILE_STRAIN * learned.entry_strain
    if learned.futile is None and is_seen and is_futile:
        learned.futile = float(inside)
    if learned.futile is not None:
        learned.state = "slow without load"
        learned.ceiling = max(learned.futile, AT_ONCE * learned.served, targets.lowest)
        return
    learned.state = "overloaded"
    late = failed = 0.0
    if targets.p90_s is not None and (p90 := counts.percentile_s(0.9)) > targets.p90_s:
        # Little's law: so many visitors wait for a response for longer than they should.
        per_s = counts[RESPONSES] / site.window / counts.share
        late = per_s * counts.mean_s * (1 - targets.p90_s / p90)
    if targets.max_errors is not None:
        failed = inside * max(0.0, counts.error_share - targets.max_errors)
    learned.ceiling = max(targets.lowest, min(learned.ceiling, inside - max(late, failed)))
    if learned.good is not None and learned.good > learned.ceiling:
        learned.good += (learned.ceiling - learned.good) * TICK_S / FORGET_S


def _is_strained(learned: Learned, targets: Targets, site: _Site) -> bool:
    """Return True if the site is near its targets, so that one visitor may enter as one leaves."""
    if site.strain > 1 or site.slow > EASE:
        return True
    was_bad = find_strain(targets, site.reading.count(LONG_S)) > 1
    return was_bad and not _is_below_known(learned)


def _is_below_known(learned: Learned) -> bool:
    return learned.good is not None and learned.ceiling < KNOWN * learned.good


def _grow(learned: Learned, targets: Targets, site: _Site) -> None:
    """Raise the ceiling of a full room: fast up to what the site is known to bear, then slowly."""
    learned.state, learned.entry_inside, learned.futile = "healthy", None, None
    inside, past = site.reading.inside, learned.past
    if learned.ticks >= int(site.reading.stay_s // TICK_S):
        learned.served = max(learned.served, min(inside, past))
    at_once = _at_once(learned, targets)
    if inside < 0.9 * learned.ceiling:  # not full: nothing is learned
        learned.ceiling = max(at_once, min(learned.ceiling, inside / 0.9))
        return
    first = min(FIRST_GROWTH[1], max(FIRST_GROWTH[0], 2 * 60 / site.reading.stay_s))
    most = float(targets.highest)
    if learned.good is None:
        growth = first
    elif _is_below_known(learned):
        growth, most = REGROWTH, KNOWN * learned.good
    else:
        quiet_s = site.reading.now_s - learned.overload_s - QUIET_S
        calm = min(1.0, max(0.0, quiet_s / QUIET_S))
        growth = CREEP + (first - CREEP) * calm * max(0.0, 1 - site.slow / EASE) ** 2
        most = past * (1 + STEP + calm * BOOST)
    # What is seen late is answered slowly.
    grown = learned.ceiling * (1 + min(1.0, 60 / site.window) * growth * TICK_S / 60)
    learned.ceiling = max(learned.ceiling, at_once, min(grown, most))
    if learned.good is not None:
        learned.good = max(learned.good, min(inside, past))
