"""The verdict on a run: whether the cap and the order held, and unexpected responses."""

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
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
class Finding:
    """What a run showed about a promise. `kept` is None if the run did not test it."""

    promise: str
    kept: bool | None
    text: str


def judge(  # noqa: PLR0913 - all that a run observes
    *,
    requests: int,
    errors: Mapping[str, int],
    stays: Sequence[Stay],
    sessions: Sequence[tuple[int, int]] | None,
    inside: int | None,
    cap: int | None,
) -> list[Finding]:
    """Judge a run by what was observed. None was not observed, so it tests nothing.

    Args:
        sessions: Sessions and cap of the room in each report of the ops listener.
        inside: The highest number of visitors inside at once, by the origin's log.
        cap: The cap. If None, the cap that the ops listener reports applies.
    """
    found = [_judge_sessions(sessions, cap)]
    if cap is None and sessions:
        cap = max(own_cap for _, own_cap in sessions)
    if inside is not None:
        text = f"at most {inside} inside at once at the origin, cap {cap or 'unknown'}"
        kept = None if cap is None else inside <= cap
        found.append(Finding("cap, seen by the origin", kept, text))
    found.append(_judge_order(stays))
    if not any(stay.waiting is not None for stay in stays):
        # A room that was never full shows neither its cap nor its order.
        found = [
            each if each.kept is False
            else replace(each, kept=None, text=f"nobody waited; {each.text}")
            for each in found
        ]  # fmt: skip
    return [_judge_errors(requests, errors), *found]


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
    # At the same moment, what begins counts before what ends.
    changes = [change for begin, end in intervals for change in ((begin, -1), (end, 1))]
    now = peak = 0
    for _, change in sorted(changes):
        now -= change
        peak = max(peak, now)
    return peak


def _judge_errors(requests: int, errors: Mapping[str, int]) -> Finding:
    if not requests:
        return Finding("no unexpected answer", kept=False, text="not one request was answered")
    count = sum(errors.values())
    worst = sorted(errors.items(), key=lambda item: -item[1])[:5]
    text = f"{count} in {requests} requests"
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
    past = _find_overtakings(stays)
    waited = sum(1 for stay in stays if stay.admitted is not None and not stay.direct)
    text = f"{len(past)} overtook among {waited} let in from the queue"
    if past:
        behind, joined, admitted, waiting = max(past)
        text += (
            f"; the worst by {behind:.0f} ms: joined at {joined:.0f}, let in at {admitted:.0f},"
            f" while somebody earlier waited at {waiting:.0f}"
        )
    return Finding("first come, first served", not past if past or waited else None, text)


def _find_overtakings(stays: Iterable[Stay]) -> list[tuple[float, float, float, float]]:
    """Find visitors who were admitted while another who had joined earlier still waited.

    Return how much earlier that was, when they joined and were admitted, and a time at which the
    other visitor was still waiting.
    """
    joined = sorted(stays, key=lambda stay: stay.joined)
    times = [stay.joined for stay in joined]
    waits = (-math.inf if stay.waiting is None else stay.waiting for stay in joined)
    # For each visitor, this is the latest wait among the earlier visitors.
    latest = list(accumulate(waits, max, initial=-math.inf))
    found = []
    for stay in joined:
        if stay.admitted is None:
            continue
        unsure = CLOCK_MS if stay.direct else 0
        waited = latest[bisect_left(times, stay.joined - MARGIN_MS - unsure)]
        if waited > stay.admitted + unsure:
            found.append((waited - stay.admitted, stay.joined, stay.admitted, waited))
    return found
