"""Runs the fault scenarios, and writes the report: python -m tests.faults [--quick] [--only NAME …]

The exit status is 1 if a scenario fails. The command stops all processes that it started.
"""

import argparse
import asyncio
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import uvloop

from loadtest import machine
from tests.faults import (
    report,
    scenarios_clusters,
    scenarios_garbled,
    scenarios_hidden,
    scenarios_model,
    scenarios_outages,
    scenarios_replicas,
    scenarios_store,
)
from tests.faults.verdict import Row
from tests.faults.world import FULL, QUICK, Scale

ROOT = Path(__file__).resolve().parents[2]
#: Time limit of a scenario.
LIMIT_S = 300.0
#: Time limits of the outages, which take longer. `outages` runs all of them, in two batches.
LIMITS_S = dict.fromkeys(scenarios_outages.EACH, scenarios_outages.LIMIT_S) | {
    "outages": 2 * scenarios_outages.LIMIT_S
}

Scenario = Callable[[Scale], Awaitable[Row | list[Row]]]

ALL: dict[str, Scenario] = {
    "kill": scenarios_replicas.kill_one,
    "hang": scenarios_replicas.hang_one,
    "rolling": scenarios_replicas.rolling_restart,
    "restart": scenarios_store.restarted,
    "older": scenarios_store.older,
    "flush": scenarios_store.emptied,
    "evict": scenarios_store.evicted,
    "stop": scenarios_store.stopped,
    "full": scenarios_store.refuses_writes,
    "sentinel": scenarios_clusters.sentinel_failover,
    "cluster": scenarios_clusters.cluster_failover,
    "slot": scenarios_clusters.cluster_slot_moved,
    "down": scenarios_replicas.all_down,
    "reload": scenarios_replicas.reload_nginx,
    "clock": scenarios_replicas.wrong_clock,
    "garbled": scenarios_garbled.garbled,
    "model": scenarios_model.churn,
    "hidden": scenarios_hidden.hidden_tabs,
    "outages": scenarios_outages.all_outages,
}
#: All scenarios by name, including single outages.
BY_NAME: dict[str, Scenario] = {**ALL, **scenarios_outages.EACH}
#: Scenarios of `--quick`. tests/faults/test_quick.py runs most of them.
SUBSET = ["kill", "flush", "evict", "stop", "down", "reload", "garbled"]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a short subset, into .run/reports")
    parser.add_argument("--only", nargs="+", choices=list(BY_NAME), help="these, into .run/reports")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    names = options.only or (SUBSET if options.quick else list(ALL))
    scale = QUICK if options.quick else FULL
    began, rows = time.monotonic(), []
    for name in names:
        for row in run(name, scale):
            rows.append(row)
            print(report.format_line(row), flush=True)
    seconds = time.monotonic() - began
    partial = options.quick or options.only
    path = ROOT / (".run/reports/reliability.md" if partial else "docs/reliability.md")
    details = ROOT / (".run/reports/faults.md" if partial else "loadtest/reports/faults.md")
    report.write(rows, machine.describe(), path, details, seconds=seconds, quick=scale.quick)
    print(f"{path.relative_to(ROOT)}, after {seconds:.0f} s")
    return 0 if all(row.held for row in rows) else 1


def run(name: str, scale: Scale) -> list[Row]:
    """Run a scenario. If it raises an exception, return a row that says so."""
    began = time.monotonic()
    try:
        found = uvloop.run(_run_with_limit(name, scale))
    except Exception as error:  # noqa: BLE001
        found = Row(name, broken=[f"{type(error).__name__}: {error}"])
    if isinstance(found, list):
        return found
    found.seconds = time.monotonic() - began
    return [found]


async def _run_with_limit(name: str, scale: Scale) -> Row | list[Row]:
    async with asyncio.timeout(LIMITS_S.get(name, LIMIT_S)):
        return await BY_NAME[name](scale)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
