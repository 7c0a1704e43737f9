"""Computes a report on the stays that began in a period."""

import math
from array import array
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import itemgetter
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

from sidecar.history.model import UNUSED, Period, Promise, Stay
from sidecar.history.schemas import EstimateStep, RoomReport
from sidecar.kit.clock import iso
from sidecar.kit.progress import Advance, ignore_progress
from sidecar.visitors.model import ORDER_BAND

if TYPE_CHECKING:  # SQL is an extra
    from sidecar.history.store.stays import History

#: The end reasons of visitors who gave up waiting.
GAVE_UP = frozenset({"left", "silent", "swept"})


async def make_report(
    history: "History",
    room: str,
    period: Period,
    *,
    limit: int | None = None,
    advance: Advance = ignore_progress,
) -> RoomReport | None:
    """Report on the stays that began in a period. Return None if there are more than `limit` stays.
    Read at most `limit` wait estimates. Call `advance` after each stay."""
    tally = Tally()
    read_limit = None if limit is None else limit + 1
    async for stay in history.read_stays(room, period, limit=read_limit):
        tally.add(stay)
        advance()
    if limit is not None and tally.counts["stays"] > limit:
        return None
    record = compute_record(await history.find_promises(room, period, limit=limit))
    return RoomReport(**period.describe(room), **tally.compute_figures(), **record)


def compute_record(promises: Sequence[Promise]) -> dict[str, Any]:
    """Return those members of a report that are about wait estimates."""
    return {
        "estimates": len(promises),
        "estimates_held": round(fmean(one.is_held for one in promises), 4) if promises else None,
        "estimate_error_p50": round(median(one.error for one in promises), 4) if promises else None,
    }


def compute_estimate_steps(promises: Iterable[Promise], step_ms: int) -> list[EstimateStep]:
    """Summarize wait estimates by the time at which they were made, oldest first."""
    steps = []
    for number, group in groupby(promises, key=lambda one: one.at_ms // step_ms):
        same_step = list(group)
        steps.append(
            EstimateStep(
                at=iso(number * step_ms),
                estimates=len(same_step),
                held=round(fmean(one.is_held for one in same_step), 4),
                promised_low=median(one.wait.low for one in same_step),
                promised=median(one.wait.seconds for one in same_step),
                promised_high=median(one.wait.high for one in same_step),
                waited=median(one.waited_s for one in same_step),
            )
        )
    return steps


class Tally:
    """Counts stays for a report. It takes about 250 bytes of memory for each stay."""

    def __init__(self) -> None:
        #: Maps a member of the report to its count.
        self.counts: Counter[str] = Counter()
        self.queued = 0
        #: In ms: waits until admission, waits until giving up, and lengths of sessions.
        self.waits, self.patience, self.sessions = array("q"), array("q"), array("q")
        #: Maps a sub-queue to its calls, which are arguments of `count_inversions`.
        self.calls: defaultdict[int, list[tuple[int, int, int]]] = defaultdict(list)

    def add(self, stay: Stay) -> None:
        """Count a stay. The order of stays does not matter."""
        counts = self.counts
        counts["stays"] += 1
        counts["moved"] += stay.moved_ms is not None
        began_ms = stay.joined_ms or stay.queued_ms or 0
        has_queued = stay.queued_ms is not None
        self.queued += has_queued
        if stay.admitted_ms is not None:
            counts["admitted_after_wait" if has_queued else "admitted_at_once"] += 1
            if has_queued:
                self.waits.append(stay.admitted_ms - began_ms)
            if stay.ended_ms is None:
                counts["inside"] += 1
            elif stay.end_reason != UNUSED:
                self.sessions.append(stay.ended_ms - stay.admitted_ms)
            counts["expired"] += stay.end_reason in {"session", UNUSED}
            counts["left"] += stay.end_reason == "left"
        elif stay.end_reason in GAVE_UP:
            counts["abandoned"] += 1
            self.patience.append((stay.ended_ms or 0) - began_ms)
        elif stay.end_reason == "no_show":
            counts["no_shows"] += 1
        elif stay.ended_ms is None:
            counts["waiting"] += 1
        if stay.end_reason in {"finished", "released", "reset", "stuck"}:
            counts[stay.end_reason] += 1
        order, has_kept_place = stay.queue_order, stay.moved_ms is None and stay.returns == 0
        if has_queued and has_kept_place and stay.called_ms is not None and order is not None:
            call = stay.called_ms, order, stay.queued_ms or 0
            self.calls[order // ORDER_BAND].append(call)

    def compute_figures(self) -> dict[str, Any]:
        """Return the members of a report. Counts of 0 are left out."""
        waits_s = compute_percentiles_s(self.waits, (0.5, 0.9, 0.99, 1.0))
        sessions_s = compute_percentiles_s(self.sessions, (0.5, 0.9))
        shares = {"abandonment": "abandoned", "no_show_share": "no_shows"}
        return {
            **self.counts,
            **{
                share: round(self.counts[name] / self.queued, 4) if self.queued else None
                for share, name in shares.items()
            },
            **dict(zip(("wait_p50", "wait_p90", "wait_p99", "wait_max"), waits_s, strict=True)),
            "gave_up_after_p50": compute_percentiles_s(self.patience, (0.5,))[0],
            **dict(zip(("inside_p50", "inside_p90"), sessions_s, strict=True)),
            "inversions": sum(map(count_inversions, self.calls.values())),
        }


def compute_percentiles_s(
    values_ms: Sequence[int], fractions: Sequence[float]
) -> list[float | None]:
    """Return percentiles (by nearest rank), in seconds. Each is None if `values_ms` is empty."""
    if not values_ms:
        return [None] * len(fractions)
    sorted_ms = sorted(values_ms)
    ranks = (max(0, math.ceil(fraction * len(sorted_ms)) - 1) for fraction in fractions)
    return [sorted_ms[rank] / 1000 for rank in ranks]


def count_inversions(calls: list[tuple[int, int, int]]) -> int:
    """Count the visitors who were in the queue when a visitor of a higher order was called before
    them. A call is (called_ms, order, queued_ms). Calls in the same millisecond are in order."""
    count = 0
    #: Earlier calls, as (-order, the latest called_ms of the calls with at least this order).
    latest: list[tuple[int, int]] = []
    calls.sort()
    for called_ms, group in groupby(calls, key=itemgetter(0)):
        same_time = list(group)
        for _, order, queued_ms in same_time:
            index = bisect_left(latest, (-order,))  # the calls before this index have higher orders
            count += index > 0 and latest[index - 1][1] > queued_ms
        for _, order, _ in same_time:
            while latest and latest[-1][0] >= -order:
                latest.pop()
            latest.append((-order, called_ms))
    return count
