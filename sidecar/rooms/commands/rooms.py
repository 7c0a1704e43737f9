"""waitroom rooms: look at rooms and change them."""

from __future__ import annotations

import itertools
import json
import time
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from sidecar.cli.common import call, fail
from sidecar.cli.connection import ReplicaGroup
from sidecar.kit.clock import iso
from sidecar.rooms.commands.openings import show_events
from sidecar.rooms.commands.transfer import export_room, import_room

if TYPE_CHECKING:
    from sidecar.cli.connection import Connection

#: A visitor's id may begin with a hyphen and is no option then.
ANY_ID = {"ignore_unknown_options": True}


@click.group(cls=ReplicaGroup)
def rooms() -> None:
    """Look at rooms and change them, through a replica's ops listener."""


rooms.add_command(export_room)
rooms.add_command(import_room)
rooms.add_command(show_events)


@rooms.command("list")
@click.pass_obj
def list_rooms(connection: Connection) -> None:
    """One line a room, and below it one for each of its lines."""
    found = call(connection, "GET", "/admin/rooms")["rooms"]
    click.echo(f"{'room':<20} {'waiting':>9} {'inside':>9} {'cap':>9}  wait")
    for room in found:
        cap = room["settings"]["total_active_users"]
        click.echo(f"{room['room']:<20} {room['waiting']:>9} {room['active']:>9} {cap:>9}  "
                   f"{_wait(room['wait_seconds'])}{_phase(room)}")  # fmt: skip
        for line in room["lines"]:
            name = f"  {line['line']}"
            click.echo(f"{name:<20} {line['waiting']:>9} {'':>19}  {_wait(line['wait_seconds'])}")


@rooms.command()
@click.argument("room")
@click.pass_obj
def show(connection: Connection, room: str) -> None:
    """Everything about one room, as JSON."""
    click.echo(json.dumps(call(connection, "GET", f"/admin/rooms/{room}"), indent=2))


@rooms.command("set")
@click.argument("room")
@click.argument("changes", nargs=-1, required=True, metavar="SETTING=VALUE…")
@click.pass_obj
def set_(connection: Connection, room: str, changes: tuple[str, ...]) -> None:
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
    now = call(connection, "PATCH", f"/admin/rooms/{room}", body)
    for name in body:
        click.echo(f"{name} = {json.dumps(now['settings'][name])}")


@rooms.command()
@click.argument("room")
@click.pass_obj
def pause(connection: Connection, room: str) -> None:
    """Let nobody in: newcomers queue, those inside stay."""
    _act(connection, room, "pause")


@rooms.command()
@click.argument("room")
@click.pass_obj
def drain(connection: Connection, room: str) -> None:
    """Let in those who wait; nobody new joins the queue."""
    _act(connection, room, "drain")


@rooms.command()
@click.argument("room")
@click.pass_obj
def resume(connection: Connection, room: str) -> None:
    """Take back a pause or a drain."""
    _act(connection, room, "resume")


def _act(connection: Connection, room: str, act: str) -> None:
    now = call(connection, "POST", f"/admin/rooms/{room}/{act}")
    click.echo(f"{room} is {now['mode']}: {now['waiting']} waiting, {now['active']} inside")


@rooms.command()
@click.argument("names", nargs=-1, metavar="[ROOM]…")
@click.option("--every", type=click.FloatRange(0.2, 3600), default=2, show_default=True,
              metavar="SECONDS")  # fmt: skip
@click.option("--times", type=click.IntRange(1), default=None, metavar="N",
              help="Stop after N looks; otherwise at Ctrl-C.")  # fmt: skip
@click.pass_obj
def watch(connection: Connection, names: tuple[str, ...], every: float, times: int | None) -> None:
    """One line a room, and one for each of its lines, again and again; all rooms where none is
    named."""
    seen: dict[str, tuple[float, int]] = {}
    click.echo(f"{'time':<8} {'room':<20} {'mode':<8} {'waiting':>9} {'inside':>9} {'cap':>9} "
               f"{'in/min':>8}  wait")  # fmt: skip
    for look in itertools.count(1):
        try:
            _look(connection, names, seen)
        except click.ClickException as error:
            if look == 1:
                raise
            click.echo(error.format_message(), err=True)
        if look == times:
            return
        time.sleep(every)


def _look(
    connection: Connection, names: tuple[str, ...], seen: dict[str, tuple[float, int]]
) -> None:
    """`seen`: by room when the last look was (monotonic s), and how many had been let in."""
    paths = [f"/admin/rooms/{name}" for name in names]
    found = ([call(connection, "GET", path) for path in paths] if paths
             else call(connection, "GET", "/admin/rooms")["rooms"])  # fmt: skip
    for room in found:
        name, now_s, admitted = room["room"], time.monotonic(), room["counters"].get("admitted", 0)
        then_s, before = seen.get(name, (now_s, admitted))
        rate = f"{60 * (admitted - before) / (now_s - then_s):.0f}" if now_s > then_s else ""
        seen[name] = now_s, admitted
        click.echo(
            f"{datetime.now():%H:%M:%S} {name:<20} {room['mode']:<8} {room['waiting']:>9} "  # noqa: DTZ005 - the clock on the wall
            f"{room['active']:>9} {room['settings']['total_active_users']:>9} {rate:>8}  "
            f"{_wait(room['wait_seconds'])}{_phase(room)}"
        )
        for line in room["lines"]:
            of = f"  {line['line']}"
            click.echo(
                f"{'':8} {of:<20} {'':8} {line['waiting']:>9} {'':28}  "
                f"{_wait(line['wait_seconds'])}"
            )


@rooms.command(context_settings=ANY_ID)
@click.argument("room")
@click.argument("visitor")
@click.pass_obj
def find(connection: Connection, room: str, visitor: str) -> None:
    """Say where one visitor is: waiting, called, inside, revoked or unknown."""
    found = call(connection, "GET", f"/admin/rooms/{room}/visitors/{visitor}")
    place = f" at position {found['position']}" if found["position"] else ""
    if found["line"]:
        place = f" in sub-queue {found['line']} at position {found['line_position']}"
    since, until = found["revoked_at_ms"], found["ends_at_ms"]
    times = f" since {iso(since)}" if since else f" until {iso(until)}" if until else ""
    click.echo(f"{visitor} is {found['state']}{place}{times}")


@rooms.command()
@click.argument("room")
@click.confirmation_option(prompt="Everybody in the queue loses their place. Sure?")
@click.pass_obj
def reset(connection: Connection, room: str) -> None:
    """Empty a room's line; who is inside stays."""
    removed = call(connection, "POST", f"/admin/rooms/{room}/reset")["removed"]
    click.echo(f"{removed} place(s) removed")


@rooms.command(context_settings=ANY_ID)
@click.argument("room")
@click.argument("visitor")
@click.pass_obj
def release(connection: Connection, room: str, visitor: str) -> None:
    """End one visitor's session or place."""
    call(connection, "POST", f"/admin/rooms/{room}/visitors/{visitor}/release")
    click.echo(f"{visitor} released")


@rooms.command(context_settings=ANY_ID)
@click.argument("room")
@click.argument("visitor")
@click.argument("where", required=False, metavar="[head|back|POSITION]")
@click.option("--class", "class_name", metavar="NAME", help="Another class, and its place.")
@click.option("--no-class", is_flag=True, help="The place of somebody without a class.")
@click.option("--why", default="", metavar="TEXT", help="For the log.")
@click.pass_obj
def move(  # noqa: PLR0913, PLR0917 - one for each option
    connection: Connection,
    room: str,
    visitor: str,
    where: str | None,
    class_name: str | None,
    no_class: bool,
    why: str,
) -> None:
    """Take somebody to another position in their line: to the head, to a position (1 is the head),
    or back to where they were before anybody moved them. Or give them another class."""
    if sum((where is not None, class_name is not None, no_class)) != 1:
        raise click.UsageError("say either head, back, a position, --class NAME or --no-class")
    body: dict[str, Any] = {"class": class_name}
    if where is not None:
        if where not in {"head", "back"} and not (where.isascii() and where.isdigit()):
            raise click.UsageError(f"{where}: say head, back or a whole number from 1 on")
        body = {"position": int(where[:20]) if where.isdigit() else where}
    if why:
        body["why"] = why
    path = f"/admin/rooms/{room}/visitors/{visitor}/move"
    moved = call(connection, "POST", path, body)["position"]
    click.echo(f"{visitor} is at position {moved}")


@rooms.command()
@click.argument("room")
@click.pass_obj
def log(connection: Connection, room: str) -> None:
    """What operators did, latest first."""
    for act in call(connection, "GET", f"/admin/rooms/{room}/log")["log"]:
        what = " ".join(part for part in (act["what"], act["visitor"], act["detail"]) if part)
        click.echo(f"{iso(act['at'])}  {act['by']}  {what}")


def _phase(room: dict[str, Any]) -> str:
    """Nothing where the room is open, by its events or without any."""
    if room["phase"] == "open":
        return ""
    about = room["event"] or (room["coming"] and f"next: {room['coming']}")
    return f"  {room['phase']}" + (f" ({about})" if about else "")


def _wait(seconds: int | None) -> str:
    if seconds is None:
        return "unknown"
    return f"{seconds} s" if seconds < 120 else f"{seconds // 60} min"
