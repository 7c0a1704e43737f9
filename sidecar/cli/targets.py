"""The commands `waitroom targets …`, which show and change the APIs that jobs call."""

from pathlib import Path
from typing import Any

import click

from sidecar.cli.output import print_changes, print_json, print_table
from sidecar.cli.parsing import parse_value, read_pairs
from sidecar.cli.replica_api import Client, build_api_path
from sidecar.cli.replica_client import ReplicaGroup

_TARGETS = "/v1/targets"


@click.group(cls=ReplicaGroup)
def targets() -> None:
    """List and change the targets of jobs."""


def _format_row(target: dict[str, Any]) -> tuple[object, ...]:
    settings, mean_s = target["settings"], target["mean_seconds"]
    return (
        target["name"],
        target.get("state", ""),  # A replica of version 0.1.0 sends no state.
        target["waiting"] + target["later"],
        f"{target['running']} of {settings['concurrency']}",
        f"{settings['rate']} / {settings['window']:g} s" if settings["rate"] else "none",
        "" if mean_s is None else f"{mean_s:.3g} s",
        target["source"],
    )


def _print_targets(document: dict[str, Any]) -> None:
    headings = "target", "state", "waiting", "running", "rate", "a call", "settings"
    styles = {
        **dict.fromkeys(("paused", "trying", "held", "coming back"), "yellow"),
        **dict.fromkeys(("no worker", "failing"), "red"),
    }
    print_table(headings, map(_format_row, document["targets"]), styles=styles)


@targets.reply_command(_print_targets, name="list")
def list_targets(client: Client) -> Any:
    """List the targets."""
    return client.request("GET", _TARGETS)


@targets.reply_command(print_json, "name")
def show(client: Client, name: str) -> Any:
    """Show everything about a target as JSON, with secrets shown as ***."""
    return client.request("GET", build_api_path(_TARGETS, name))


@targets.reply_command(print_changes, "name", name="set")
@click.argument("changes", nargs=-1, required=True, metavar="SETTING=VALUE…")
def set_(client: Client, name: str, changes: tuple[str, ...]) -> Any:
    """Change settings of a target, or create a target. Replicas and workers apply the changes
    within two seconds.

    A value is JSON or text; null means no value, and @FILE reads the value, such as a secret, from
    a file. The changes override the settings file until you run waitroom targets unset.
    """
    pairs = read_pairs(changes, "SETTING=VALUE, such as concurrency=20")
    body = {setting: parse_value(_read_value(setting, text)) for setting, text in pairs.items()}
    return client.request("PATCH", build_api_path(_TARGETS, name), body)


def _read_value(setting: str, text: str) -> str:
    """Return the text of a value. If it is @FILE, read the text from the file."""
    if not text.startswith("@"):
        return text
    try:
        return Path(text[1:]).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"{setting}: {text[1:]} cannot be read: {error}") from None


def _print_unset_result(result: dict[str, Any]) -> None:
    name = click.get_current_context().params["name"]
    click.echo(f"{name} is as configured" if result["target"] else f"{name} is removed")


def _print_state(target: dict[str, Any]) -> None:
    state = "paused" if target["settings"]["paused"] else "running"
    waiting = target["waiting"] + target["later"]
    click.echo(f"{target['name']} is {state}: {waiting} waiting, {target['running']} under way")


@targets.reply_command(_print_unset_result, "name")
def unset(client: Client, name: str) -> Any:
    """Reset a target to its configured settings, or remove a target that is not configured."""
    return client.request("DELETE", build_api_path(_TARGETS, name))


@targets.reply_command(_print_state, "name")
def pause(client: Client, name: str) -> Any:
    """Stop calling a target: jobs wait, and you can submit more. Calls in progress continue."""
    return _set_paused(client, name, is_paused=True)


@targets.reply_command(_print_state, "name")
def resume(client: Client, name: str) -> Any:
    """End a pause."""
    return _set_paused(client, name, is_paused=False)


def _set_paused(client: Client, name: str, *, is_paused: bool) -> Any:
    # PATCH alone would create a target if the name is mistyped. GET fails instead.
    client.request("GET", build_api_path(_TARGETS, name))
    return client.request("PATCH", build_api_path(_TARGETS, name), {"paused": is_paused})
