"""waitroom rooms: look at rooms and change them."""

from __future__ import annotations

import itertools
import json
import time
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from sidecar.cli.common import fail
from sidecar.cli.connection import ReplicaGroup, explain, pass_client
from sidecar.cli.printing import printed, table
from sidecar.kit.clock import iso
from sidecar.rooms.commands.openings import show_events
from sidecar.rooms.commands.transfer import export_room, import_room

if TYPE_CHECKING:
    from collections.abc import Iterator

    from waitroom import Client, Room

#: A visitor's id may begin with a hyphen and is no option then.
ANY_ID = {"ignore_unknown_options": True, "help_option_names": ["--help"]}
#: `_rows`, the time, and how many come in a minute.
_WATCH_ROW = "{6:<8} {0:<20} {1:<8} {2:>9} {3:>9} {4:>9} {7:>8}  {5}"
_ACT = ("at", "by", "what", "visitor", "detail")


@click.group(cls=ReplicaGroup)
def rooms() -> None:
    """Look at rooms and change them, through a replica's ops listener."""


rooms.add_command(export_room)
rooms.add_command(import_room)
rooms.add_command(show_events)


@rooms.command("list")
@printed(
    lambda found: table(
        ("room", "mode", "waiting", "inside", "cap", "wait"),
        itertools.chain.from_iterable(map(_rows, found["rooms"])),
        styles={"paused": "yellow", "draining": "yellow"},
    )
)
@pass_client
def list_rooms(client: Client) -> Any:
    """List rooms and their sub-queues."""
    return client.request("GET", _path())


@rooms.command()
@click.argument("room")
@pass_client
def show(client: Client, room: str) -> None:
    """Everything about one room, as JSON."""
    click.echo(json.dumps(client.rooms.get(room), indent=2))


@rooms.command("set")
@click.argument("room")
@click.argument("changes", nargs=-1, required=True, metavar="SETTING=VALUE…")
@pass_client
def set_(client: Client, room: str, changes: tuple[str, ...]) -> None:
    """Change settings of a running room; all replicas follow within two seconds.

    A value is JSON or text; "null" resets to the configured value.
    """
    body = {}
    if wrong := [change for change in changes if "=" not in change]:
        hint = "write SETTING=VALUE, such as total_active_users=200"
        fail([f"{change}: {hint}" for change in wrong])
    for change in changes:
        name, _, text = change.partition("=")
        try:
            body[name] = json.loads(text)
        except ValueError:
            body[name] = text
    now = client.rooms.update(room, **body)
    for name in body:
        click.echo(f"{name} = {json.dumps(now['settings'][name])}")


@rooms.command()
@click.argument("room")
@pass_client
def pause(client: Client, room: str) -> None:
    """Let nobody in: newcomers queue, those inside stay."""
    _report(client.rooms.pause(room))


@rooms.command()
@click.argument("room")
@pass_client
def drain(client: Client, room: str) -> None:
    """Let in the visitors who wait; nobody new joins the queue."""
    _report(client.rooms.drain(room))


@rooms.command()
@click.argument("room")
@pass_client
def resume(client: Client, room: str) -> None:
    """Take back a pause or a drain."""
    _report(client.rooms.resume(room))


def _report(room: Room) -> None:
    people = f"{room['waiting']} waiting, {room['active']} inside"
    click.echo(f"{room['room']} is {room['mode']}: {people}")


@rooms.command()
@click.argument("names", nargs=-1, metavar="[ROOM]…")
@click.option(
    "--every", type=click.FloatRange(0.2, 3600), default=2, show_default=True, metavar="SECONDS"
)
@click.option(
    "--times", type=click.IntRange(1), metavar="N", help="Stop after N looks; otherwise at Ctrl-C."
)
@pass_client
def watch(client: Client, names: tuple[str, ...], every: float, times: int | None) -> None:
    """List rooms and their sub-queues again and again; all rooms unless you name some."""
    from waitroom import WaitroomError  # noqa: PLC0415 - the other commands start faster

    seen: dict[str, tuple[float, int]] = {}
    heads = ("room", "mode", "waiting", "inside", "cap", "wait", "time", "in/min")
    click.echo(_WATCH_ROW.format(*heads))
    for look in itertools.count(1):
        try:
            _look(client, names, seen)
        except WaitroomError as error:
            if look == 1:
                raise
            click.echo(explain(error), err=True)
        if look == times:
            return
        time.sleep(every)


def _look(client: Client, names: tuple[str, ...], seen: dict[str, tuple[float, int]]) -> None:
    """`seen`: by room when the last look was (monotonic s), and how many had been let in."""
    for room in [client.rooms.get(name) for name in names] if names else client.rooms.list():
        name, now_s, admitted = room["room"], time.monotonic(), room["counters"].get("admitted", 0)
        then_s, before = seen.get(name, (now_s, admitted))
        rate = f"{60 * (admitted - before) / (now_s - then_s):.0f}" if now_s > then_s else ""
        seen[name] = now_s, admitted
        first, *others = _rows(room)
        clock = f"{datetime.now():%H:%M:%S}"  # noqa: DTZ005 - the clock on the wall
        click.echo(_WATCH_ROW.format(*first, clock, rate))
        for row in others:
            click.echo(_WATCH_ROW.format(*row, "", ""))


def _rows(room: Room) -> Iterator[tuple[object, ...]]:
    """The room and then its sub-queues: name, mode, waiting, inside, cap, wait."""
    wait, cap = (
        f"{_wait(room['wait_seconds'])}{_phase(room)}",
        room["settings"]["total_active_users"],
    )
    yield room["room"], room["mode"], room["waiting"], room["active"], cap, wait
    for line in room["lines"]:
        yield f"  {line['line']}", "", line["waiting"], "", "", _wait(line["wait_seconds"])


@rooms.command(context_settings=ANY_ID)
@click.argument("room")
@click.argument("visitor")
@pass_client
def find(client: Client, room: str, visitor: str) -> None:
    """Say where one visitor is: waiting, called, inside, revoked or unknown."""
    found = client.rooms.find(room, visitor)
    place = f" at position {found['position']}" if found["position"] else ""
    if found["line"]:
        place = f" in sub-queue {found['line']} at position {found['line_position']}"
    since, until = found["revoked_at_ms"], found["ends_at_ms"]
    times = f" since {iso(since)}" if since else f" until {iso(until)}" if until else ""
    click.echo(f"{visitor} is {found['state']}{place}{times}")


@rooms.command()
@click.argument("room")
@click.confirmation_option(prompt="Everybody in the queue loses their place. Sure?")
@pass_client
def reset(client: Client, room: str) -> None:
    """Empty a room's queue; those inside stay."""
    click.echo(f"{client.rooms.reset(room)} place(s) removed")


@rooms.command(context_settings=ANY_ID)
@click.argument("room")
@click.argument("visitor")
@pass_client
def release(client: Client, room: str, visitor: str) -> None:
    """End one visitor's session or place."""
    client.rooms.release(room, visitor)
    click.echo(f"{visitor} released")


@rooms.command(context_settings=ANY_ID)
@click.argument("room")
@click.argument("visitor")
@click.argument("where", required=False, metavar="[head|back|POSITION]")
@click.option("--class", "class_name", metavar="NAME", help="Another class, and its place.")
@click.option("--no-class", is_flag=True, help="The place of somebody without a class.")
@click.option("--why", default="", metavar="TEXT", help="For the log.")
@pass_client
def move(  # noqa: PLR0913, PLR0917 - one for each option
    client: Client,
    room: str,
    visitor: str,
    where: str | None,
    class_name: str | None,
    no_class: bool,
    why: str,
) -> None:
    """Move a waiting visitor: to the head, to a position (1 is the head), or back to where they
    were before the first move. Or give them another class."""
    if sum((where is not None, class_name is not None, no_class)) != 1:
        raise click.UsageError("say either head, back, a position, --class NAME or --no-class")
    if where is None:
        moved = client.rooms.set_class(room, visitor, class_name, why=why)
    elif where in {"head", "back"} or (where.isascii() and where.isdigit()):
        to = int(where[:20]) if where.isdigit() else where
        moved = client.rooms.move(room, visitor, to, why=why)
    else:
        raise click.UsageError(f"{where}: say head, back or a whole number from 1 on")
    click.echo(f"{visitor} is at position {moved}")


def _acts(found: dict[str, Any]) -> None:
    rows = ((iso(act["at"]), *(act[name] for name in _ACT[1:])) for act in found["log"])
    table(_ACT, rows)


@rooms.command()
@click.argument("room")
@printed(_acts)
@pass_client
def log(client: Client, room: str) -> Any:
    """What operators did, latest first."""
    return client.request("GET", _path(room, "log"))


def _path(*parts: str) -> str:
    return "/".join(["/admin/rooms", *(quote(part, safe="") for part in parts)])


def _phase(room: Room) -> str:
    """Nothing where the room is open, by its events or without any."""
    if room["phase"] == "open":
        return ""
    about = room["event"] or (room["coming"] and f"next: {room['coming']}")
    return f"  {room['phase']}" + (f" ({about})" if about else "")


def _wait(seconds: int | None) -> str:
    if seconds is None:
        return "unknown"
    return f"{seconds} s" if seconds < 120 else f"{seconds // 60} min"
