"""The commands `waitroom report` and `waitroom history …`, which read the history's database.

They need no replica.
"""

import json
import sys
import time
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click

from sidecar.cli.config import CONFIG, load_settings
from sidecar.cli.output import JSON, Unreachable, fail, print_acts, print_json, print_result
from sidecar.cli.replica_client import ReplicaOptions, SettingsGroup
from sidecar.kit.errors import DatabaseError, DatabaseUnavailableError, InputError
from sidecar.kit.extras import require
from sidecar.kit.progress import progress
from sidecar.visitors.tokens import is_visitor_id
from sidecar.visitors.visitor_number import read_number

if TYPE_CHECKING:
    from sidecar.history.model import Period
    from sidecar.history.store.stays import History

T = TypeVar("T")

_FROM_HELP = "The start of the period, such as 2026-11-27T18:00Z; 24h (default) means 24 hours ago."
_FROM = click.option("--from", "start", metavar="TIME", help=_FROM_HELP)
_TO = click.option("--to", "end", metavar="TIME", help="The end of the period (default: now).")


@click.command()
@CONFIG
@click.argument("room")
@_FROM
@_TO
@click.option(
    "--format",
    "output_format",
    type=click.Choice(["text", "json", "csv"]),
    default="text",
    show_default=True,
)
@JSON
def report(
    path: str | None, room: str, *, output_format: str, as_json: bool, **period_options: Any
) -> None:
    """Report a room's waiting times, abandonment and fairness in a period."""
    from sidecar.history.lookups import format_csv  # noqa: PLC0415
    from sidecar.history.report import make_report  # noqa: PLC0415

    period = _read_period(**period_options)
    as_json = as_json or output_format == "json"
    with progress("reading stays", is_on=not as_json) as advance:
        result = _run_query(
            path, room, lambda history: make_report(history, room, period, advance=advance)
        )
    document = result.model_dump(by_alias=True) if result else {}
    if as_json:
        print_json(document)
    elif output_format == "csv":
        click.echo(format_csv([document]), nl=False)
    else:
        click.echo(_format_report(document))


@click.group(cls=SettingsGroup)
def history() -> None:
    """Look up a visitor, the stays in a period, or what operators did."""


@history.command()
@click.argument("room")
@click.argument("visitor")
@print_result(print_json)
@click.pass_obj
def visitor(options: ReplicaOptions, room: str, visitor: str) -> Any:
    """Show a visitor's stay, its events and its positions over time, as JSON. VISITOR is a
    visitor's id, or the visitor number on the waiting page."""
    from sidecar.history.lookups import find_visitor  # noqa: PLC0415

    if not is_visitor_id(visitor) and read_number(visitor) is None:
        raise click.UsageError(
            f"{visitor}: that is no visitor's id: it has 22 letters, digits, - and _; "
            "nor a visitor number, such as 7K2Q-9XDM"
        )
    stay = _run_query(options.config, room, lambda history: find_visitor(history, room, visitor))
    if stay is None:
        fail([f"nothing was recorded of {visitor} in {room}"])
    return stay.model_dump(by_alias=True)


@history.command()
@click.argument("room")
@_FROM
@_TO
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object per line instead of CSV."
)
@click.pass_obj
def stays(options: ReplicaOptions, /, room: str, as_json: bool, **period_options: Any) -> None:
    """Print the stays that began in a period, oldest first, as CSV."""
    from sidecar.history.lookups import format_csv  # noqa: PLC0415
    from sidecar.history.schemas import StayDocument  # noqa: PLC0415

    period = _read_period(**period_options)

    async def write(history: "History") -> None:
        is_first = True
        async for recorded in history.read_stays(room, period):
            stay = StayDocument.model_validate(recorded).model_dump(by_alias=True)
            if as_json:
                click.echo(json.dumps(stay))
            else:
                click.echo(format_csv([stay], has_header=is_first), nl=False)
            is_first = False
            advance()

    with progress("reading stays", is_on=not (as_json or sys.stdout.isatty())) as advance:
        _run_query(options.config, room, write)


@history.command()
@click.argument("room")
@_FROM
@_TO
@click.option("--limit", default=1000, show_default=True, type=click.IntRange(1))
@print_result(lambda document: print_acts(document["changes"]))
@click.pass_obj
def changes(options: ReplicaOptions, /, room: str, limit: int, **period_options: Any) -> Any:
    """List what operators did in a period, latest first."""
    from sidecar.history.schemas import create_changes_page  # noqa: PLC0415

    period = _read_period(**period_options)
    entries = _run_query(
        options.config, room, lambda history: history.read_changes(room, period, limit=limit)
    )
    configured = load_settings(options.config).rooms[room]
    page = create_changes_page(room, period, entries, limit, configured=configured)
    return page.model_dump(by_alias=True)


def _read_period(start: str | None, end: str | None) -> "Period":
    from sidecar.history.model import read_period  # noqa: PLC0415

    try:
        return read_period(start, end, now_ms=int(time.time() * 1000))
    except InputError as error:
        raise click.UsageError("\n".join(f"--{problem}" for problem in error.problems)) from None


def _run_query(path: str | None, room: str, query: Callable[["History"], Awaitable[T]]) -> T:
    """Run a query on the history's database. Exit if the settings lack the room or the database."""
    import asyncio  # noqa: PLC0415

    from sidecar.http.problems import ProblemError  # noqa: PLC0415

    settings = load_settings(path)
    if room not in settings.rooms:
        fail([f"no room is named {room!r}; there are {', '.join(sorted(settings.rooms))}"])
    if not settings.history:
        fail(['history: names no database; set it, such as history = "sqlite:///history.db"'])

    async def run() -> T:
        from sidecar.history.store.stays import History  # noqa: PLC0415 - the other commands start faster
        from sidecar.storage.sql.database import open_database  # noqa: PLC0415

        history = History(open_database(settings.history), partitions=settings.history_partitions)
        try:
            await history.check()
            return await query(history)
        finally:
            await history.close()

    try:
        require("sql", setting="history")
        return asyncio.run(run())
    except ProblemError as error:
        fail([error.members["detail"]])
    except DatabaseUnavailableError as error:
        raise Unreachable(f"the history's database: {error}") from None
    except DatabaseError as error:
        raise click.ClickException(f"the history's database: {error}") from None


#: The rows of a report that show counts: the fields that are added up, the title, and the field
#: with the share of the visitors who queued, or "".
_COUNT_ROWS: tuple[tuple[tuple[str, ...], str, str], ...] = (
    (("stays",), "Stays that began", ""),
    (("admitted_at_once", "admitted_after_wait"), "Entered", ""),
    (("admitted_at_once",), "  at once", ""),
    (("admitted_after_wait",), "  after a wait", ""),
    (("abandoned", "no_shows", "waiting"), "Did not enter", ""),
    (("abandoned",), "  gave up waiting", "abandonment"),
    (("no_shows",), "  called, did not come", "no_show_share"),
    (("waiting",), "  still waiting", ""),
    (("finished", "expired", "left"), "Visits that ended", ""),
    (("finished",), "  finished at the site", ""),
    (("expired",), "  expired", ""),
    (("left",), "  left by the visitor", ""),
    (("inside",), "Still inside", ""),
    (("released", "reset", "stuck"), "Ended otherwise", ""),
    (("released",), "  released by an operator", ""),
    (("reset",), "  waiting at a reset", ""),
    (("stuck",), "  end unknown", ""),
)
#: The rows of a report that show durations: the title, and the fields with the durations.
_TIME_ROWS = (
    ("Wait before entering", ("wait_p50", "wait_p90", "wait_p99", "wait_max")),
    ("Gave up after", ("gave_up_after_p50",)),
    ("Time inside", ("inside_p50", "inside_p90")),
)


def _format_report(report: dict[str, Any]) -> str:
    start, end = (datetime.fromisoformat(report[name]).astimezone() for name in ("from", "to"))
    period = f"{start:%Y-%m-%d %H:%M:%S} to {end:%Y-%m-%d %H:%M:%S %Z}"
    lines = [f"{report['room']}, {period}", ""]
    for names, title, share in _COUNT_ROWS:
        share_text = f"  {report[share]:.1%} of those who queued" if report.get(share) else ""
        lines.append(f"{title:<28}{sum(report[name] for name in names):>10,}{share_text}")
    lines.append("")
    for title, fields in _TIME_ROWS:
        times = [(name.rpartition("_")[2], report[name]) for name in fields]
        text = ", ".join(f"{name} {_format_duration(s)}" for name, s in times if s is not None)
        lines.append(f"{title:<28}{text or 'none'}")
    record = "none"
    if report["estimates"]:
        record = f"the range held for {report['estimates_held']:.0%} of {report['estimates']:,}"
        record += f", median error {report['estimate_error_p50']:.0%}"
    lines.append(f"{'Wait estimates':<28}{record}")
    fairness = "all were called in order"
    if report["inversions"]:
        fairness = f"{report['inversions']:,} called after somebody who was behind them"
    lines += ["", f"{'Fairness':<28}{fairness}", f"{'Moved by an operator':<28}{report['moved']:,}"]
    return "\n".join(lines)


def _format_duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.1f} s"
    minutes, left_s = divmod(round(seconds), 60)
    return f"{minutes} min {left_s} s" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"
