"""The commands `waitroom webhooks …`, which test webhooks, list deliveries and resend messages."""

import asyncio
import sys
import time
from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from sidecar.cli.config import Settings, load_settings
from sidecar.cli.output import JSON, format_time, print_json, print_table
from sidecar.cli.replica_api import Client, build_api_path, read_pages
from sidecar.cli.replica_client import ReplicaGroup, ReplicaOptions

if TYPE_CHECKING:
    from sidecar.kit.http_post import PostResult

STYLES = {
    **dict.fromkeys(("taken", "delivered", "delivers"), "green"),
    **dict.fromkeys(("not taken", "failed"), "red"),
    "retrying": "yellow",
}
#: The texts that a table shows in place of two states.
STATES = {"unused": "nothing sent", "failing": "not delivered"}
_WEBHOOKS = "/admin/webhooks"


@click.group(cls=ReplicaGroup)
def webhooks() -> None:
    """Test webhooks, list their deliveries, and send messages again."""


def _print_webhooks(document: dict[str, Any]) -> None:
    fields = "host", "waiting", "failed", "delivered"
    rows, styles = [], dict(STYLES)
    for webhook in document["webhooks"]:
        last = webhook["last"]
        event = f"{last['event']} {last['state']}" if last else "-"
        state = webhook.get("state", "-")  # a replica of 0.1.0 sends no state
        state = STATES.get(state, state)
        if since := webhook.get("failing_since"):
            state += f" since {format_time(datetime.fromisoformat(since))}"
            styles[state] = "red"
        rows.append((webhook["name"], state, *(webhook[name] for name in fields), event))
    print_table(("webhook", "state", *fields, "last"), rows, styles=styles)


@webhooks.reply_command(_print_webhooks, name="list")
def list_webhooks(client: Client) -> Any:
    """List the webhooks, with the state of each and the number of its messages in each state."""
    return client.request("GET", _WEBHOOKS)


def _print_deliveries(document: dict[str, Any]) -> None:
    fields = "id", "event", "at", "state", "attempts"
    rows = (
        (*(delivery[name] for name in fields), _format_last_response(delivery))
        for delivery in document["deliveries"]
    )
    print_table((*fields, "last answer"), rows, styles=STYLES)


def _format_last_response(delivery: dict[str, Any]) -> str:
    """Format the receiver's last response, or the reason why there was none."""
    if not delivery["attempts"]:
        return delivery["reason"] or "-"
    outcome = delivery["reason"] or f"HTTP {delivery['status']}"
    return f"{outcome}, after {delivery['took_seconds']:.1f} s"


@webhooks.reply_command(_print_deliveries, "name")
@click.option(
    "--state",
    type=click.Choice(["all", "waiting", "delivered", "failed"]),
    default="all",
    help="List only messages in this state.",
)
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="The maximum.")
def deliveries(client: Client, name: str, state: str, limit: int) -> Any:
    """List the messages to a webhook, latest first, each with its last response."""
    path = build_api_path(_WEBHOOKS, name, "deliveries")
    return read_pages(client, path, "deliveries", limit=limit, state=state)


def _print_resend_result(document: dict[str, Any]) -> None:
    waiting = f"; {document['waiting']} on their way already" if document["waiting"] else ""
    click.echo(f"{document['queued']} sent again{waiting}: see waitroom webhooks deliveries")


@webhooks.reply_command(_print_resend_result, "name")
@click.argument("ids", nargs=-1, metavar="[ID…]")
@click.option("--failed", is_flag=True, help="Resend all failed messages.")
def resend(client: Client, name: str, ids: tuple[str, ...], *, failed: bool) -> Any:
    """Resend messages by id, or all failed ones. Each message is sent once, with the same id."""
    if failed == bool(ids):
        raise click.UsageError("name messages by their ids, or say --failed")
    if failed:
        return client.request("POST", build_api_path(_WEBHOOKS, name, "resend"))
    counts: Counter[str] = Counter()
    for id_ in ids:
        reply = client.request("POST", build_api_path(_WEBHOOKS, name, "deliveries", id_, "resend"))
        counts.update(queued=reply["queued"], waiting=reply["waiting"])
    return {"webhook": name, "queued": counts["queued"], "waiting": counts["waiting"]}


@webhooks.command()
@click.argument("names", nargs=-1, metavar="[NAME…]")
@JSON
@click.pass_obj
def test(options: ReplicaOptions, names: tuple[str, ...], *, as_json: bool) -> None:
    """Send a test message from this machine to all webhooks, or to the webhooks that you name.

    The test is sent once, without retries. Exit 1 if a delivery fails. No replica is needed.
    """
    settings = load_settings(options.config)
    unknown = [name for name in names if name not in settings.webhooks]
    if unknown:
        raise click.UsageError(f"no webhook is named {', '.join(unknown)}")
    chosen = names or tuple(settings.webhooks)
    if not chosen:
        raise click.ClickException(
            'there is none; write [webhooks.team] with url = "https://…" into the settings'
        )
    results = asyncio.run(_send_tests(settings, chosen))
    rows = [
        (
            name,
            settings.webhooks[name].host,
            "taken" if result.is_taken else "not taken",
            f"in {seconds:.1f} s" if result.is_taken else result.reason,
        )
        for name, (result, seconds) in results.items()
    ]
    headings = "webhook", "host", "result", "about"
    if as_json:
        print_json({"webhooks": [dict(zip(headings, row, strict=True)) for row in rows]})
    else:
        print_table(headings, rows, styles=STYLES)
    sys.exit(0 if all(result.is_taken for result, _ in results.values()) else 1)


async def _send_tests(
    settings: Settings, names: tuple[str, ...]
) -> "dict[str, tuple[PostResult, float]]":
    """Test all webhooks at the same time. Return the results and seconds, by a webhook's name."""
    from sidecar.webhooks.model import create_test_notice  # noqa: PLC0415 - faster start
    from sidecar.webhooks.sender import open_session, send_notice  # noqa: PLC0415

    async with open_session() as session:

        async def send_test(name: str) -> "tuple[PostResult, float]":
            webhook = settings.webhooks[name]
            room = next(iter(webhook.rooms or sorted(settings.rooms)), "")
            cap = settings.rooms[room].total_active_users if room else 0
            start_s = time.monotonic()
            message = create_test_notice(room, cap)
            result = await send_notice(session, webhook, message)
            return result, time.monotonic() - start_s

        results = await asyncio.gather(*(send_test(name) for name in names))
    return dict(zip(names, results, strict=True))
