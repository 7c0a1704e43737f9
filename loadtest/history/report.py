"""The report of `make bench-history`, about the costs of ten million stays (docs/history.md)."""

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median

from loadtest.databases import SETTINGS, versions
from loadtest.history.lookups import Durations, Times, summarize
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
    "Through `sidecar/history/store/stays.py`, ms, connection and transaction included; the rooms "
    "in turn, visitor after visitor. Half of the visitors are of any age, half of the latest. "
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
    """Write the report of a measurement."""
    amount = result.amount
    loads = ", ".join(f"{part} {load:.1f}" for part, load in result.loads.items())
    problems = result.problems()
    live = []
    if result.live is not None:
        row = _format_times("place now", "hot", result.live)
        live = [f"The live answer, from Redis, with {amount.waiting:,} waiting:",
                table(_COLUMNS, [row], words=2)]  # fmt: skip
    parts = [
        f"{_SHARED} The machine's load when each part began: {loads}.",
        *(["\n".join(f"* **{problem}**" for problem in problems)] if problems else []),
        _describe_rows(result),
        "## Look-ups",
        _LOOKUPS,
        _lookup_table(result.warm),
        *live,
        "### While a recorder writes into the hot room",
        f"{result.written_per_s:,.0f} events/s meanwhile. Last: the median over that without.",
        _lookup_table(result.written, [""], lambda kind, room, found: [
            f"{found.median / summarize(result.warm[kind][room]).median:.1f} times"
        ]),
        "### After a restart",
        _COLD.format(restarts=amount.restarts, cold=amount.cold),
        _lookup_table(result.cold, ["first, median", "first, most"], lambda kind, room, _: [
            f"{value:.1f}" for value in _median_and_most(result.first[kind][room])
        ]),
        "## One partition",
        "What `EXPLAIN PARTITIONS` says of the statements as they were sent.",
        table(["look-up", "room", "partitions", "type", "key", "rows"], [
            [plan.lookup, title, plan.partitions, plan.kind, plan.key, f"{plan.rows:,}"]
            for title, plan in result.explained
        ], words=5),
        _format_statements(result),
        "## The recorder",
        _RECORDER.format(amount=amount, stays=amount.events // 4),
        _recorder_table(result),
        _KEPT.format(bytes=result.bytes_per_event),
        "## Reports",
        "`waitroom report` over the hot room, a process of its own.",
        table(["the last", "stays", "seconds", "memory, MB"], [
            [cost.period, f"{cost.stays:,}", f"{cost.seconds:.1f}", f"{cost.memory_mb:.0f}"]
            for cost in result.reports
        ]),
    ]  # fmt: skip
    title, other = "The history, measured", [", ".join(versions())]
    return Report("history", title, parts, result, problems=problems, versions=other)


def _describe_rows(result: Result) -> str:
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


def _format_times(kind: str, room: str, found: Times) -> list[str]:
    values = found.median, found.p90, found.p99, found.most
    return [kind, room, f"{found.number:,}", *(f"{value:.1f}" for value in values)]


def _lookup_table(
    durations: Durations,
    columns: Sequence[str] = (),
    more: Callable[[str, str, Times], list[str]] = lambda *_: [],
) -> str:
    """Return a table of look-ups. `more` returns the values of further columns."""
    rows = []
    for kind, rooms in durations.items():
        for room, values in rooms.items():
            found = summarize(values)
            rows.append([*_format_times(kind, room, found), *more(kind, room, found)])
    return table([*_COLUMNS, *columns], rows, words=2)


def _median_and_most(durations_ms: list[float]) -> tuple[float, float]:
    times = summarize(durations_ms)
    return times.median, times.most


def _format_statements(result: Result) -> str:
    blocks: dict[str, str] = {}
    for _, plan in result.explained:
        text = plan.statement.replace("waitroom_entries.", "").replace("waitroom_events.", "")
        lines = (line.strip() for line in text.replace(" AND ", "\n  AND ").splitlines())
        block = f"{plan.lookup}:\n\n```sql\n{chr(10).join(lines)}\n```"
        blocks.setdefault(plan.statement, block)
    return "\n\n".join(blocks.values())


def _recorder_table(result: Result) -> str:
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
