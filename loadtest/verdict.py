"""The verdict on a run: the cap, the order, and no unexpected responses.

Pure functions, so that tests need no run.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

#: Visitors who joined within this time have no order, ms.
MARGIN_MS = 50
#: How exactly a worker knows Redis' clock where it has to guess, ms.
CLOCK_MS = 250


@dataclass(slots=True)
class Stay:
    """One honest visitor's wait; times are by Redis' clock, ms.

    `waiting` is the last moment at which the visitor waited, `admitted` when they were admitted.
    `direct`: the visitor never waited, so both times are the worker's guess.
    """

    joined: float
    waiting: float | None = None
    admitted: float | None = None
    direct: bool = False
    #: The visitor polled so late that others may have been let in; `waiting` is from before.
    late: bool = False


@dataclass(frozen=True, slots=True)
class Overtaking:
    """A visitor who was admitted while another who had joined earlier still waited."""

    joined: float
    admitted: float
    #: When the other visitor was still waiting.
    waiting: float


@dataclass(frozen=True, slots=True)
class Finding:
    promise: str
    kept: bool
    text: str


@dataclass(slots=True)
class Evidence:
    """What a run observed. Values that are None were not observed, and are not judged."""

    requests: int
    errors: Mapping[str, int] = field(default_factory=dict)
    stays: Sequence[Stay] = ()
    #: The room's sessions and cap in each report of the ops listener.
    sessions: Sequence[tuple[int, int]] | None = None
    #: The most visitors who were inside at once, by the origin's log.
    inside: int | None = None
    #: The cap; None: the one that the ops listener reports.
    cap: int | None = None


def judge(evidence: Evidence) -> list[Finding]:
    found = [_judge_errors(evidence)]
    if evidence.sessions is not None:
        found.append(_judge_sessions(evidence.sessions, evidence.cap))
    cap = evidence.cap
    if cap is None and evidence.sessions:
        cap = max(cap for _, cap in evidence.sessions)
    if evidence.inside is not None and cap is not None:
        text = f"at most {evidence.inside} inside at once at the origin, cap {cap}"
        found.append(Finding("cap, seen by the origin", evidence.inside <= cap, text))
    found.append(_judge_order(evidence.stays))
    return found


def overtakings(stays: Iterable[Stay], margin: float = MARGIN_MS) -> list[Overtaking]:
    """Return every admission of a visitor while one who had joined earlier went on waiting."""
    joined = sorted(stays, key=lambda stay: stay.joined)
    times = [stay.joined for stay in joined]
    # The latest wait among the visitors before each.
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
    """Return the most visitors inside at once, by an origin's log of `seconds visitor` lines.

    A visitor is inside from the first request that the origin answered to the last.
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
            continue  # a line that is being written
        first[visitor] = min(at, first.get(visitor, at))
        last[visitor] = max(at, last.get(visitor, at))
    return peak_overlap([(first[visitor], last[visitor]) for visitor in first])


def peak_overlap(intervals: Iterable[tuple[float, float]]) -> int:
    """Return the most closed intervals that share a moment."""
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


def _judge_sessions(sessions: Sequence[tuple[int, int]], cap: int | None) -> Finding:
    promise = "cap, seen by the ops listener"
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
    return Finding("first come, first served", not past, text)
