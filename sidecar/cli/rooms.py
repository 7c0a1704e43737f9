"""waitroom rooms: look at rooms and change them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from sidecar.base.clock import iso
from sidecar.cli.common import CONFIG, call, fail, load_settings

if TYPE_CHECKING:
    from sidecar.base.settings import Settings


@click.group()
@CONFIG
@click.pass_context
def rooms(context: click.Context, path: str | None) -> None:
    """Look at rooms and change them, through a replica's ops listener."""
    context.obj = load_settings(path)


@rooms.command("list")
@click.pass_obj
def list_rooms(settings: Settings) -> None:
    """One line a room."""
    found = call(settings, "GET", "/admin/rooms")["rooms"]
    click.echo(f"{'room':<20} {'waiting':>9} {'inside':>9} {'cap':>9}  wait")
    for room in found:
        cap = room["settings"]["total_active_users"]
        click.echo(f"{room['room']:<20} {room['waiting']:>9} {room['active']:>9} {cap:>9}  "
                   f"{_wait(room['wait_seconds'])}")  # fmt: skip


@rooms.command()
@click.argument("room")
@click.pass_obj
def show(settings: Settings, room: str) -> None:
    """Everything about one room, as JSON."""
    click.echo(json.dumps(call(settings, "GET", f"/admin/rooms/{room}"), indent=2))


@rooms.command("set")
@click.argument("room")
@click.argument("changes", nargs=-1, required=True, metavar="SETTING=VALUE…")
@click.pass_obj
def set_(settings: Settings, room: str, changes: tuple[str, ...]) -> None:
    """Change settings of a running room; all replicas follow within two seconds.

    A value is JSON or text; "null" goes back to the file's value.
    """
    body = {}
    for change in changes:
        name, equals, text = change.partition("=")
        if not equals:
            fail([f"{change}: write SETTING=VALUE, such as total_active_users=200"])
        try:
            body[name] = json.loads(text)
        except ValueError:
            body[name] = text
    now = call(settings, "PATCH", f"/admin/rooms/{room}", body)
    for name in body:
        click.echo(f"{name} = {json.dumps(now['settings'][name])}")


@rooms.command()
@click.argument("room")
@click.confirmation_option(prompt="Everybody in line loses their place. Sure?")
@click.pass_obj
def reset(settings: Settings, room: str) -> None:
    """Empty a room's line; who is inside stays."""
    removed = call(settings, "POST", f"/admin/rooms/{room}/reset")["removed"]
    click.echo(f"{removed} place(s) removed")


@rooms.command()
@click.argument("room")
@click.argument("visitor")
@click.pass_obj
def release(settings: Settings, room: str, visitor: str) -> None:
    """End one visitor's session or place."""
    call(settings, "POST", f"/admin/rooms/{room}/visitors/{visitor}/release")
    click.echo(f"{visitor} released")


@rooms.command()
@click.argument("room")
@click.argument("visitor")
@click.argument("position", type=click.IntRange(1))
@click.pass_obj
def move(settings: Settings, room: str, visitor: str, position: int) -> None:
    """Take somebody in line to another position; 1 is the head."""
    path = f"/admin/rooms/{room}/visitors/{visitor}/move"
    moved = call(settings, "POST", path, {"position": position})["position"]
    click.echo(f"{visitor} is at position {moved}")


@rooms.command()
@click.argument("room")
@click.pass_obj
def log(settings: Settings, room: str) -> None:
    """What operators did, latest first."""
    for act in call(settings, "GET", f"/admin/rooms/{room}/log")["log"]:
        what = " ".join(part for part in (act["what"], act["visitor"], act["detail"]) if part)
        click.echo(f"{iso(act['at'])}  {act['by']}  {what}")


def _wait(seconds: int | None) -> str:
    if seconds is None:
        return "unknown"
    return f"{seconds} s" if seconds < 120 else f"{seconds // 60} min"
