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
        (each["name"], each["waiting"], ", ".join(map(_held, each["holders"])) or "nobody")
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
    holders = [holder] if holder is not None else []
    if holder is None:
        page = client.request("GET", f"{_path(template, resource)}/queue", query={"limit": "1"})
        holders = list(dict.fromkeys(held["holder"] for held in page["holders"]))
    for each in holders:
        done = client.request("DELETE", _path(template, resource, holder=each))["released"]
        click.echo(f"{each} released" if done else f"{each} neither held {resource} nor waited")
    if holder is None:
        counts = f"{len(holders)} held {resource}; {page['waiting']} waited for it"
        click.echo(counts if holders else f"nobody holds {resource}")


def _held(holder: dict[str, Any]) -> str:
    word = "until" if holder["fence"] else "is called, and has until"
    return f"{holder['holder']} {word} {holder['expires_at']}"


def _path(template: str, *resource: str, **query: str) -> str:
    path = api_path("/v1/leases", template, *resource)
    return f"{path}?{urlencode(query)}" if query else path
