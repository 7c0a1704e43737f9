"""`make bench-history`: what the history costs at ten million stays (docs/history.md).

Read in the order stays.py, load.py, lookups.py, recording.py, measure.py.
"""

import argparse
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from loadtest.databases import SETTINGS, versions
from loadtest.history.lookups import Plan, Times, times
from loadtest.history.measure import QUICK, WHOLE, Amount, Result, measure
from loadtest.history.stays import DAYS
from loadtest.report import Report, table

__all__ = ["QUICK", "WHOLE", "add_options", "measure_reports", "report"]

_NAMES = {"sqlite": "SQLite", "mariadb": "MariaDB", "postgresql": "PostgreSQL"}
_SHARED = (
    "The databases, Redis and what measures shared this machine, the databases over unix sockets "
    "and as durable as they are by default: each commit is on the disk."
)
_LOOKUPS = (
    "Through `sidecar/history/store/stays.py`, ms, connection and transaction included; the "
    "rooms in "
    "turn, visitor after visitor. Half of the visitors are of any age, half of the latest. "
    "*Place over time* is the stay, and all who stood before it; *all three* is `waitroom history "
    "visitor`."
)
_COLD = (
    "Nothing is in memory. The first {cold} look-ups of each kind and room after each of "
    "{restarts} restarts; last, the very first ones."
)
_RECORDER = (
    "{amount.events:,} events of {stays:,} stays in one room, as a replica records them; median of "
    "{amount.rounds}, one database after the other. MariaDB is the one that holds the stays above."
)
_KEPT = (
    "*Kept* is how long a batch of 250 events keeps the event loop from visitors, ms. While the "
    "database is unavailable an event takes {bytes:.0f} bytes of the store."
)
_COLUMNS = ["look-up", "room", "number", "median", "p90", "p99", "most"]


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--stays", type=int, help="another number than ten million")
    parser.add_argument("--home", type=Path, help="where the databases lie meanwhile")


def measure_reports(amount: Amount) -> Iterator[Report]:
    home = amount.home or Path(tempfile.gettempdir())
    need_gb, free_gb = 3 + 0.7 * amount.stays / 1e6, shutil.disk_usage(home).free / 1e9
    if free_gb < need_gb:
        sys.exit(f"{home} has {free_gb:.0f} GB, {need_gb:.0f} are needed: --home")
    yield report(measure(amount))


def report(result: Result) -> Report:
    amount = result.amount
    parts = [
        f"{_SHARED} {_loads(result)}",
        *_problems(result),
        _filled(result),
        "## Look-ups",
        _LOOKUPS,
        _warm(result),
        *_live(result),
        "### While a recorder writes into the hot room",
        f"{result.written_per_s:,.0f} events/s meanwhile. Last: the median over that without.",
        _written(result),
        "### After a restart",
        _COLD.format(restarts=amount.restarts, cold=amount.cold),
        _cold(result),
        "## One partition",
        "What `EXPLAIN PARTITIONS` says of the statements as they were sent.",
        _explained(result),
        _statements(result),
        "## The recorder",
        _RECORDER.format(amount=amount, stays=amount.events // 4),
        _recorded(result),
        _KEPT.format(bytes=result.bytes_per_event),
        "## Reports",
        "`waitroom report` over the hot room, a process of its own.",
        _reports(result),
    ]
    title, problems = "The history, measured", result.problems()
    return Report(
        "history", title, parts, result, problems=problems, versions=[", ".join(versions())]
    )


def _loads(result: Result) -> str:
    loads = ", ".join(f"{part} {load:.1f}" for part, load in result.loads.items())
    return f"The machine's load when each part began: {loads}."


def _problems(result: Result) -> list[str]:
    found = result.problems()
    return ["\n".join(f"* **{problem}**" for problem in found)] if found else []


def _filled(result: Result) -> str:
    loaded = result.loaded
    rooms = ", ".join(f"the {s.title} one {s.stays:,}" for s in result.samples)
    return (
        f"MariaDB holds {loaded.stays:,} stays of {DAYS} days in {loaded.rooms:,} rooms ({rooms}), "
        f"{loaded.waiting:,} of them waiting and {loaded.inside:,} inside, and "
        f"{loaded.events:,} events, those of each room's latest stays: "
        f"{result.disk_mb / 1000:.1f} GB with its log, filled in {loaded.seconds:.0f} s "
        f"({loaded.stays / loaded.seconds:,.0f} stays/s). `{' '.join(SETTINGS[:1])}`, else as it "
        "comes."
    )


def _row(kind: str, room: str, found: Times) -> list[str]:
    values = found.median, found.p90, found.p99, found.most
    return [kind, room, f"{found.number:,}", *(f"{value:.1f}" for value in values)]


def _warm(result: Result) -> str:
    rows = [
        _row(kind, room, times(values))
        for kind, rooms in result.warm.items()
        for room, values in rooms.items()
    ]
    return table(_COLUMNS, rows, words=2)


def _live(result: Result) -> list[str]:
    if result.live is None:
        return []
    title = f"The live answer, from Redis, with {result.amount.waiting:,} waiting:"
    return [title, table(_COLUMNS, [_row("place now", "hot", result.live)], words=2)]


def _written(result: Result) -> str:
    rows = []
    for kind, rooms in result.written.items():
        for room, values in rooms.items():
            found, before = times(values), times(result.warm[kind][room])
            rows.append([*_row(kind, room, found), f"{found.median / before.median:.1f} times"])
    return table([*_COLUMNS, ""], rows, words=2)


def _cold(result: Result) -> str:
    rows = []
    for kind, rooms in result.cold.items():
        for room, values in rooms.items():
            firsts = times(result.first[kind][room])
            first = f"{firsts.median:.1f}", f"{firsts.most:.1f}"
            rows.append([*_row(kind, room, times(values)), *first])
    return table([*_COLUMNS, "first, median", "first, most"], rows, words=2)


def _explained(result: Result) -> str:
    rows = [
        [plan.lookup, title, plan.partitions, plan.kind, plan.key, f"{plan.rows:,}"]
        for title, plan in result.explained
    ]
    return table(["look-up", "room", "partitions", "type", "key", "rows"], rows, words=5)


def _statements(result: Result) -> str:
    plans: dict[str, Plan] = {}
    for _, plan in result.explained:
        plans.setdefault(plan.statement, plan)
    blocks = [f"{p.lookup}:\n\n```sql\n{_wrapped(p.statement)}\n```" for p in plans.values()]
    return "\n\n".join(blocks)


def _wrapped(statement: str) -> str:
    short = statement.replace("waitroom_entries.", "").replace("waitroom_events.", "")
    return "\n".join(line.strip() for line in short.replace(" AND ", "\n  AND ").splitlines())


def _recorded(result: Result) -> str:
    rows = []
    for kind, runs in result.recorded.items():
        speed = median(run.per_s for run in runs)
        kept = [median(getattr(run.kept, name) for run in runs) for name in ("median", "p99")]
        most = max(run.kept.most for run in runs)
        spread = f"{min(r.per_s for r in runs):,.0f} to {max(r.per_s for r in runs):,.0f}"
        rows.append([_NAMES[kind], f"{speed:,.0f}", spread, f"{speed / 4:,.0f}",
                     *(f"{value:.1f}" for value in (*kept, most))])  # fmt: skip
    head = ["database", "events/s", "of the runs", "stays/s", "kept p50", "kept p99", "kept most"]
    return table(head, rows)


def _reports(result: Result) -> str:
    rows = [
        [made.period, f"{made.stays:,}", f"{made.seconds:.1f}", f"{made.memory_mb:.0f}"]
        for made in result.reports
    ]
    return table(["the last", "stays", "seconds", "memory, MB"], rows)
