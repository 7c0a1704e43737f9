"""waitroom leases: look at who holds what, and free it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

import click

from sidecar.cli.connection import ReplicaGroup, pass_client, read_pages
from sidecar.cli.printing import printed, table

if TYPE_CHECKING:
    from waitroom import Client

MAX_NAME = 128
#: What a resource's name is made of, in the store's order.
LETTERS = "+-.0123456789:@ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz"
#: A holder's name may begin with a hyphen and is no option then.
ANY_NAME = {"ignore_unknown_options": True, "help_option_names": ["--help"]}


@click.group(cls=ReplicaGroup)
def leases() -> None:
    """Look at who holds what, and free it, through a replica's ops listener."""


def _table(found: dict[str, Any]) -> None:
    if "leases" in found:
        rows: Any = (
            (each["name"], f"{each['term']:g} s", each["capacity"], each["in_use"])
            for each in found["leases"]
        )
        table(("name", "term", "capacity", "in use"), rows)
        return
    rows = (
        (each["name"], each["waiting"], ", ".join(map(_held, each["holders"])) or "nobody")
        for each in found["resources"]
    )
    table(("resource", "waiting", "held by"), rows)


@leases.command("list")
@click.argument("template", required=False)
@click.option(
    "--find",
    default="",
    metavar="TEXT",
    help="Only resources whose name begins so, of this holder, or with this fencing number.",
)
@printed(_table)
@pass_client
def list_leases(client: Client, template: str | None, find: str) -> Any:
    """The templates; of one of them, each resource that somebody holds or waits for."""
    if template is None:
        if find:
            raise click.UsageError("--find is for the resources of a TEMPLATE")
        return client.request("GET", "/v1/leases")
    return read_pages(client, _path(template), "resources", find=find)


def _show(found: dict[str, Any]) -> None:
    table(
        ("held by", "token", "fence", "since", "until"),
        (
            (
                each["holder"],
                each["owner"] or "-",
                each["fence"] or "called",
                each["granted_at"] or "-",
                each["expires_at"],
            )
            for each in found["holders"]
        ),
    )
    table(
        ("place", "waits", "token", "since", "heartbeat due"),
        (
            (
                each["position"],
                each["holder"],
                each["owner"] or "-",
                each["joined_at"],
                each["heartbeat_due_at"],
            )
            for each in found["queue"]
        ),
    )


@leases.command(context_settings=ANY_NAME)
@click.argument("template")
@click.argument("resource")
@printed(_show)
@pass_client
def show(client: Client, template: str, resource: str) -> Any:
    """Show who holds a resource and who waits for it."""
    return read_pages(client, f"{_path(template, resource)}/queue", "queue")


@leases.command(context_settings=ANY_NAME)
@click.argument("template")
@click.argument("resource")
@click.argument("holder", required=False)
@pass_client
def release(client: Client, template: str, resource: str, holder: str | None) -> None:
    """End one holder's lease, turn or place in the queue; without a holder's name, of all who hold
    the resource. The next in the queue has it at once."""
    from sidecar.leases.settings import RESOURCE  # noqa: PLC0415

    if not RESOURCE.match(resource):
        raise click.UsageError(f"{resource}: that is no resource's name")
    waiting = None
    holders = [] if holder is None else [holder]
    if holder is None:
        page = client.request("GET", _path(template, after=_before(resource), limit="1"))
        for found in page["resources"]:
            if found["name"] == resource:
                holders = list(dict.fromkeys(held["holder"] for held in found["holders"]))
                waiting = found["waiting"]
        if not holders:
            click.echo(f"nobody holds {resource}")
            return
    for each in holders:
        done = client.request("DELETE", _path(template, resource, holder=each))["released"]
        click.echo(f"{each} released" if done else f"{each} neither held {resource} nor waited")
    if holder is None:
        click.echo(f"{len(holders)} held {resource}; {waiting} waited for it")


def _before(resource: str) -> str:
    """The greatest name that there can be before it, so that it comes first on the page after;
    empty: there is none."""
    rest, last = resource[:-1], resource[-1]
    letters = LETTERS if rest else "".join(letter for letter in LETTERS if letter.isalnum())
    place = letters.index(last)
    return f"{rest}{letters[place - 1]}".ljust(MAX_NAME, "z") if place else rest


def _held(holder: dict[str, Any]) -> str:
    word = "until" if holder["fence"] else "is called, and has until"
    return f"{holder['holder']} {word} {holder['expires_at']}"


def _path(template: str, resource: str = "", **query: str) -> str:
    names = [quote(name, safe="") for name in (template, resource) if name]
    return f"/v1/leases/{'/'.join(names)}" + (f"?{urlencode(query)}" if query else "")
