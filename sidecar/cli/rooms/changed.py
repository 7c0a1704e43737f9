"""Formats the settings that were changed at run time, beside the values of the settings file."""

import json
from collections.abc import Iterator
from typing import Any

import click

from sidecar.cli.replica_api import Room
from sidecar.cli.replica_client import ReplicaOptions
from sidecar.kit.clock import iso

#: The maximum length of a value that is shown in full.
_MAX_CHARACTERS = 100
#: How many seconds a command waits for a replica if it can also work without one.
_TIMEOUT_S = 2.0


def describe_changes(room: Room) -> Iterator[tuple[str, str]]:
    """Yield two texts for each setting of a room that differs from the settings file: its value
    beside the file's, and the command that undoes the change."""
    name = room["room"]
    for setting, value in room["changed"].items():
        values = _format_value(value) + _format_configured(room, setting)
        yield f"{name}: {setting}: {values}", f"waitroom rooms set {name} {setting}=null"


def format_changes(room: Room) -> Iterator[str]:
    """Yield a line for each changed setting of a room."""
    for what, back in describe_changes(room):
        yield f"{what} (changed at run time; take it back: {back})"


def find_cap(room: Room) -> int:
    """Return the cap in force: an adaptive room's ceiling, if that is lower."""
    cap: int = room["settings"]["total_active_users"]
    site = room.get("site")  # a replica of an older version sends no `site`
    is_on = site and room["settings"]["adaptive"]["mode"] == "on"
    return min(cap, int(site["ceiling"])) if site and is_on else cap


def format_cap(room: Room) -> str | int:
    """Return the cap, with the file's value if it was changed at run time. For an adaptive room,
    return its ceiling, its cap and the state of its site, such as "300 (of 500) healthy"."""
    name, site = "total_active_users", room.get("site")
    cap: int = room["settings"][name]
    more = _format_configured(room, name) if room["changed"].get(name) == cap else ""
    if site:
        in_force = find_cap(room)
        of_cap = f" (of {cap})" if in_force < cap else ""
        return f"{in_force}{of_cap} {site['state']}{more}"
    return f"{cap}{more}" if more else cap


def read_rooms(options: ReplicaOptions) -> list[Room]:
    """Return the rooms of the replica, or [] if it does not answer or no token is configured."""
    try:
        with options.client(timeout_s=_TIMEOUT_S) as client:
            return client.rooms.list()
    except click.ClickException:
        return []


def _format_configured(room: Room, setting: str) -> str:
    # A replica of an older version does not send configured values.
    configured = room.get("configured", {})
    return f", file: {_format_value(configured[setting])}" if setting in configured else ""


def _format_value(value: Any) -> str:
    if isinstance(value, dict) and value.get("until"):  # the end of a hold or a message
        value = value | {"until": iso(value["until"])}
    text = "not set" if value is None else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _MAX_CHARACTERS else f"{text[:_MAX_CHARACTERS]}…"
