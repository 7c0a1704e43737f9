"""The live view of `waitroom rooms watch`, as wide and as high as the terminal is."""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rich.live import Live
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from sidecar.cli import printing
from sidecar.cli.rooms.figures import Failure, phase_of, wait_of
from sidecar.cli.rooms.trend import curve, rates
from waitroom import WaitroomError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import FrameType

    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

    from sidecar.cli.rooms.trend import Point, Trends
    from waitroom import Client, Room
    from waitroom.model import Line, LogEntry

#: Narrower, a room has a few lines below each other instead of one.
_TABLE_FROM = 72
#: From here on there is room for everything.
_WIDE = 116
#: Between two looks at the operators' log (s); how many of its entries are shown.
_LOG_S, _LOG_SHOWN = 5.0, 8
#: A curve has so many blocks at least, if the terminal is wide enough for it, and at most.
_LEAST, _MOST = 6, 20
_STYLES = {"running": "green", "paused": "yellow", "draining": "yellow", "open": "magenta"}
_UNKNOWN = "-"


@dataclass(frozen=True)
class _Curve:
    """As wide as there is room for it."""

    seen: tuple[tuple[float, int], ...]
    top: int
    style: str

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(curve(self.seen, min(_MOST, options.max_width), top=self.top), self.style)

    def __rich_measure__(self, _: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(min(_LEAST, options.max_width), min(_MOST, options.max_width))


@dataclass(frozen=True)
class _Sight:
    """A room as it is now, and what was seen of it."""

    room: Room
    points: tuple[Point, ...]

    @property
    def height(self) -> int:
        return 1 + len(self.room["lines"])

    def name(self) -> Text:
        return Text(self.room["room"], "bold")

    def state(self) -> Text:
        if self.room["recovery_stage"]:
            return Text("recovering", "bold red")
        mode = self.room["mode"]
        if mode == "running" and (phase := phase_of(self.room)):
            return Text(phase, "cyan")
        return Text(mode, _STYLES.get(mode, ""))

    def inside(self) -> str:
        return f"{self.room['active']:,}/{self.room['settings']['total_active_users']:,}"

    def called(self) -> str:
        return f"{self.room['provisional']:,}"

    def waiting(self) -> Text:
        return Text(f"{self.room['waiting']:,}", "bold")

    def wait(self) -> str:
        return _wait(self.room["wait_seconds"])

    def waits(self) -> str:
        """With the shortest and the longest of the last minutes."""
        known = [point.wait_s for point in self.points if point.wait_s is not None]
        low, high = (wait_of(each) for each in (min(known, default=0), max(known, default=0)))
        return self.wait() if low == high else f"{self.wait()} ({low} to {high})"

    def rate(self, name: str) -> str:
        found = rates(self.points)
        return f"{found[name]:,.0f}" if found else _UNKNOWN

    def waiting_curve(self) -> _Curve:
        return _Curve(tuple((each.at_s, each.waiting) for each in self.points), 1, "cyan")

    def inside_curve(self) -> _Curve:
        cap = self.room["settings"]["total_active_users"]
        return _Curve(tuple((each.at_s, each.active) for each in self.points), cap, "green")


@dataclass(frozen=True)
class _Column:
    head: str
    cell: Callable[[_Sight], RenderableType]
    #: In terminals of this width or more, and narrower than that one.
    width: int = 0
    below: int = 10_000
    #: Of a sub-queue; most figures are of rooms alone.
    of_line: Callable[[Line], RenderableType] = lambda _: ""
    is_text: bool = False
    is_curve: bool = False


def _line_name(line: Line) -> Text:
    return Text(f"  {line['line']}")


def _line_wait(line: Line) -> str:
    return _wait(line["wait_seconds"])


#: A curve stands to the right of its figure, and needs no head.
_COLUMNS = (
    _Column("room", _Sight.name, of_line=_line_name, is_text=True),
    _Column("state", _Sight.state, is_text=True),
    _Column("inside", _Sight.inside),
    _Column("", _Sight.inside_curve, 100, is_curve=True),
    _Column("waiting", _Sight.waiting, of_line=lambda line: f"{line['waiting']:,}"),
    _Column("", _Sight.waiting_curve, is_curve=True),
    _Column("wait", _Sight.wait, below=_WIDE, of_line=_line_wait),
    _Column("wait (range)", _Sight.waits, _WIDE, of_line=_line_wait, is_text=True),
    _Column("called", _Sight.called, 90),
    _Column("in/min", lambda sight: sight.rate("in")),
    _Column("out/min", lambda sight: sight.rate("out")),
    _Column("gave up", lambda sight: sight.rate("gave up"), _WIDE),
)


@dataclass(frozen=True)
class Frame:
    """What is on the screen. It is drawn by another thread too, so nothing of it changes."""

    address: str
    sights: Sequence[_Sight] = ()
    #: What operators did, latest first, with the room.
    acts: Sequence[tuple[str, LogEntry]] = ()
    failure: Failure | None = None
    seen_at: datetime = field(default_factory=lambda: datetime.now(UTC))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        is_table = options.max_width >= _TABLE_FROM
        parts: list[RenderableType] = [self._head(is_live=options.height is not None)]
        if self.failure:
            parts.append(self._complaint(self.failure))
        parts.append("")
        used = sum(len(console.render_lines(part, options)) for part in parts)
        left = None if options.height is None else options.height - used - is_table
        shown = list(self._fitting(left, is_table=is_table))
        parts += [_table(shown, options.max_width)] if is_table else map(_card, shown)
        if len(shown) < len(self.sights):
            rest = len(self.sights) - len(shown)
            parts.append(Text(f"… and {rest} more: name the rooms to watch", "dim"))
        elif self.acts:
            if left is not None:
                left -= sum(_height(sight, is_table=is_table) for sight in shown) + 1
            parts.append(self._log(_LOG_SHOWN if left is None else min(_LOG_SHOWN, left), is_table))
        yield from parts

    def _head(self, *, is_live: bool) -> Table:
        now = datetime.now(UTC) if is_live else self.seen_at
        head = Table.grid(expand=True, padding=(0, 1))
        head.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
        head.add_column(no_wrap=True, justify="right")
        replicas = max((sight.room["replicas"] for sight in self.sights), default=0)
        title = Text.assemble(("waitroom", "bold"), "  ", self.address, "  ")
        title.append(f"{replicas} replica{'' if replicas == 1 else 's'}", "dim")
        end = Text(_clock(now))
        head.add_row(title, end)
        return head

    def _complaint(self, failure: Failure) -> Text:
        away_s = (datetime.now(UTC) - failure.since).total_seconds()
        return Text.assemble(
            (f"No figures since {_clock(failure.since)} ({away_s:.0f} s): {failure.text}", "red"),
            f"\nThe figures below are of {_clock(self.seen_at)}. Trying again.",
        )

    def _fitting(self, left: int | None, *, is_table: bool) -> Iterator[_Sight]:
        """The rooms for which the screen is high enough, with a line for how many are left out."""
        for number, sight in enumerate(self.sights, 1):
            if left is not None:
                left -= _height(sight, is_table=is_table)
                if left < (number < len(self.sights)):
                    return
            yield sight

    def _log(self, most: int, is_table: bool) -> RenderableType:
        if most < 1:
            return ""
        log = Table.grid(padding=(0, 2, 0, 0))
        # In a narrow terminal what was done comes before where and by whom.
        for width in (8, 16, 16) if is_table else (8, 8, 6):
            log.add_column(no_wrap=True, overflow="ellipsis", max_width=width)
        log.add_column()
        log.add_row()
        for room, act in self.acts[:most]:
            at = _clock(datetime.fromtimestamp(act["at"] / 1000, UTC))
            words = " ".join(part for part in (act["what"], act["visitor"], act["detail"]) if part)
            what = Text(printing.cell(words), no_wrap=True, overflow="ellipsis")
            log.add_row(at, room, printing.cell(act["by"]), what)
        return log


class Screen:
    def __init__(self, client: Client, address: str, live: Live) -> None:
        self._client, self._live = client, live
        self.frame = Frame(address)
        self._log_from_s = 0.0

    def show(self, rooms: list[Room], trends: Trends) -> None:
        sights = [_Sight(room, trends.of(room["room"])) for room in rooms]
        acts = self._acts(rooms)
        self._draw(replace(Frame(self.frame.address), sights=sights, acts=acts))

    def complain(self, failure: Failure) -> None:
        self._draw(replace(self.frame, failure=failure))

    def _draw(self, frame: Frame) -> None:
        self.frame = frame
        self._live.update(frame, refresh=True)

    def _acts(self, rooms: list[Room]) -> Sequence[tuple[str, LogEntry]]:
        if time.monotonic() < self._log_from_s:
            return self.frame.acts
        self._log_from_s = time.monotonic() + _LOG_S
        names = [room["room"] for room in rooms]
        try:
            acts = [(name, act) for name in names for act in self._client.rooms.log(name)]
        except WaitroomError:  # the next look at the rooms says so
            return self.frame.acts
        return sorted(acts, key=lambda act: act[1]["at"], reverse=True)[:_LOG_SHOWN]


@contextlib.contextmanager
def open_screen(client: Client, address: str) -> Iterator[Screen]:
    """The terminal's other screen; what was there comes back, and the last figures below it."""
    console = printing.console()
    signal.signal(signal.SIGTERM, _end)
    with Live(console=console, screen=True, refresh_per_second=1) as live:
        screen = Screen(client, address, live)
        try:
            yield screen
        finally:
            live.stop()
            console.print(screen.frame)


def _end(number: int, _frame: FrameType | None) -> None:
    """Unlike the signal itself, this leaves the terminal as it was."""
    sys.exit(128 + number)


def _table(sights: Sequence[_Sight], width: int) -> Table:
    columns = [column for column in _COLUMNS if column.width <= width < column.below]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for column in columns:
        table.add_column(
            column.head,
            justify="left" if column.is_text or column.is_curve else "right",
            no_wrap=not column.is_curve,
            overflow="ellipsis",
            max_width=max(12, width // 4) if column.is_text else None,
        )
    for sight in sights:
        table.add_row(*(column.cell(sight) for column in columns))
        for line in sight.room["lines"]:
            table.add_row(*(column.of_line(line) for column in columns), style="dim")
    return table


def _card(sight: _Sight) -> Table:
    card = Table.grid(expand=True, padding=(0, 1))
    card.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    card.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    card.add_row(sight.name(), sight.state())
    card.add_row(f"inside {sight.inside()}", sight.inside_curve())
    card.add_row(Text.assemble("waiting ", sight.waiting()), sight.waiting_curve())
    for line in sight.room["lines"]:
        card.add_row(_line_name(line).append(f" {line['waiting']:,}"), _line_wait(line))
    card.add_row(f"wait {sight.wait()}", f"called {sight.called()}")
    card.add_row(f"in {sight.rate('in')}/min", f"out {sight.rate('out')}/min")
    card.add_row("")
    return card


def _height(sight: _Sight, *, is_table: bool) -> int:
    return sight.height if is_table else sight.height + 5


def _wait(seconds: int | None) -> str:
    return _UNKNOWN if seconds is None else wait_of(seconds)


def _clock(at: datetime) -> str:
    """By the clock on the wall; with its day where that is another."""
    local, today = at.astimezone(), datetime.now(UTC).astimezone().date()
    return f"{local:%H:%M:%S}" if local.date() == today else f"{local:%d %b %H:%M}"
