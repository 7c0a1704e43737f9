"""The commands `waitroom rooms …`, which show rooms and change them."""

import functools
import itertools
import json
import time
from typing import Any

import click

from sidecar.cli.output import print_acts, print_changes, print_json, print_table
from sidecar.cli.parsing import parse_value, read_pairs
from sidecar.cli.replica_api import Client, Visitor, build_api_path
from sidecar.cli.replica_client import ANY_TEXT, ReplicaGroup
from sidecar.cli.rooms.changed import format_cap, format_changes
from sidecar.cli.rooms.events import format_document
from sidecar.cli.rooms.export_file import export_room, import_room
from sidecar.cli.rooms.watch import STATE_STYLES, format_rows, format_state, watch
from sidecar.kit.clock import iso
from sidecar.visitors.visitor_number import visitor_number

_ROOMS = "/admin/rooms"


@click.group(cls=ReplicaGroup)
def rooms() -> None:
    """Show rooms and change them."""


for command in (export_room, import_room, watch):
    rooms.add_command(command)


def _print_rooms(document: dict[str, Any]) -> None:
    rows = []
    for room in document["rooms"]:
        [*figures, _cap, wait], *lines = format_rows(room)
        rows += [(*figures, format_cap(room), wait), *lines]
    headings = "room", "state", "waiting", "inside", "cap", "wait"
    print_table(headings, rows, styles=STATE_STYLES)
    for line in itertools.chain.from_iterable(map(format_changes, document["rooms"])):
        click.echo(line, err=True)  # standard output has only the table


@rooms.reply_command(_print_rooms, name="list")
def list_rooms(client: Client) -> Any:
    """List rooms and their sub-queues, and the settings that were changed at run time."""
    return client.request("GET", _ROOMS)


@rooms.reply_command(print_json, "room")
def show(client: Client, room: str) -> Any:
    """Show everything about a room as JSON."""
    return client.rooms.get(room)


_WHY = click.option("--why", default="", metavar="TEXT", help="The reason, which is logged.")


@rooms.reply_command(print_changes, "room", name="set")
@click.argument("changes", nargs=-1, required=True, metavar="SETTING=VALUE…")
@_WHY
def set_(client: Client, room: str, changes: tuple[str, ...], why: str) -> Any:
    """Change settings of a running room. All replicas apply the changes within two seconds.

    A value is JSON or text; null resets a setting to its configured value.
    """
    pairs = read_pairs(changes, "SETTING=VALUE, such as total_active_users=200")
    body = {name: parse_value(text) for name, text in pairs.items()}
    return client.request("PATCH", build_api_path(_ROOMS, room), body, query=_make_query(why))


def _make_query(why: str) -> dict[str, str]:
    return {"why": why} if why else {}


def _print_message(document: Any) -> None:
    shown = document["settings"]["message"]
    click.echo(f"message = {json.dumps(shown, ensure_ascii=False)}")


@rooms.reply_command(_print_message, "room")
@click.argument("text", required=False)
@click.option(
    "--in",
    "translations",
    multiple=True,
    metavar="LANGUAGE=TEXT",
    help="The text for visitors of one language, such as de=… (repeatable).",
)
@click.option("--for", "length", metavar="TIME", help="Clear the message after TIME, such as 2h.")
@click.option("--clear", is_flag=True, help="Show the configured message again.")
def message(client: Client, room: str, text: str | None, **options: Any) -> Any:
    """Show a message to the waiting visitors. TEXT is for languages not given with --in."""
    table = {} if text is None else {"text": text}
    table |= read_pairs(options["translations"], "LANGUAGE=TEXT after --in, such as de=…")
    if bool(table) == options["clear"]:
        raise click.UsageError("say either a text or --clear")
    if options["length"] is not None:
        table["for"] = options["length"]
    is_plain = table.keys() == {"text"}
    return client.rooms.update(room, message=None if not table else text if is_plain else table)


def _print_mode(room: Any) -> None:
    from sidecar.rooms.messages import drop_if_ended, get_text  # noqa: PLC0415 - imports pydantic

    people = f"{room['waiting']} waiting, {room['active']} inside"
    click.echo(f"{room['room']} is {format_state(room)}: {people}")
    shown = get_text(drop_if_ended(room["changed"].get("message"), time.time_ns() // 1_000_000))
    if room["mode"] != "paused" and shown:
        hint = f"take it away: waitroom rooms message {room['room']} --clear"
        click.echo(f'The message "{shown}" is still shown; {hint}')


def _change_mode(client: Client, room: str, why: str) -> Any:
    verb = str(click.get_current_context().info_name)
    return client.request("POST", build_api_path(_ROOMS, room, verb), query=_make_query(why))


@rooms.reply_command(_print_mode, "room")
@click.argument("seconds", type=click.IntRange(1, 86_400), default=300)
@_WHY
def hold(client: Client, room: str, seconds: int, why: str) -> Any:
    """Call nobody for SECONDS (default: 300), then resume gradually."""
    query = {"seconds": str(seconds), **_make_query(why)}
    return client.request("POST", build_api_path(_ROOMS, room, "hold"), query=query)


@rooms.reply_command(_print_mode, "room")
@click.option("--clear-message", is_flag=True, help="Also clear the message.")
def resume(client: Client, room: str, *, clear_message: bool) -> Any:
    """End a pause or a drain."""
    query = {"clear_message": "true"} if clear_message else {}
    return client.request("POST", build_api_path(_ROOMS, room, "resume"), query=query)


for verb, help_text in {
    "pause": "Admit nobody: newcomers join the queue, and visitors inside stay.",
    "drain": "Admit the waiting visitors, but let nobody else join the queue.",
}.items():
    change_mode = _WHY(functools.partial(_change_mode))
    rooms.reply_command(_print_mode, "room", name=verb, help=help_text)(change_mode)


def _print_place(visitor: Visitor) -> None:
    place = f" at position {visitor['position']}" if visitor["position"] else ""
    if visitor["line"]:
        place = f" in sub-queue {visitor['line']} at position {visitor['line_position']}"
    since, until = visitor["revoked_at_ms"], visitor["ends_at_ms"]
    times = f" since {iso(since)}" if since else f" until {iso(until)}" if until else ""
    number = visitor_number(visitor["visitor"])
    click.echo(f"{visitor['visitor']} ({number}) is {visitor['state']}{place}{times}")


@rooms.reply_command(_print_place, "room", "visitor", context_settings=ANY_TEXT)
def find(client: Client, room: str, visitor: str) -> Any:
    """Show where a visitor is: waiting, called, inside, revoked or unknown. VISITOR is a visitor's
    id, or the visitor number on the waiting page."""
    return client.rooms.find(room, visitor)


@rooms.reply_command("{removed} place(s) removed", "room")
@click.confirmation_option(prompt="Everybody in the queue loses their place. Sure?")
def reset(client: Client, room: str) -> Any:
    """Empty a room's queue. Visitors inside stay."""
    return client.request("POST", build_api_path(_ROOMS, room, "reset"))


@rooms.reply_command("{room} learns its site anew", "room")
def reset_learned(client: Client, room: str) -> Any:
    """Forget what an adaptive room has learned, so that its ceiling starts at `min` again."""
    return client.request("POST", build_api_path(_ROOMS, room, "reset-learned"))


@rooms.reply_command(
    "{visitor} released",
    "room",
    "visitor",
    context_settings=ANY_TEXT,
)
def release(client: Client, room: str, visitor: str) -> Any:
    """End a visitor's session or place. VISITOR is an id, or the number on the waiting page."""
    return client.request("POST", build_api_path(_ROOMS, room, "visitors", visitor, "release"))


@rooms.reply_command(
    "{visitor} is at position {position}",
    "room",
    "visitor",
    context_settings=ANY_TEXT,
)
@click.argument("where", required=False, metavar="[head|back|POSITION]")
@click.option("--class", "class_name", metavar="NAME", help="Give the visitor this class.")
@click.option(
    "--no-class",
    is_flag=True,
    help="Remove the visitor's class.",
)
@_WHY
def move(client: Client, /, room: str, visitor: str, why: str, **options: Any) -> Any:
    """Move a waiting visitor to the head of the queue, to a position (1 is the head), back to the
    place held before the first move, or to the place that the visitor has in another class. VISITOR
    is an id, or the number on the waiting page."""
    where, class_name = options["where"], options["class_name"]
    if sum((where is not None, class_name is not None, options["no_class"])) != 1:
        raise click.UsageError("say either head, back, a position, --class NAME or --no-class")
    body: dict[str, Any] = {"why": why} if why else {}
    if where is None:
        body["class"] = class_name
    elif where in {"head", "back"} or (where.isascii() and where.isdigit()):
        body["position"] = int(where[:20]) if where.isdigit() else where
    else:
        raise click.UsageError(f"{where}: say head, back or a whole number from 1 on")
    return client.request("POST", build_api_path(_ROOMS, room, "visitors", visitor, "move"), body)


def _print_log(document: dict[str, Any]) -> None:
    rooms = () if "room" in document else ("room",)
    print_acts(({**entry, "at": iso(entry["at"])} for entry in document["log"]), *rooms)


@rooms.reply_command(_print_log)
@click.argument("room", required=False)
def log(client: Client, room: str | None) -> Any:
    """List what operators did in ROOM or in all rooms, latest first."""
    if room is not None:
        return client.request("GET", build_api_path(_ROOMS, room, "log"))
    names = [each["room"] for each in client.rooms.list()]
    log = [{"room": name, **entry} for name in names for entry in client.rooms.log(name)]
    return {"log": sorted(log, key=lambda entry: entry["at"], reverse=True)}


@rooms.reply_command(lambda document: click.echo(format_document(document)), "room")
@click.option(
    "--at",
    metavar="TIME",
    help='Show the state at this time (default: now): "2026-12-01 10:05", in the time zone '
    "of the events, or a time with an offset.",
)
def events(client: Client, room: str, at: str | None) -> Any:
    """Show what a room's events will do and when, and point out likely mistakes."""
    query = {} if at is None else {"at": at}
    return client.request("GET", build_api_path(_ROOMS, room, "events"), query=query)
