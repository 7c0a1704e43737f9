"""The control law of adaptive rooms: computes how many visitors may be inside.

The law sets one value, the ceiling, which lowers the room's cap. Nobody is thrown out, and the
queue keeps its order. The law compares the p90 of the site's response times and the share of errors
with the operator's targets. It raises the ceiling only while the room is full, and cuts the ceiling
after two ticks above a target. Because visitors leave slowly, a cut is not a factor that each tick
applies again: the ceiling falls by as many visitors as the site cannot serve (Little's law)."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal

from sidecar.rooms.adaptive.signals import ERRORS, RESPONSES, Counts

#: How often the law runs, in seconds.
TICK_S = 5
#: The windows over which responses are counted, in seconds. The shortest one with ENOUGH_RESPONSES
#: is used. With fewer than MIN_RESPONSES in the longest one, the law does not judge the site.
WINDOWS_S, ENOUGH_RESPONSES, MIN_RESPONSES = (10, 20, 30, 60, 120, 300), 60, 20
#: The shortest window of the slow strain, and those of past trouble and of missing responses, in s.
SLOW_S, LONG_S, SILENCE_S = 60, 300, 20
#: Fewer errors than this in a window may be accidents, and are ignored.
MIN_ERRORS = 5
#: How many ticks in a row above the targets make an overload.
OVERLOAD_TICKS = 2
#: The slow strain above which the ceiling does not grow.
MAX_GROWTH_STRAIN = 0.75
#: The relative growth of the ceiling per minute: before the first overload (at least, at most), and
#: after it below KNOWN_SHARE of the sustainable number of visitors (Learned.good), and above that.
FIRST_GROWTH, REGROWTH, SLOW_GROWTH = (0.1, 0.5), 0.5, 0.03
#: The shares of the sustainable number up to which the ceiling grows back fast, and at once.
KNOWN_SHARE, AT_ONCE_SHARE = 0.85, 0.5
#: By which share the ceiling may exceed the mean number inside, and by which share more if the last
#: overload was long ago (from QUIET_S on, and in full after twice that time).
MEAN_MARGIN, QUIET_MARGIN, QUIET_S = 0.07, 0.4, 900.0
#: The time constant with which the sustainable number follows a lower ceiling, in seconds.
FORGET_S = 600.0
#: Lowering the ceiling is futile if at most the first share of the earlier visitors is inside, and
#: the strain is still at least the second share of the earlier strain.
FUTILE_INSIDE_SHARE, FUTILE_STRAIN_SHARE = 0.7, 0.8
#: The bounds of the mean stay, in seconds. The law replaces a value beyond them.
SHORTEST_STAY_S, LONGEST_STAY_S = 120.0, 900.0

StateName = Literal["no signal", "overloaded", "slow without load", "strained", "healthy"]


@dataclass(frozen=True, slots=True)
class Targets:
    """The operator's targets for the site, and the bounds of the ceiling.

    Args:
        p90_s: The highest p90 of response times in seconds, or None.
        max_errors: The highest share of errors, from 0 to 1, or None.
        min_ceiling: How many visitors the site can certainly serve.
        max_ceiling: The room's cap.
    """

    p90_s: float | None
    max_errors: float | None
    min_ceiling: int
    max_ceiling: int


@dataclass(slots=True)
class Learned:
    """What the law remembers from tick to tick, and from sale to sale. Redis stores it as JSON."""

    ceiling: float = 0.0
    #: The sustainable number of visitors inside, as far as known; None before the first overload.
    good: float | None = None
    #: The highest number of visitors inside over a whole stay while the site was healthy.
    served: float = 0.0
    state: StateName = "no signal"
    #: How many ticks in a row the strain has been above 1, and when the last overload was, in s.
    above: int = 0
    overload_s: float = 0.0
    #: At the first cut since the site was healthy: how many visitors were inside, and the worst
    #: slow strain since then.
    entry_inside: float | None = None
    entry_strain: float = 0.0
    #: How many visitors were inside when the cut turned out to be futile; None if it did not.
    futile: float | None = None
    #: How many ticks in a row so few visitors have been inside that the cut should have helped.
    few: int = 0
    #: The usual number of responses per second and visitor inside; None before the first signal.
    usual: float | None = None
    #: From the window of the last tick: the p90 in s, the share of errors, the number of responses.
    p90_s: float = 0.0
    error_share: float = 0.0
    responses: int = 0
    #: The mean number inside over about one stay, and how many ticks this mean covers.
    past: float = 0.0
    ticks: int = 0

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "Learned":
        """Read the values from Redis. Ignore those that only another version knows."""
        return cls(
            **{field.name: values[field.name] for field in fields(cls) if field.name in values}
        )

    def to_json(self) -> dict[str, Any]:
        """Return the values for Redis, rounded to six decimals, because `usual` may be small."""
        return {
            name: round(value, 6) if isinstance(value, float) else value
            for name, value in asdict(self).items()
        }


@dataclass(frozen=True, slots=True)
class Reading:
    """What is measured about a room at a tick.

    Args:
        now_s: The time in seconds.
        inside: How many visitors are inside.
        stay_s: The mean time that a slot is held, in seconds.
        count: Returns the counts of the responses in the last N seconds.
    """

    now_s: float
    inside: int
    stay_s: float
    count: Callable[[int], Counts]


@dataclass(frozen=True, slots=True)
class _Site:
    """The state of the site at a tick. `strain` and `counts` are of the shortest window with enough
    responses, `window_s`; `slow_strain` is of a window of at least a minute."""

    reading: Reading
    window_s: int
    counts: Counts
    strain: float
    slow_strain: float


def tick(learned: Learned, targets: Targets, reading: Reading) -> None:
    """Run the law once: update `learned` with the ceiling that follows from the reading."""
    inside, count = reading.inside, reading.count
    stay_s = min(LONGEST_STAY_S, max(SHORTEST_STAY_S, reading.stay_s))
    ticks = int(stay_s // TICK_S)
    learned.ticks = min(ticks, learned.ticks + 1)
    # Exponential smoothing. On average its values are as old as those of a mean over one stay.
    learned.past += (inside - learned.past) * max(1 / learned.ticks, 2 / ticks)
    enough = (window for window in WINDOWS_S if count(window)[RESPONSES] >= ENOUGH_RESPONSES)
    window_s = next(enough, WINDOWS_S[-1])
    counts = count(window_s)
    learned.responses = counts[RESPONSES]
    learned.p90_s, learned.error_share = counts.percentile_s(0.9), counts.error_share
    if counts[RESPONSES] < MIN_RESPONSES or _is_silent(learned, inside, count(SILENCE_S)):
        learned.state, learned.above = "no signal", 0
        ceiling = min(learned.ceiling, inside + 1, learned.good or float("inf"))
        learned.ceiling = max(_compute_safe_ceiling(learned, targets), ceiling)
    else:
        site = _Site(
            reading=replace(reading, stay_s=stay_s),
            window_s=window_s,
            counts=counts,
            strain=compute_strain(targets, counts),
            slow_strain=compute_strain(targets, count(max(window_s, SLOW_S))),
        )
        learned.above = learned.above + 1 if site.strain > 1 else 0
        if learned.above >= OVERLOAD_TICKS:
            _cut(learned, targets, site)
        else:
            learned.ceiling = max(learned.ceiling, inside)  # the site can serve them: end the cut
            if _is_strained(learned, targets, site):
                learned.state = "strained"
                learned.ceiling = max(targets.min_ceiling, min(learned.ceiling, inside + 1))
            else:
                _grow(learned, targets, site)
    learned.ceiling = min(learned.ceiling, targets.max_ceiling)


def compute_strain(targets: Targets, counts: Counts) -> float:
    """Return the strain of the site, relative to its targets: 1 is at a target, 2 twice as bad."""
    strains = [0.0]
    if targets.p90_s is not None:
        strains.append(counts.percentile_s(0.9) / targets.p90_s)
    if targets.max_errors is not None and counts[ERRORS] >= MIN_ERRORS:
        strains.append(counts.error_share / targets.max_errors)
    return max(strains)


def _compute_safe_ceiling(learned: Learned, targets: Targets) -> float:
    """Return the number of visitors who may enter at once, whatever the site's responses show."""
    return max(targets.min_ceiling, AT_ONCE_SHARE * (learned.good or 0.0))


def _is_silent(learned: Learned, inside: int, counts: Counts) -> bool:
    """Return True if far fewer responses came than usual with this many visitors inside. If not,
    update `learned.usual`. `counts` are of the last SILENCE_S."""
    usual = learned.usual or 0.0
    expected = SILENCE_S * inside * usual
    if expected >= 30 and counts[RESPONSES] < 0.1 * expected:
        return True
    if inside:
        current = counts[RESPONSES] / SILENCE_S / inside
        usual = usual or current
        learned.usual = usual + (current - usual) * TICK_S / LONG_S
    return False


def _cut(learned: Learned, targets: Targets, site: _Site) -> None:
    """Lower the ceiling by the number of visitors whom the site does not serve in time. After a
    futile cut, lower the ceiling no further."""
    inside, counts = site.reading.inside, site.counts
    if learned.entry_inside is None:
        learned.entry_inside, learned.entry_strain = float(inside), site.slow_strain
    if learned.state not in {"overloaded", "slow without load"}:
        good = learned.past if learned.good is None else min(learned.good, learned.past)
        learned.good = max(targets.min_ceiling, good)
        learned.ceiling, learned.few = min(learned.ceiling, inside), 0
    learned.overload_s = site.reading.now_s
    learned.entry_strain = max(site.slow_strain, learned.entry_strain)
    few_inside = FUTILE_INSIDE_SHARE * min(learned.entry_inside, learned.served)
    learned.few = learned.few + 1 if inside <= few_inside else 0
    # The slow strain may still be that of more visitors, so the other strain must be high too.
    has_settled = learned.few * TICK_S > site.window_s
    strain = min(site.slow_strain, site.strain)
    is_futile = has_settled and strain >= FUTILE_STRAIN_SHARE * learned.entry_strain
    if learned.futile is None and is_futile:
        learned.futile = float(inside)
    if learned.futile is not None:
        learned.state = "slow without load"
        learned.ceiling = max(learned.futile, AT_ONCE_SHARE * learned.served, targets.min_ceiling)
        return
    learned.state = "overloaded"
    late_visitors = failed_visitors = 0.0
    if targets.p90_s is not None and (p90 := counts.percentile_s(0.9)) > targets.p90_s:
        # Little's law gives the number of visitors who wait too long for a response.
        per_s = counts[RESPONSES] / site.window_s / counts.reported_share
        late_visitors = per_s * counts.mean_s * (1 - targets.p90_s / p90)
    if targets.max_errors is not None:
        failed_visitors = inside * max(0.0, counts.error_share - targets.max_errors)
    ceiling = min(learned.ceiling, inside - max(late_visitors, failed_visitors))
    learned.ceiling = max(targets.min_ceiling, ceiling)
    if learned.good is not None and learned.good > learned.ceiling:
        learned.good += (learned.ceiling - learned.good) * TICK_S / FORGET_S


def _is_strained(learned: Learned, targets: Targets, site: _Site) -> bool:
    """Return True if the site is near its targets: a visitor may enter only when another leaves."""
    if site.strain > 1 or site.slow_strain > MAX_GROWTH_STRAIN:
        return True
    had_trouble = compute_strain(targets, site.reading.count(LONG_S)) > 1
    return had_trouble and not _may_grow_back(learned)


def _may_grow_back(learned: Learned) -> bool:
    return learned.good is not None and learned.ceiling < KNOWN_SHARE * learned.good


def _grow(learned: Learned, targets: Targets, site: _Site) -> None:
    """Raise the ceiling of a full room: fast up to KNOWN_SHARE of `learned.good`, then slowly."""
    learned.state, learned.entry_inside, learned.futile = "healthy", None, None
    inside, past = site.reading.inside, learned.past
    if learned.ticks >= int(site.reading.stay_s // TICK_S):
        learned.served = max(learned.served, min(inside, past))
    safe_ceiling = _compute_safe_ceiling(learned, targets)
    if inside < 0.9 * learned.ceiling:  # a room that is not full shows nothing about the site
        learned.ceiling = max(safe_ceiling, min(learned.ceiling, inside / 0.9))
        return
    first_growth = min(FIRST_GROWTH[1], max(FIRST_GROWTH[0], 2 * 60 / site.reading.stay_s))
    max_ceiling = float(targets.max_ceiling)
    if learned.good is None:
        growth = first_growth
    elif _may_grow_back(learned):
        growth, max_ceiling = REGROWTH, KNOWN_SHARE * learned.good
    else:
        quiet_s = site.reading.now_s - learned.overload_s - QUIET_S
        calm = min(1.0, max(0.0, quiet_s / QUIET_S))
        ease = max(0.0, 1 - site.slow_strain / MAX_GROWTH_STRAIN) ** 2
        growth = SLOW_GROWTH + (first_growth - SLOW_GROWTH) * calm * ease
        max_ceiling = past * (1 + MEAN_MARGIN + calm * QUIET_MARGIN)
    # With a longer window the law notices the effect later, so it raises the ceiling more slowly.
    grown_ceiling = learned.ceiling * (1 + min(1.0, 60 / site.window_s) * growth * TICK_S / 60)
    learned.ceiling = max(learned.ceiling, safe_ceiling, min(grown_ceiling, max_ceiling))
    if learned.good is not None:
        learned.good = max(learned.good, min(inside, past))
