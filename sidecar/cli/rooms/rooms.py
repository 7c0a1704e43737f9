"""waitroom rooms: look at rooms and change them."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from sidecar.cli.connection import ReplicaGroup, pass_client
from sidecar.cli.printing import print_json, printed, table
from sidecar.cli.rooms.figures import rows_of
from sidecar.cli.rooms.openings import show_events
from sidecar.cli.rooms.transfer import export_room, import_room
from sidecar.cli.rooms.watch import watch
from sidecar.kit.clock import iso
from sidecar.visitors.visitor_number import visitor_number

if TYPE_CHECKING:
    from waitroom import Client, Room, Visitor

#: A visitor's id may begin with a hyphen and is no option then.
ANY_ID = {"ignore_unknown_options": True, "help_option_names": ["--help"]}
_ACT = ("at", "by", "what", "visitor", "detail")


@click.group(cls=ReplicaGroup)
def rooms() -> None:
    """Look at rooms and change them, through a replica's ops listener."""


rooms.add_command(export_room)
rooms.add_command(import_room)
rooms.add_command(show_events)
rooms.add_command(watch)


@rooms.command("list")
@printed(
    lambda found: table(
        ("room", "mode", "waiting", "inside", "cap", "wait"),
        itertools.chain.from_iterable(map(rows_of, found["rooms"])),
        styles={"paused": "yellow", "draining": "yellow"},
    )
)
@pass_client
def list_rooms(client: Client) -> Any:
    """List rooms and their sub-queues."""
    return client.request("GET", _path())


@rooms.command()
@click.argument("room")
@printed(print_json)
@pass_client
def show(client: Client, room: str) -> Any:
    """Everything about one room, as JSON."""
    return client.rooms.get(room)


def _settings(room: Room) -> None:
    for change in click.get_current_context().params["changes"]:
        name = change.partition("=")[0]
        click.echo(f"{name} = {json.dumps(room['settings'][name])}")


@rooms.command("set")
@click.argument("room")
@click.argument("changes", nargs=-1, required=True, metavar="SETTING=VALUE…")
@printed(_settings)
@pass_client
def set_(client: Client, room: str, changes: tuple[str, ...]) -> Any:
    """Change settings of a running room; all replicas follow within two seconds.

    A value is JSON or text; "null" resets to the configured value.
    """
    body = {}
    if wrong := [change for change in changes if "=" not in change]:
        hint = "write SETTING=VALUE, such as total_active_users=200"
        raise click.UsageError("\n".join(f"{change}: {hint}" for change in wrong))
    for change in changes:
        name, _, text = change.partition("=")
        try:
            body[name] = json.loads(text)
        except ValueError:
            body[name] = text
    return client.rooms.update(room, **body)


def _report(room: Room) -> None:
    people = f"{room['waiting']} waiting, {room['active']} inside"
    click.echo(f"{room['room']} is {room['mode']}: {people}")


@rooms.command()
@click.argument("room")
@printed(_report)
@pass_client
def pause(client: Client, room: str) -> Any:
    """Let nobody in: newcomers queue, those inside stay."""
    return client.rooms.pause(room)


@rooms.command()
@click.argument("room")
@printed(_report)
@pass_client
def drain(client: Client, room: str) -> Any:
    """Let in the visitors who wait; nobody new joins the queue."""
    return client.rooms.drain(room)


@rooms.command()
@click.argument("room")
@printed(_report)
@pass_client
def resume(client: Client, room: str) -> Any:
    """Take back a pause or a drain."""
    return client.rooms.resume(room)


def _place(found: Visitor) -> None:
    place = f" at position {found['position']}" if found["position"] else ""
    if found["line"]:
        place = f" in sub-queue {found['line']} at position {found['line_position']}"
    since, until = found["revoked_at_ms"], found["ends_at_ms"]
    times = f" since {iso(since)}" if since else f" until {iso(until)}" if until else ""
    number = visitor_number(found["visitor"])
    click.echo(f"{found['visitor']} ({number}) is {found['state']}{place}{times}")


@rooms.command(context_settings=ANY_ID)
@click.argument("room")
@click.argument("visitor")
@printed(_place)
@pass_client
def find(client: Client, room: str, visitor: str) -> Any:
    """Say where one visitor is: waiting, called, inside, revoked or unknown. VISITOR is an id, or
    the number on the waiting page."""
    return client.rooms.find(room, visitor)


@rooms.command()
@click.argument("room")
@click.confirmation_option(prompt="Everybody in the queue loses their place. Sure?")
@printed(lambda done: click.echo(f"{done['removed']} place(s) removed"))
@pass_client
def reset(client: Client, room: str) -> Any:
    """Empty a room's queue; those inside stay."""
    return client.request("POST", _path(room, "reset"))


@rooms.command(context_settings=ANY_ID)
@click.argument("room")
@click.argument("visitor")
@printed(lambda done: click.echo(f"{done['visitor']} released"))
@pass_client
def release(client: Client, room: str, visitor: str) -> Any:
    """End one visitor's session or place. VISITOR is an id, or the number on the waiting page."""
    return client.request("POST", _path(room, "visitors", visitor, "release"))


@rooms.command(context_settings=ANY_ID)
@click.argument("room")
@click.argument("visitor")
@click.argument("where", required=False, metavar="[head|back|POSITION]")
@click.option("--class", "class_name", metavar="NAME", help="Another class, and its place.")
@click.option("--no-class", is_flag=True, help="The place of somebody without a class.")
@click.option("--why", default="", metavar="TEXT", help="For the log.")
@printed(lambda done: click.echo(f"{done['visitor']} is at position {done['position']}"))
@pass_client
def move(client: Client, /, room: str, visitor: str, why: str, **to: Any) -> Any:
    """Move a waiting visitor: to the head, to a position (1 is the head), or back to where they
    were before the first move. Or give them another class. VISITOR is an id, or the number on the
    waiting page."""
    where, class_name = to["where"], to["class_name"]
    if sum((where is not None, class_name is not None, to["no_class"])) != 1:
        raise click.UsageError("say either head, back, a position, --class NAME or --no-class")
    body: dict[str, Any] = {"why": why} if why else {}
    if where is None:
        body["class"] = class_name
    elif where in {"head", "back"} or (where.isascii() and where.isdigit()):
        body["position"] = int(where[:20]) if where.isdigit() else where
    else:
        raise click.UsageError(f"{where}: say head, back or a whole number from 1 on")
    return client.request("POST", _path(room, "visitors", visitor, "move"), body)


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
