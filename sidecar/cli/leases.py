"""The commands `waitroom leases …`, which show who holds which resource, release it, or run a
command while holding it."""

from typing import Any

import click

from sidecar.cli.lease_run import NOT_GRANTED, run_with_lease
from sidecar.cli.output import print_table
from sidecar.cli.parsing import read_duration
from sidecar.cli.replica_api import Client, build_api_path, read_pages
from sidecar.cli.replica_client import ANY_TEXT, ReplicaGroup, ReplicaOptions, pass_client

#: The number of retries if no replica answers.
RUN_RETRIES = 3
_LEASES = "/v1/leases"


@click.group(cls=ReplicaGroup)
def leases() -> None:
    """Show and release leases, or hold one while a command runs."""


def _print_leases(document: dict[str, Any]) -> None:
    if "leases" in document:
        rows: Any = (
            (lease["name"], f"{lease['term']:g} s", lease["capacity"], lease["in_use"])
            for lease in document["leases"]
        )
        print_table(("name", "term", "capacity", "in use"), rows)
        return
    rows = (
        (resource["name"], resource["waiting"], _format_holders(resource["holders"]))
        for resource in document["resources"]
    )
    print_table(("resource", "waiting", "held by"), rows)


@leases.reply_command(_print_leases, name="list")
@click.argument("template", required=False)
@click.option(
    "--find",
    default="",
    metavar="TEXT",
    help="List resources whose name begins with TEXT, or whose holder or fencing number is TEXT.",
)
def list_leases(client: Client, template: str | None, find: str) -> Any:
    """List the templates, or the resources of TEMPLATE that somebody holds or waits for."""
    if template is None:
        if find:
            raise click.UsageError("--find is for the resources of a TEMPLATE")
        return client.request("GET", _LEASES)
    return read_pages(client, build_api_path(_LEASES, template), "resources", find=find)


def _print_queue(document: dict[str, Any]) -> None:
    holders = [
        (entry["holder"], entry["owner"] or "-", entry["fence"] or "called",
         entry["granted_at"] or "-", entry["expires_at"])
        for entry in document["holders"]
    ]  # fmt: skip
    print_table(("held by", "token", "fence", "since", "until"), holders)
    queue = [
        (entry["position"], entry["holder"], entry["owner"] or "-", entry["joined_at"],
         entry["heartbeat_due_at"])
        for entry in document["queue"]
    ]  # fmt: skip
    print_table(("place", "waits", "token", "since", "heartbeat due"), queue)


@leases.reply_command(_print_queue, "template", "resource", context_settings=ANY_TEXT)
def show(client: Client, template: str, resource: str) -> Any:
    """Show who holds a resource and who waits for it."""
    return read_pages(client, build_api_path(_LEASES, template, resource, "queue"), "queue")


@leases.command(context_settings=ANY_TEXT)
@click.argument("template")
@click.argument("resource")
@click.argument("holder", required=False)
@pass_client
def release(client: Client, template: str, resource: str, holder: str | None) -> None:
    """End HOLDER's lease, call or place in the queue. Without HOLDER, end the leases and calls of
    all holders. The next client in the queue is called at once."""
    from sidecar.leases.settings import RESOURCE  # noqa: PLC0415

    if not RESOURCE.match(resource):
        raise click.UsageError(f"{resource}: that is no resource's name")
    path = build_api_path(_LEASES, template, resource)
    holders = [holder] if holder is not None else []
    if holder is None:
        page = client.request("GET", f"{path}/queue", query={"limit": "1"})
        holders = list(dict.fromkeys(entry["holder"] for entry in page["holders"]))
    for name in holders:
        reply = client.request("DELETE", path, query={"holder": name})
        outcome = "released" if reply["released"] else f"neither held {resource} nor waited"
        click.echo(f"{name} {outcome}")
    if holder is None:
        counts = f"{len(holders)} held {resource}; {page['waiting']} waited for it"
        click.echo(counts if holders else f"nobody holds {resource}")


@leases.command(name="run")
@click.argument("template")
@click.argument("resource")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND…")
@click.option(
    "--wait",
    callback=read_duration,
    metavar="DURATION",
    help="The maximum time to wait for the lease, such as 30s or 0s (default: no limit).",
)
@click.option("--holder", default="", metavar="NAME", help="The holder's name (default: a new id).")
@click.option(
    "--on-loss",
    type=click.Choice(["kill", "warn"]),
    default="kill",
    show_default=True,
    help="What to do if the lease is lost: end the command, or only warn.",
)
@click.option(
    "--conflict-exit-code",
    "-E",
    type=click.IntRange(0, 255),
    default=NOT_GRANTED,
    show_default=True,
    metavar="NUMBER",
    help="The exit code if the lease is not granted in time or the queue is full.",
)
@click.pass_obj
def run_command(options: ReplicaOptions, /, template: str, resource: str, **params: Any) -> None:
    """Run COMMAND while holding a lease, as flock does with a lock file.

    Wait for the lease, renew it while the command runs, release it at the end, and exit with the
    command's exit code. The command can read its fencing number from LEASE_FENCE.
    """
    with options.client(retries=RUN_RETRIES) as client:
        status = run_with_lease(client, template, resource, **params)
    click.get_current_context().exit(status)


def _format_holders(holders: list[dict[str, Any]]) -> str:
    texts = []
    for holder in holders:
        until = "until" if holder["fence"] else "is called, and has until"
        texts.append(f"{holder['holder']} {until} {holder['expires_at']}")
    return ", ".join(texts) or "nobody"
