"""The table of targets: wanted and measured values, and reasons for targets that were missed.

Rows of other measurements are read from their files in the folder of this report.
"""

import csv
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from loadtest import cluster
from loadtest.bench.figures import Figures, Value, per_second
from loadtest.jobs.report import TARGETS as JOBS
from loadtest.limits.report import TARGET as LIMITS
from loadtest.report import NOT_MEASURED, Target, read_targets


@dataclass(frozen=True, slots=True)
class Ratio:
    """A target for the ratio of two systems in the same workload and round."""

    what: str
    workload: str
    value: Value
    bound: float
    why_not: str
    of: str = "waitroom"
    to: str = "lua"
    is_most: bool = False

    def target(self, figures: Figures) -> Target:
        wanted = f"{'≤' if self.is_most else '≥'} {self.bound:g}"
        found = figures.ratio(self.workload, self.of, self.to, self.value)
        if found is None:
            return Target(self.what, wanted)
        reached = found <= self.bound if self.is_most else found >= self.bound
        return Target(self.what, wanted, reached, f"{found:.2f}", self.why_not)


#: Memory of a replica while 100,000 wait in its room.
MEMORY_MB = 120
_INSIDE = (
    "a stamp costs nginx a subrequest and a digest beside handing the request on, a seventh more. "
    "The rest is the page's own question, one of 21 requests: it wakes a replica, whose caches "
    "others have used meanwhile, for a verdict that takes half as long in a loop of its own. A "
    "stamp that nginx could prolong by itself would reach it; stock nginx can check a digest, and "
    "cannot write one. wrk, which keeps each visitor's cookies, takes a core: plain nginx itself "
    "is hardly quicker than the Lua design here."
)
_KEPT = (
    "in nginx, a kept verdict is a file that is looked up and read, in a second request inside "
    "nginx; in the replicas, each of the 2,000 passes is asked about again when its verdict is "
    "seconds old. The Lua design believes an unsigned cookie and asks nobody. Stamps are what "
    "reaches it."
)
_FLOOD = (
    "all of it in nginx: the kept verdict is a file that is looked up and read, and the page is "
    "sent with every answer. The Lua design sends a redirect, and its page is not counted."
)
_POLLS = (
    "in the replicas: two thirds of their samples are in Python's interpreter, a tenth in the "
    "kernel; a poll takes 70 µs in a loop of its own, and twice that where replicas, nginx, Redis "
    "and wrk share two cores and their caches. A replica in a compiled language would reach it."
)
_WAITING = (
    "in the replicas again, though a visitor polls 1.2 times a minute where the Lua design's "
    "page sends six: a poll costs 2.7 times as much CPU, and two thirds of that is Python. In a "
    "loop of its own a poll takes half as long. Fewer polls would reach it at once, and make "
    "every position older. A replica in a compiled language would reach it honestly."
)
_JOINS = (
    "in the replicas, as with polls: an identity, a signature and a cookie for each newcomer take "
    "93 µs of Python in a loop of its own. A replica in a compiled language would reach it."
)

RATIOS = (
    Ratio(
        "visitors inside, CPU of nginx and replicas: plain nginx's over Waitroom's",
        "admitted", lambda run: run.serving_us, 0.8, _INSIDE, of="plain", to="waitroom",
    ),
    Ratio("visitors inside, requests/s, over the Lua design's",
          "admitted", per_second, 1.2, _INSIDE),
    Ratio("visitors inside with kept verdicts only, requests/s, over the Lua design's",
          "kept", per_second, 0.75, _KEPT),
    Ratio("flood without cookies, requests/s, over the Lua design's",
          "flood", per_second, 2.3, _FLOOD),
    Ratio(
        "CPU per waiting visitor and minute, 100,000 waiting, over the Lua design's",
        "deep", lambda run: run.cpu_per_waiting_minute, 0.45, _WAITING, is_most=True,
    ),
    Ratio("newcomers let in per CPU second, over the Lua design's",
          "newcomers", lambda run: run.joins_per_cpu_second, 0.5, _JOINS),
    Ratio("the mix, requests/s, over the Lua design's", "mix", per_second, 0.8, _POLLS),
    Ratio(
        "a poll, CPU of the replicas, over that of handlers that only answer",
        "polls", lambda run: run.cpu_per_1000("replicas"), 2.4, _POLLS, to="bare", is_most=True,
    ),
)  # fmt: skip


def targets(
    figures: Figures, folder: Path | None = None, jobs: Sequence[Target] = ()
) -> list[Target]:
    """Return all rows of the table."""
    rows = [ratio.target(figures) for ratio in RATIOS]
    loads = _loads(folder)
    rows += [_load(loads, target) for target in cluster.TARGETS]
    rows += read_targets(folder, "limits") or [LIMITS]
    rows += jobs or read_targets(folder, "jobs") or JOBS
    rows.append(_overshoot(figures, loads))
    memory = figures.memory_mb("deep", "waitroom")
    row = Target("peak memory of a replica with 100,000 waiting", f"≤ {MEMORY_MB} MB")
    if memory is not None:
        row = replace(row, is_reached=memory <= MEMORY_MB, figure=f"{memory:.0f} MB")
    return [*rows, row]


def _loads(folder: Path | None) -> list[dict[str, str]]:
    if folder is None or not (folder / "loadtest.csv").exists():
        return []
    with (folder / "loadtest.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _load(rows: Sequence[dict[str, str]], load: cluster.SpeedTarget) -> Target:
    what = f"{load.replicas} replicas, {load.users:,} users ([loadtest.md](loadtest.md))"
    wanted = f"> {load.rate:,.0f}/s, < {load.mean_ms / 1000:g} s"
    kind = (str(load.replicas), str(load.users))
    steps = [row for row in rows if (row["replicas"], row["users"]) == kind]
    if not steps:
        return Target(what, wanted)
    found = median(float(step["requests/s"]) for step in steps)
    found_s = median(float(step["mean ms"]) for step in steps) / 1000
    reached = found > load.rate and 1000 * found_s < load.mean_ms
    return Target(what, wanted, reached, f"{found:,.0f}/s, {found_s:.3f} s")


def _overshoot(figures: Figures, loads: Sequence[dict[str, str]]) -> Target:
    """Return the row about all runs with a cap, including those of `make loadtest`."""
    theirs = figures.overshoot("lua")
    found = [] if (ours := figures.overshoot("waitroom")) is None else [ours]
    for load in loads:
        peaks = (load["peak sessions"], load["peak at the origin"])
        found += [max(0, int(peak) - int(load["cap"])) for peak in peaks if peak]
    what = "visitors above the cap, most of all runs"
    beside = "" if theirs is None else f" (Lua design: {theirs:,})"
    if not found:
        return Target(what, "0", None, NOT_MEASURED + beside)
    return Target(what, "0", max(found) == 0, f"{max(found):,}{beside}")
