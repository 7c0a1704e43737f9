"""The command `waitroom rooms watch`, which shows a live view at a terminal.

If its output is not a terminal, it prints a line for each room at each poll.
"""

import contextlib
import itertools
import json
import signal
import sys
import time
from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from types import FrameType
from typing import TYPE_CHECKING

import click

from sidecar.cli.output import format_cell, format_time
from sidecar.cli.replica_api import Client, Room, format_error
from sidecar.cli.replica_client import ReplicaOptions
from sidecar.cli.rooms.changed import find_cap
from sidecar.kit.clock import iso

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

    from waitroom.model import LogEntry

_RATE_HEADINGS = "in/min", "out/min", "gave up"
_ROW_FORMAT = "{6:<8} {0:<20} {1:<10} {2:>9} {3:>9} {4:>9} {7:>8}  {5}"
#: The period that a curve shows, and the period over which rates are measured, in seconds.
SPAN_S = 300.0
RATE_S = 60.0
_BLOCKS = "▁▂▃▄▅▆▇█"
#: The minimum width of a terminal for a table. A narrower one shows a paragraph for each room.
_MIN_TABLE_WIDTH = 72
#: The seconds between two requests for the operators' log, and the number of entries shown.
_LOG_EVERY_S, _LOG_SHOWN = 5.0, 8
STATE_STYLES = {
    **dict.fromkeys(("running", "at cap"), "green"),
    **dict.fromkeys(("paused", "draining", "cap 0"), "yellow"),
    **dict.fromkeys(("closed", "pre-queue"), "cyan"),
    "off": "magenta",
    "recovering": "bold red",
}


@dataclass(frozen=True, slots=True)
class Sample:
    """The figures of a room at one poll, from which rates and curves are made."""

    at_s: float
    waiting: int
    active: int
    wait_s: int | None
    counters: dict[str, int]


#: The samples of the last SPAN_S seconds by room, oldest first.
Samples = dict[str, deque[Sample]]


@dataclass(frozen=True)
class Poll:
    """The rooms at the last successful poll, and the error of the polls that have failed since."""

    rooms: Sequence[Room] = ()
    at: datetime = field(default_factory=lambda: datetime.now(UTC))
    error: str = ""
    failing_since: datetime | None = None


@click.command("watch")
@click.argument("names", nargs=-1, metavar="[ROOM]…")
@click.option(
    "--every", type=click.FloatRange(0.2, 3600), default=1, show_default=True, metavar="SECONDS"
)
@click.option(
    "--times",
    type=click.IntRange(1),
    metavar="N",
    help="Stop after N intervals (default: run until Ctrl-C).",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object per room and interval."
)
@click.pass_obj
def watch(
    options: ReplicaOptions, names: tuple[str, ...], every: float, times: int | None, as_json: bool
) -> None:
    """Watch rooms and their sub-queues: the rooms that you name, or all rooms.

    On a terminal, figures are updated in place; otherwise, each room gets a line per interval.
    Rates cover the last minute, and curves the last five minutes, if the command has run that long.
    """
    samples: Samples = defaultdict(deque)
    # Ctrl-C ends the live view, even if the process was started with SIGINT ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with contextlib.suppress(KeyboardInterrupt), options.client() as client:
        polls = _poll_rooms(client, names, samples, every_s=every, times=times)
        if as_json or not sys.stdout.isatty():
            _print_lines(polls, samples, as_json=as_json)
        else:
            _Screen(client, options.find_url(), samples).show(polls)


def _poll_rooms(
    client: Client, names: tuple[str, ...], samples: Samples, *, every_s: float, times: int | None
) -> Iterator[Poll]:
    """Poll the rooms forever or `times` times. Raises WaitroomError only if the first poll fails,
    which probably means that an argument is wrong."""
    from waitroom import WaitroomError  # noqa: PLC0415 - the other commands start faster

    poll = Poll()
    for number in itertools.count(1):
        try:
            rooms = [client.rooms.get(name) for name in names] if names else client.rooms.list()
        except WaitroomError as error:
            if number == 1:
                raise
            since = poll.failing_since or datetime.now(UTC)
            poll = replace(poll, error=format_error(error), failing_since=since)
        else:
            poll = Poll(sorted(rooms, key=lambda room: room["room"]))
            for room in rooms:
                add_sample(samples, room, time.monotonic())
        yield poll
        if number == times:
            return
        time.sleep(every_s)


# Figures -----------------------------------------------------------------------------------------


def format_rows(room: Room) -> Iterator[tuple[object, ...]]:
    """Yield a row for a room and each sub-queue: name, state, waiting, inside, cap and wait."""
    event = _format_event(room)
    wait = _format_wait(room["wait_seconds"]) + (f"  {event}" if event else "")
    cap = find_cap(room)
    yield room["room"], format_state(room), room["waiting"], room["active"], cap, wait
    for line in room["lines"]:
        yield f"  {line['line']}", "", line["waiting"], "", "", _format_wait(line["wait_seconds"])


def format_state(room: Room) -> str:
    state = room.get("state") or room["mode"]  # a replica of 0.1.0 sends no state
    return {"prequeue": "pre-queue"}.get(state) or state.replace("_", " ")


def _format_event(room: Room) -> str:
    """Format the current or next event of a room that is not open. Return "" if there is none."""
    if room["phase"] == "open":
        return ""
    return room["event"] or (f"next: {room['coming']}" if room["coming"] else "")


def _format_wait(seconds: int | None, *, unknown: str = "unknown") -> str:
    if seconds is None:
        return unknown
    return f"{seconds} s" if seconds < 120 else f"{seconds // 60} min"


def add_sample(samples: Samples, room: Room, now_s: float) -> None:
    """Add the figures of a room to its samples, and remove samples older than SPAN_S."""
    room_samples = samples[room["room"]]
    figures = room["waiting"], room["active"], room["wait_seconds"], room["counters"]
    room_samples.append(Sample(now_s, *figures))
    while room_samples[0].at_s < now_s - SPAN_S:
        room_samples.popleft()


def calculate_rates(samples: Sequence[Sample]) -> dict[str, float]:
    """Calculate how many visitors per minute were admitted, left and gave up waiting. Return {} if
    there are fewer than two samples."""
    from sidecar.rooms.statistics import ABANDONMENTS, compute_growth  # noqa: PLC0415

    recent = [sample for sample in samples if sample.at_s >= samples[-1].at_s - RATE_S]
    if len(recent) < 2:
        return {}
    counts = compute_growth(recent[-1].counters, recent[0].counters)
    scale = 60 / (recent[-1].at_s - recent[0].at_s)
    counters_by_rate = {
        "in/min": ("admitted",),
        "out/min": ("expired_session", "left_session", "released"),
        "gave up": ABANDONMENTS,
    }
    return {
        name: scale * sum(counts.get(counter, 0) for counter in counters)
        for name, counters in counters_by_rate.items()
    }


def draw_curve(values: Sequence[tuple[float, int]], width: int, *, top: int) -> str:
    """Draw pairs of (seconds, value) as a line of at most `width` block characters.

    Each block shows the last value of an interval. A full block is the greater of `top` and the
    highest value.
    """
    width = min(width, len(values))
    if width < 1:
        return ""
    times = [at_s for at_s, _ in values]
    step_s = (times[-1] - times[0]) / max(1, width - 1)
    highest = max(top, 1, *(value for _, value in values))
    indexes = [bisect_right(times, times[0] + number * step_s) - 1 for number in range(width - 1)]
    # Heights are rounded up, so that a single visitor is visible.
    heights = (-(-values[index][1] * (len(_BLOCKS) - 1) // highest) for index in (*indexes, -1))
    return "".join(_BLOCKS[height] for height in heights)


# Views -------------------------------------------------------------------------------------------


def _print_lines(polls: Iterator[Poll], samples: Samples, *, as_json: bool) -> None:
    has_headings = as_json
    for poll in polls:
        if poll.error and poll.failing_since:
            click.echo(f"{poll.error} (since {poll.failing_since.astimezone():%H:%M:%S})", err=True)
            continue
        if not has_headings:
            headings = ("room", "state", "waiting", "inside", "cap", "wait", "time", "in/min")
            click.echo(_ROW_FORMAT.format(*headings))
            has_headings = True
        for room in poll.rooms:
            if as_json:
                click.echo(json.dumps({"at": iso(int(poll.at.timestamp() * 1000)), **room}))
                continue
            figures, *lines = format_rows(room)
            rates = calculate_rates(samples[room["room"]])
            admitted = f"{rates['in/min']:.0f}" if rates else ""
            click.echo(_ROW_FORMAT.format(*figures, f"{poll.at.astimezone():%H:%M:%S}", admitted))
            for row in lines:
                click.echo(_ROW_FORMAT.format(*row, "", ""))


class _Screen:
    """A live view that fills the terminal."""

    def __init__(self, client: Client, address: str, samples: Samples) -> None:
        from rich.console import Console  # noqa: PLC0415 - the other commands start faster

        self._client, self._address, self._samples = client, address, samples
        self._console = Console(highlight=False, markup=False, emoji=False)
        self._poll = Poll()
        #: The newest entries of the log of operators' actions, newest first, each with its room.
        self._log: Sequence[tuple[str, LogEntry]] = ()
        self._log_due_s = 0.0

    def show(self, polls: Iterator[Poll]) -> None:
        """Draw each poll on the alternate screen. Then print the last one on the normal screen."""
        from rich.live import Live  # noqa: PLC0415

        # SIGTERM alone would leave the terminal on the alternate screen.
        signal.signal(signal.SIGTERM, _exit_on_signal)
        try:
            with Live(
                get_renderable=self._draw, console=self._console, screen=True, refresh_per_second=1
            ) as live:
                for self._poll in polls:
                    self._read_log()
                    live.refresh()
        finally:
            if self._poll.rooms:
                self._console.print(self._draw(is_live=False))

    def _read_log(self) -> None:
        from waitroom import WaitroomError  # noqa: PLC0415

        if self._poll.error or time.monotonic() < self._log_due_s:
            return
        self._log_due_s = time.monotonic() + _LOG_EVERY_S
        names = [room["room"] for room in self._poll.rooms]
        with contextlib.suppress(WaitroomError):  # the next poll shows the error
            log = [(name, entry) for name in names for entry in self._client.rooms.log(name)]
            self._log = sorted(log, key=lambda entry: entry[1]["at"], reverse=True)[:_LOG_SHOWN]

    def _draw(self, *, is_live: bool = True) -> "RenderableType":
        """Draw the latest poll. If `is_live`, omit lines that do not fit into the terminal."""
        from rich.console import Group  # noqa: PLC0415
        from rich.segment import SegmentLines  # noqa: PLC0415
        from rich.table import Table  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        poll, (width, height) = self._poll, self._console.size
        replicas = max((room["replicas"] for room in poll.rooms), default=0)
        title = Text.assemble(("waitroom", "bold"), f"  {self._address}  ")
        title.append(f"{replicas} replica{'' if replicas == 1 else 's'}", "dim")
        head = Table.grid(expand=True, padding=(0, 1))
        head.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
        head.add_column(no_wrap=True, justify="right")
        head.add_row(title, format_time(datetime.now(UTC) if is_live else poll.at))
        parts: list[RenderableType] = [head]
        if since := poll.failing_since:
            failing_s = (datetime.now(UTC) - since).total_seconds()
            text = f"No figures since {format_time(since)} ({failing_s:.0f} s): {poll.error}"
            parts.append(Text(text, "red"))
            parts.append(f"The figures below are of {format_time(poll.at)}. Trying again.")
        # Copy the samples, because rich's Live draws in another thread while samples are added.
        samples = [tuple(self._samples[room["room"]]) for room in poll.rooms]
        rooms = [_format_room(*pair, width) for pair in zip(poll.rooms, samples, strict=True)]
        is_table = width >= _MIN_TABLE_WIDTH
        parts += ["", *([_draw_table(rooms)] if is_table and rooms else map(_draw_text, rooms))]
        lines = self._console.render_lines(Group(*parts))
        if not is_live:
            height = len(lines) + _LOG_SHOWN + 1
        if len(lines) > height:
            more = Text("… and more: name the rooms to watch", "dim")
            return Group(SegmentLines(lines[: height - 1], new_lines=True), more)
        return Group(*parts, self._draw_log(height - len(lines) - 1, is_table=is_table))

    def _draw_log(self, max_entries: int, *, is_table: bool) -> "Table":
        """Draw the log of operators' actions. If the terminal is wide enough for a table
        (`is_table`), the first columns are wider."""
        from rich.table import Table  # noqa: PLC0415

        log = Table.grid(padding=(0, 2, 0, 0))
        for width in (8, 16, 16) if is_table else (8, 8, 6):
            log.add_column(no_wrap=True, overflow="ellipsis", max_width=width)
        log.add_column(no_wrap=True, overflow="ellipsis")
        log.add_row()
        for room, entry in self._log[: max(0, max_entries)]:
            at = format_time(datetime.fromtimestamp(entry["at"] / 1000, UTC))
            log.add_row(
                at,
                room,
                format_cell(entry["by"]),
                format_cell(entry.get("text") or entry["detail"]),
            )
        return log


def _format_room(
    room: Room, samples: Sequence[Sample], width: int
) -> "list[dict[str, str | Text]]":
    """Format figures of a room and of each sub-queue by heading. Omit those that exceed `width`."""
    from rich.text import Text  # noqa: PLC0415

    word, event = format_state(room), _format_event(room)
    state = Text(word + (f" ({event})" if event else ""), STATE_STYLES.get(word, ""))
    cap = find_cap(room)
    if site := room.get("site"):
        state.append(f", {site['state']}", "dim")
    inside, waiting = Text(f"{room['active']:,}/{cap:,}"), Text(f"{room['waiting']:,}", "bold")
    blocks = max(6, min(20, width // 6))
    queue = [(sample.at_s, sample.waiting) for sample in samples]
    waiting.append(f" {draw_curve(queue, blocks, top=1)}", "not bold cyan")
    if not _MIN_TABLE_WIDTH <= width < 100:
        active = [(sample.at_s, sample.active) for sample in samples]
        inside.append(f" {draw_curve(active, blocks, top=cap)}", "green")
    wait = _format_wait(room["wait_seconds"], unknown="-")
    waits = [sample.wait_s for sample in samples if sample.wait_s is not None] or [0]
    if width >= 116 and (low := _format_wait(min(waits))) != (high := _format_wait(max(waits))):
        wait += f" ({low} to {high})"
    rates = calculate_rates(samples)
    figures: dict[str, str | Text] = {
        "room": Text(room["room"], "bold"), "state": state, "inside": inside, "waiting": waiting,
        "wait": wait, "called": f"{room['provisional']:,}",
        **{name: f"{rates[name]:,.0f}" if rates else "-" for name in _RATE_HEADINGS},
    }  # fmt: skip
    if _MIN_TABLE_WIDTH <= width < 90:
        del figures["called"]
    if width < 116:
        del figures["gave up"]
    lines: list[dict[str, str | Text]] = [
        {"room": f"  {line['line']}", "waiting": f"{line['waiting']:,}",
         "wait": _format_wait(line["wait_seconds"], unknown="-")}
        for line in room["lines"]
    ]  # fmt: skip
    return [figures, *lines]


def _draw_table(rooms: "Sequence[list[dict[str, str | Text]]]") -> "Table":
    """Draw a table with a row for each room and sub-queue."""
    from rich.table import Table  # noqa: PLC0415

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    headings = list(rooms[0][0])
    for heading in headings:
        is_text = heading in {"room", "state"}
        table.add_column(heading, justify="left" if is_text else "right", no_wrap=True)
    for figures, *lines in rooms:
        table.add_row(*figures.values())
        for line in lines:
            table.add_row(*(line.get(heading, "") for heading in headings), style="dim")
    return table


def _draw_text(room: "list[dict[str, str | Text]]") -> "Text":
    """Draw a room as a paragraph, with a line for each of its sub-queues."""
    from rich.text import Text  # noqa: PLC0415

    figures, *lines = room
    text = Text.assemble(figures.pop("room"), " ", figures.pop("state"))
    for heading, figure in figures.items():
        text.append(f" {heading} ").append(figure)
    for line in lines:
        text.append(f"\n{line['room']} {line['waiting']}  {line['wait']}", "dim")
    return text.append("\n")


def _exit_on_signal(number: int, _frame: FrameType | None) -> None:
    sys.exit(128 + number)
