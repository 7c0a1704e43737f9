"""waitroom rooms watch: on a terminal a live view, elsewhere a line for each room and look."""

from __future__ import annotations

import contextlib
import itertools
import json
import signal
import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol

import click

from sidecar.cli.connection import explain
from sidecar.cli.rooms.figures import Failure, rows_of
from sidecar.kit.clock import iso

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sidecar.cli.connection import Connection
    from sidecar.cli.rooms.trend import Trends
    from waitroom import Client, Room

_ROW = "{6:<8} {0:<20} {1:<8} {2:>9} {3:>9} {4:>9} {7:>8}  {5}"


class _View(Protocol):
    def show(self, rooms: list[Room], trends: Trends) -> None: ...

    def complain(self, failure: Failure) -> None: ...


@click.command("watch")
@click.argument("names", nargs=-1, metavar="[ROOM]…")
@click.option(
    "--every", type=click.FloatRange(0.2, 3600), default=1, show_default=True, metavar="SECONDS"
)
@click.option(
    "--times", type=click.IntRange(1), metavar="N", help="Stop after N looks; otherwise at Ctrl-C."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, a line for each room and look.")
@click.pass_obj
def watch(
    connection: Connection, names: tuple[str, ...], every: float, times: int | None, as_json: bool
) -> None:
    """Watch rooms and their sub-queues; all rooms unless you name some.

    On a terminal the figures stay in place; a file or a pipe gets a line for each room and look.
    Rates and curves are of what this command has seen: a minute, and five.
    """
    from sidecar.cli.rooms.trend import Trends  # noqa: PLC0415

    trends = Trends()
    # Ctrl-C is how a live view is left, also where nohup or a script had it ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with contextlib.suppress(KeyboardInterrupt), connection.client() as client:
        looks = _looks(client, names, every_s=every, times=times)
        with _opened(client, connection.address(), as_json=as_json) as view:
            for look in looks:
                if isinstance(look, Failure):
                    view.complain(look)
                    continue
                for room in look:
                    trends.add(room, time.monotonic())
                view.show(look, trends)


def _looks(
    client: Client, names: tuple[str, ...], *, every_s: float, times: int | None
) -> Iterator[list[Room] | Failure]:
    """Raises WaitroomError where the first one fails: then the address or a name is wrong."""
    from waitroom import WaitroomError  # noqa: PLC0415 - the other commands start faster

    since = None
    for number in itertools.count(1):
        try:
            found = [client.rooms.get(name) for name in names] if names else client.rooms.list()
        except WaitroomError as error:
            if number == 1:
                raise
            since = since or datetime.now(UTC)
            yield Failure(explain(error), since)
        else:
            since = None
            yield sorted(found, key=lambda room: room["room"])
        if number == times:
            return
        time.sleep(every_s)


@contextlib.contextmanager
def _opened(client: Client, address: str, *, as_json: bool) -> Iterator[_View]:
    if as_json:
        yield _Lines(is_json=True)
    elif not sys.stdout.isatty():
        yield _Lines()
    else:
        from sidecar.cli.rooms.watch_screen import open_screen  # noqa: PLC0415

        with open_screen(client, address) as screen:
            yield screen


class _Lines:
    """For programs and files."""

    def __init__(self, *, is_json: bool = False) -> None:
        self._is_json = is_json
        self._has_head = is_json

    def show(self, rooms: list[Room], trends: Trends) -> None:
        from sidecar.cli.rooms.trend import rates  # noqa: PLC0415

        now = datetime.now(UTC)
        if not self._has_head:
            heads = ("room", "mode", "waiting", "inside", "cap", "wait", "time", "in/min")
            click.echo(_ROW.format(*heads))
            self._has_head = True
        for room in rooms:
            rate = rates(trends.of(room["room"]))
            if self._is_json:
                click.echo(json.dumps({"at": iso(int(now.timestamp() * 1000)), **room}))
                continue
            first, *others = rows_of(room)
            come = f"{rate['in']:.0f}" if rate else ""
            click.echo(_ROW.format(*first, f"{now.astimezone():%H:%M:%S}", come))
            for row in others:
                click.echo(_ROW.format(*row, "", ""))

    def complain(self, failure: Failure) -> None:
        click.echo(f"{failure.text} (since {failure.since.astimezone():%H:%M:%S})", err=True)
