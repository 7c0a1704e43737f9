"""waitroom leases: look at who holds what, and free it."""

from typing import Any
from urllib.parse import urlencode

import click

from sidecar.cli.output import table
from sidecar.cli.replica_client import (
    ANY_TEXT,
    Client,
    ReplicaGroup,
    api_path,
    pass_client,
    read_pages,
    reply_shown_by,
)

MAX_NAME = 128
#: The characters of a resource's name, in Redis' order.
LETTERS = "+-.0123456789:@ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz"


@click.group(cls=ReplicaGroup)
def leases() -> None:
    """Look at who holds what, and free it, through a replica's ops listener."""


def _table(document: dict[str, Any]) -> None:
    if "leases" in document:
        rows: Any = (
            (each["name"], f"{each['term']:g} s", each["capacity"], each["in_use"])
            for each in document["leases"]
        )
        table(("name", "term", "capacity", "in use"), rows)
        return
    rows = (
        (each["resource"], each["waiting"], ", ".join(map(_held, each["holders"])) or "nobody")
        for each in document["resources"]
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
@reply_shown_by(_table)
def list_leases(client: Client, template: str | None, find: str) -> Any:
    """The templates; of one of them, each resource that somebody holds or waits for."""
    if template is None:
        if find:
            raise click.UsageError("--find is for the resources of a TEMPLATE")
        return client.request("GET", "/v1/leases")
    return read_pages(client, _path(template), "resources", find=find)


def _show(document: dict[str, Any]) -> None:
    holders = [
        (each["holder"], each["owner"] or "-", each["fence"] or "called",
         each["granted_at"] or "-", each["expires_at"])
        for each in document["holders"]
    ]  # fmt: skip
    table(("held by", "token", "fence", "since", "until"), holders)
    queue = [
        (each["position"], each["holder"], each["owner"] or "-", each["joined_at"],
         each["heartbeat_due_at"])
        for each in document["queue"]
    ]  # fmt: skip
    table(("place", "waits", "token", "since", "heartbeat due"), queue)


@leases.command(context_settings=ANY_TEXT)
@click.argument("template")
@click.argument("resource")
@reply_shown_by(_show)
def show(client: Client, template: str, resource: str) -> Any:
    """Show who holds a resource and who waits for it."""
    return read_pages(client, f"{_path(template, resource)}/queue", "queue")


@leases.command(context_settings=ANY_TEXT)
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
    if holder is not None:
        _release(client, template, resource, holder)
        return
    page = client.request("GET", _path(template, after=_before(resource), limit="1"))
    holders: list[str] = []
    for each in page["resources"]:
        if each["resource"] == resource:
            holders = list(dict.fromkeys(held["holder"] for held in each["holders"]))
    if not holders:
        click.echo(f"nobody holds {resource}")
        return
    for each in holders:
        _release(client, template, resource, each)
    click.echo(f"{len(holders)} held {resource}; {page['resources'][0]['waiting']} waited for it")


def _release(client: Client, template: str, resource: str, holder: str) -> None:
    done = client.request("DELETE", _path(template, resource, holder=holder))["released"]
    click.echo(f"{holder} released" if done else f"{holder} neither held {resource} nor waited")


def _before(resource: str) -> str:
    """Return the greatest name that sorts before a resource's, so that the page after it begins
    with the resource; empty if there is none."""
    rest, last = resource[:-1], resource[-1]
    letters = LETTERS if rest else "".join(letter for letter in LETTERS if letter.isalnum())
    place = letters.index(last)
    return f"{rest}{letters[place - 1]}".ljust(MAX_NAME, "z") if place else rest


def _held(holder: dict[str, Any]) -> str:
    word = "until" if holder["fence"] else "is called, and has until"
    return f"{holder['holder']} {word} {holder['expires_at']}"


def _path(template: str, *resource: str, **query: str) -> str:
    path = api_path("/v1/leases", template, *resource)
    return f"{path}?{urlencode(query)}" if query else path
