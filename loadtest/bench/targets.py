"""The table of targets: wanted and measured values, and reasons for targets that were missed.

Rows of other measurements are read from their files in the folder of this report.
"""

import csv
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import StatisticsError
from typing import Any

from loadtest import cluster
from loadtest.bench.runs import Runs
from loadtest.jobs.measure import TARGETS as JOBS
from loadtest.limits.measure import TARGET as LIMITS
from loadtest.quiet import REPORTS
from loadtest.report import Target, read_targets

_FILE = tomllib.loads(Path(__file__).with_name("targets.toml").read_text())
#: Memory of a replica while 100,000 wait in its room.
MEMORY_MB = 120


def targets(runs: Runs, jobs: Sequence[Target] = ()) -> list[Target]:
    """Return all rows of the table. `jobs` are the targets of jobs, if these were measured too."""
    loads = _read_loads()
    return [
        *(_judge_ratio(runs, **ratio) for ratio in _FILE["ratios"]),
        *(
            replace(row, what=f"{row.what} ([loadtest.md](loadtest.md))")
            for row in (target.judge(loads) for target in cluster.TARGETS)
        ),
        *(read_targets(REPORTS, "limits") or [LIMITS]),
        *(jobs or read_targets(REPORTS, "jobs") or JOBS),
        _judge_overshoot(runs, loads),
        _judge_memory(runs),
    ]


def _judge_ratio(  # noqa: PLR0913 - what a table of targets.toml has
    runs: Runs, *, what: str, workload: str, value: str, bound: float, reason: str,
    of: str = "waitroom", to: str = "lua", is_most: bool = False,
) -> Target:  # fmt: skip
    wanted = f"{'≤' if is_most else '≥'} {bound:g}"
    try:
        ratio = runs.ratio((workload, of), (workload, to), value)
    except StatisticsError:
        return Target(what, wanted)
    is_reached = ratio <= bound if is_most else ratio >= bound
    return Target(what, wanted, is_reached, f"{ratio:.2f}", _FILE["reasons"][reason])


def _read_loads() -> list[dict[str, Any]]:
    """Return the steps of the last `make loadtest`."""
    file = REPORTS / "loadtest.csv"
    return list(csv.DictReader(file.read_text().splitlines())) if file.exists() else []


def _judge_overshoot(runs: Runs, loads: Sequence[dict[str, Any]]) -> Target:
    """Judge all runs with a cap, including those of `make loadtest`."""
    found: dict[str, list[int]] = {"waitroom": [], "lua": []}
    for (_, system), by_round in runs.runs.items():
        found.setdefault(system, []).extend(run.overshoot for run in by_round.values() if run.cap)
    for load in loads:
        peaks = (load["peak sessions"], load["peak at the origin"])
        found["waitroom"] += [max(0, int(peak) - int(load["cap"])) for peak in peaks if peak]
    target = Target("visitors above the cap, most of all runs", "0")
    if found["waitroom"]:
        most = max(found["waitroom"])
        target = replace(target, is_reached=most == 0, figure=f"{most:,}")
    beside = f" (Lua design: {max(found['lua']):,})" if found["lua"] else ""
    return replace(target, figure=target.figure + beside)


def _judge_memory(runs: Runs) -> Target:
    memory_mb = max((run.memory_mb for run in runs.of(("deep", "waitroom"))), default=None)
    target = Target("peak memory of a replica with 100,000 waiting", f"≤ {MEMORY_MB} MB")
    if memory_mb is None:
        return target
    return replace(target, is_reached=memory_mb <= MEMORY_MB, figure=f"{memory_mb:.0f} MB")
