"""The verdict on a run: whether the cap and the order held, and unexpected responses."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

#: The order of visitors who joined within this time does not matter.
MARGIN_MS = 50
#: Error of a worker's estimate of Redis' clock.
CLOCK_MS = 250
#: The line on standard output when the warm-up of a run is over.
FIGURES_BEGIN = "Warm: the figures begin."
WORDS = {True: "kept", None: "not tested", False: "BROKEN"}


@dataclass(slots=True)
class Stay:
    """The wait of an honest visitor. Times are in ms by Redis' clock.

    `waiting` is the last moment at which the visitor waited, `admitted` when they were admitted.
    If `direct`, the visitor never waited, and both times are the worker's estimates.
    """

    joined: float
    waiting: float | None = None
    admitted: float | None = None
    direct: bool = False
    #: Whether the visitor polled so late that others may have been admitted first.
    late: bool = False


@dataclass(frozen=True, slots=True)
class Overtaking:
    """A visitor who was admitted while another who had joined earlier still waited."""

    joined: float
    admitted: float
    #: A time at which the other visitor was still waiting.
    waiting: float


@dataclass(frozen=True, slots=True)
class Finding:
    """What a run showed about a promise. `kept` is None if the run did not test it."""

    promise: str
    kept: bool | None
    text: str


@dataclass(slots=True)
class Evidence:
    """Observations of a run. Values of None were not observed, so they test nothing."""

    requests: int
    errors: Mapping[str, int] = field(default_factory=dict)
    stays: Sequence[Stay] = ()
    #: Sessions and cap of the room in each report of the ops listener.
    sessions: Sequence[tuple[int, int]] | None = None
    #: The highest number of visitors inside at once, by the origin's log.
    inside: int | None = None
    #: The cap. If None, the cap that the ops listener reports applies.
    cap: int | None = None


def judge(evidence: Evidence) -> list[Finding]:
    found = [_judge_sessions(evidence.sessions, evidence.cap)]
    cap = evidence.cap
    if cap is None and evidence.sessions:
        cap = max(cap for _, cap in evidence.sessions)
    if evidence.inside is not None:
        text = f"at most {evidence.inside} inside at once at the origin, cap {cap or 'unknown'}"
        kept = None if cap is None else evidence.inside <= cap
        found.append(Finding("cap, seen by the origin", kept, text))
    found.append(_judge_order(evidence.stays))
    if not any(stay.waiting is not None for stay in evidence.stays):
        # A room that was never full shows neither its cap nor its order.
        found = [
            each if each.kept is False
            else replace(each, kept=None, text=f"nobody waited; {each.text}")
            for each in found
        ]  # fmt: skip
    return [_judge_errors(evidence), *found]


def overtakings(stays: Iterable[Stay], margin: float = MARGIN_MS) -> list[Overtaking]:
    """Return all admissions of visitors while a visitor who had joined earlier still waited."""
    joined = sorted(stays, key=lambda stay: stay.joined)
    times = [stay.joined for stay in joined]
    # For each visitor, this is the latest wait among the earlier visitors.
    latest = list(
        accumulate(
            (float("-inf") if stay.waiting is None else stay.waiting for stay in joined),
            max,
            initial=float("-inf"),
        )
    )
    found = []
    for stay in joined:
        if stay.admitted is None:
            continue
        unsure = CLOCK_MS if stay.direct else 0
        waited = latest[bisect_left(times, stay.joined - margin - unsure)]
        if waited > stay.admitted + unsure:
            found.append(Overtaking(stay.joined, stay.admitted, waited))
    return found


def peak_inside(lines: Iterable[str]) -> int:
    """Return the highest number of visitors inside at once, by an origin's log.

    Lines of the log are `seconds visitor`. A visitor is inside from the first to the last request
    that the origin answered.
    """
    first: dict[str, float] = {}
    last: dict[str, float] = {}
    for line in lines:
        moment, _, visitor = line.strip().partition(" ")
        if not visitor or visitor == "-":
            continue
        try:
            at = float(moment)
        except ValueError:
            continue  # The line is incomplete.
        first[visitor] = min(at, first.get(visitor, at))
        last[visitor] = max(at, last.get(visitor, at))
    return peak_overlap([(first[visitor], last[visitor]) for visitor in first])


def peak_overlap(intervals: Iterable[tuple[float, float]]) -> int:
    """Return the highest number of closed intervals that overlap at a time."""
    changes: defaultdict[float, list[int]] = defaultdict(lambda: [0, 0])
    for begin, end in intervals:
        changes[begin][0] += 1
        changes[end][1] += 1
    now = peak = 0
    for moment in sorted(changes):
        begun, ended = changes[moment]
        now += begun
        peak = max(peak, now)
        now -= ended
    return peak


def _judge_errors(evidence: Evidence) -> Finding:
    if not evidence.requests:
        return Finding("no unexpected answer", kept=False, text="not one request was answered")
    count = sum(evidence.errors.values())
    worst = sorted(evidence.errors.items(), key=lambda item: -item[1])[:5]
    text = f"{count} in {evidence.requests} requests"
    text += "".join(f"; {number} x {what}" for what, number in worst)
    return Finding("no unexpected answer", not count, text)


def _judge_sessions(sessions: Sequence[tuple[int, int]] | None, cap: int | None) -> Finding:
    promise = "cap, seen by the ops listener"
    if sessions is None:
        return Finding(promise, kept=None, text="no --waitroom-ops")
    if not sessions:
        return Finding(promise, kept=False, text="the ops listener never answered")
    over = [(active, cap or own_cap) for active, own_cap in sessions if active > (cap or own_cap)]
    peak = max(active for active, _ in sessions)
    text = f"at most {peak} sessions, cap {cap or sessions[-1][1]}, looked {len(sessions)} times"
    return Finding(promise, not over, text)


def _judge_order(stays: Sequence[Stay]) -> Finding:
    past = overtakings(stays)
    waited = sum(1 for stay in stays if stay.admitted is not None and not stay.direct)
    text = f"{len(past)} overtook among {waited} let in from the queue"
    if past:
        one = max(past, key=lambda each: each.waiting - each.admitted)
        text += (
            f"; the worst by {one.waiting - one.admitted:.0f} ms: joined at {one.joined:.0f},"
            f" let in at {one.admitted:.0f}, while somebody earlier waited at {one.waiting:.0f}"
        )
    return Finding("first come, first served", not past if past or waited else None, text)
