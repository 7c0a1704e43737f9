"""The table of targets: what is wanted, what was reached, and where the time goes otherwise.

Rows of other measurements are read from what those wrote beside this report.
"""

import csv
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from loadtest import figures as figures_of_load
from loadtest.bench.figures import Figures, Value, per_second


@dataclass(frozen=True, slots=True)
class Target:
    what: str
    wanted: str
    #: None: not measured.
    reached: bool | None
    figure: str
    #: Where the time goes, and what would reach it.
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class Ratio:
    """One system's figure over another's, in the same workload and round."""

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
            return Target(self.what, wanted, None, NOT_MEASURED)
        reached = found <= self.bound if self.is_most else found >= self.bound
        return Target(self.what, wanted, reached, f"{found:.2f}", self.why_not)


NOT_MEASURED = "not measured"
#: Of a replica while 100,000 wait in its room, MB.
MEMORY_MB = 120
#: A runner that has nothing to do, with 20 targets, ms of CPU a minute.
IDLE_MS = 100

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
_LIMITS = (
    "a decision takes 15 µs of Redis and 10 of a replica, in batches; the library's take 25 and "
    "102. Single rounds gave 4.5 to 6. A replica that decides from a share of the limit would be "
    "quicker, and the limit no longer exact."
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


def targets(figures: Figures, folder: Path | None = None) -> list[Target]:
    """All rows; those of other reports as they lie in `folder`."""
    rows = [ratio.target(figures) for ratio in RATIOS]
    loads = _loads(folder)
    rows += [_load(loads, target) for target in figures_of_load.TARGETS]
    rows.append(_limits(_document(folder, "limits.json")))
    rows += _jobs(_document(folder, "jobs.json"))
    rows.append(_overshoot(figures, loads))
    memory = figures.memory_mb("deep", "waitroom")
    what, wanted = "peak memory of a replica with 100,000 waiting", f"≤ {MEMORY_MB} MB"
    if memory is None:
        rows.append(Target(what, wanted, None, NOT_MEASURED))
    else:
        rows.append(Target(what, wanted, memory <= MEMORY_MB, f"{memory:.0f} MB"))
    return rows


def _document(folder: Path | None, name: str) -> dict[str, Any]:
    if folder is None or not (folder / name).exists():
        return {}
    document: dict[str, Any] = json.loads((folder / name).read_text())
    return document


def _loads(folder: Path | None) -> list[dict[str, str]]:
    if folder is None or not (folder / "loadtest.csv").exists():
        return []
    with (folder / "loadtest.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _load(rows: Sequence[dict[str, str]], load: figures_of_load.Target) -> Target:
    what = f"{load.replicas} replicas, {load.users:,} users ([loadtest.md](loadtest.md))"
    wanted = f"> {load.rate:,.0f}/s, < {load.mean_ms / 1000:g} s"
    kind = (str(load.replicas), str(load.users))
    steps = [row for row in rows if (row["replicas"], row["users"]) == kind]
    if not steps:
        return Target(what, wanted, None, NOT_MEASURED)
    found = median(float(step["requests/s"]) for step in steps)
    found_s = median(float(step["mean ms"]) for step in steps) / 1000
    reached = found > load.rate and 1000 * found_s < load.mean_ms
    return Target(what, wanted, reached, f"{found:,.0f}/s, {found_s:.3f} s")


def _limits(document: dict[str, Any]) -> Target:
    """The lesser of two ratios: exact rates are compared with exact ones, simple with simple."""
    what = "limits: decisions/s, over the limits library's ([limits.md](limits.md))"
    rates = {
        (case["system"], case["algorithm"], case["way"]): [
            run["decisions"] / run["seconds"] for run in case["rounds"]
        ]
        for case in document.get("cases", ())
        if case["calls"] == "granted"
    }
    found = []
    for ours, theirs in (("sliding_window", "moving window"), ("fixed_window", "fixed window")):
        mine = rates.get(("Waitroom", ours, "256 tasks"))
        others = [
            rates[key] for key in rates if key[:2] == ("limits", theirs) and "async" in key[2]
        ]
        if mine and others:
            pairs = zip(mine, others[0], strict=True)
            found.append(median(one / other for one, other in pairs))
    if not found:
        return Target(what, "≥ 5", None, NOT_MEASURED)
    return Target(what, "≥ 5", min(found) >= 5, f"{min(found):.2f}", _LIMITS)


def _jobs(document: dict[str, Any]) -> list[Target]:
    executed = "jobs executed/s, over arq's ([jobs.md](jobs.md))"
    idle = "an idle runner with 20 targets, CPU a minute ([jobs.md](jobs.md))"
    if not document:
        return [
            Target(executed, "≥ 1", None, NOT_MEASURED),
            Target(idle, f"≤ {IDLE_MS} ms", None, NOT_MEASURED),
        ]
    rates = {
        rate["system"]: [run["per_second"] for run in rate["rounds"]]
        for rate in document["rates"]
        if rate["what"] == "execute"
    }
    pairs = zip(rates["Waitroom, SQLite"], rates["arq"], strict=True)
    ratio = median(one / other for one, other in pairs)
    cpu_ms = next(each["cpu_ms"] for each in document["idle"] if "20 targets" in each["name"])
    return [
        Target(executed, "≥ 1", ratio >= 1, f"{ratio:.2f}"),
        Target(idle, f"≤ {IDLE_MS} ms", cpu_ms <= IDLE_MS, f"{cpu_ms:,.0f} ms"),
    ]


def _overshoot(figures: Figures, loads: Sequence[dict[str, str]]) -> Target:
    """Of every run with a cap, here and under load."""
    theirs = figures.overshoot("lua")
    found = [] if (ours := figures.overshoot("waitroom")) is None else [ours]
    for load in loads:
        peaks = (load["peak sessions"], load["peak at the origin"])
        found += [max(0, int(peak) - int(load["cap"])) for peak in peaks if peak]
    what = "visitors above the cap, most of all runs"
    said = "" if theirs is None else f" (Lua design: {theirs:,})"
    if not found:
        return Target(what, "0", None, NOT_MEASURED + said)
    return Target(what, "0", max(found) == 0, f"{max(found):,}{said}")
