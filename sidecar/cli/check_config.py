"""The command `waitroom check-config`, which prints all problems of a configuration."""

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from typing import Any

import click

from sidecar.cli.config import CONFIG, Settings, load_settings
from sidecar.cli.output import JSON, print_json
from sidecar.cli.replica_api import Room
from sidecar.cli.replica_client import ReplicaOptions
from sidecar.cli.rooms.changed import format_changes, read_rooms
from sidecar.cli.rooms.events import format_summary
from sidecar.kit.errors import InputError
from sidecar.kit.toml_lines import find_lines, locate
from sidecar.settings.file import find_file

#: The values that --no-secrets uses in place of the real secrets, by environment variable.
_PLACEHOLDER_SECRETS = {
    "WAITROOM_SECRET_KEYS": "a-key-that-stands-for-the-real-one-00000",
    "WAITROOM_ADMIN_TOKEN": "a-token-that-stands-for-the-real-one-00",
}


@click.command("check-config")
@CONFIG
@JSON
@click.option(
    "--no-secrets",
    is_flag=True,
    help="Do not require secret_keys and admin_token, for example in CI.",
)
def check_config(path: str | None, *, as_json: bool, no_secrets: bool) -> None:
    """Print every problem in the configuration, with its line number.

    Exit 1 if there is a problem. Warnings do not change the exit code. Warnings name settings that
    are valid but probably wrong, and changes to the file that a running replica has not yet read.
    """
    settings, problems = _try_load(path, no_secrets=no_secrets)
    warnings = settings.warnings if settings else []
    if settings and not no_secrets:
        warnings += _find_differences(settings, read_rooms(ReplicaOptions(path)))
    if as_json:
        print_json({"problems": problems, "warnings": warnings})
    else:
        for problem in problems:
            place = f"{problem['file']}:{problem['line']}: " if problem["line"] else ""
            click.echo(f"{place}{problem['message']}", err=True)
        if settings:
            click.echo(f"The configuration is right: {_format_contents(settings)}.")
        for warning in warnings:
            click.echo(f"warning: {warning}")
        for line in format_summary(settings, int(time.time() * 1000)) if settings else []:
            click.echo(line)
    sys.exit(1 if problems else 0)


def _try_load(
    path: str | None, *, no_secrets: bool
) -> "tuple[Settings | None, list[dict[str, Any]]]":
    """Load the settings. Return them and [], or None and the problems with their file and line."""
    environ = dict(os.environ)
    if no_secrets:
        secrets = {f"{name}{suffix}" for name in _PLACEHOLDER_SECRETS for suffix in ("", "_FILE")}
        environ = {name: value for name, value in environ.items() if name not in secrets}
        environ |= _PLACEHOLDER_SECRETS
    try:
        return load_settings(path, environ), []
    except InputError as error:
        file, lines = find_file(path), dict[str, int]()
        with contextlib.suppress(OSError, UnicodeDecodeError):  # the problems include this error
            lines = find_lines(file.read_text(encoding="utf-8")) if file else {}
        problems = [
            {"message": text, "file": str(file) if file else None, "line": locate(text, lines)}
            for text in error.problems
        ]
        return None, sorted(problems, key=lambda problem: problem["line"] or 0)


def _find_differences(settings: Settings, rooms: list[Room]) -> Iterator[str]:
    """Yield a line for each setting of a running room that differs from the settings file."""
    from sidecar.rooms.openings import EVENT_SETTINGS  # noqa: PLC0415 - imports pydantic

    if rooms and (new := settings.rooms.keys() - {room["room"] for room in rooms}):
        yield f"the replica does not have the new room(s) {', '.join(sorted(new))}: restart it"
    for room in rooms:
        file = settings.rooms.get(room["room"])
        if file is None:
            continue
        values = file.model_dump(mode="json")
        yield from format_changes({**room, "configured": values})
        # An event replaces some settings, so their values say nothing about the file.
        ignored = {*room["changed"], *(EVENT_SETTINGS if room["event"] else ())}
        running = room["settings"]
        names = [name for name in values.keys() & running.keys() if values[name] != running[name]]
        if unread := sorted(set(names) - ignored):
            yield f"{room['room']}: the replica has not read the new {', '.join(unread)}: reload it"


def _format_contents(settings: Settings) -> str:
    """Format the numbers and names of the rooms, leases, limits and targets in the settings."""
    kinds = (
        ("room", settings.rooms),
        ("lease", settings.leases),
        ("limit", settings.limits),
        ("target", settings.targets),
    )
    parts = [
        f"{len(named)} {kind}(s), {', '.join(sorted(named))}" for kind, named in kinds if named
    ]
    return "; ".join(parts) or "jobs, for targets that are made at run time"
