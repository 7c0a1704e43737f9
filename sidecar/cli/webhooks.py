"""waitroom webhooks: try them, look at what was sent, and send it again."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from sidecar.cli.common import load_settings
from sidecar.cli.connection import ReplicaGroup, pass_client, read_pages
from sidecar.cli.printing import JSON, print_json, printed, table

if TYPE_CHECKING:
    from sidecar.cli.connection import Connection
    from sidecar.kit.http_post import PostResult
    from sidecar.settings.model import Settings
    from waitroom import Client

STYLES = {"taken": "green", "not taken": "red", "delivered": "green", "failed": "red"}
HEADINGS = "id", "event", "at", "state", "attempts", "last answer"


@click.group(cls=ReplicaGroup)
def webhooks() -> None:
    """Try the webhooks that the settings name, look at what was sent, and send it again."""


def _list(found: dict[str, Any]) -> None:
    table(
        ("webhook", "host", "waiting", "failed", "delivered", "last"),
        (
            (
                each["name"],
                each["host"],
                each["waiting"],
                each["failed"],
                each["delivered"],
                f"{each['last']['event']} {each['last']['state']}" if each["last"] else "-",
            )
            for each in found["webhooks"]
        ),
    )


@webhooks.command("list")
@printed(_list)
@pass_client
def list_webhooks(client: Client) -> Any:
    """The webhooks: how many messages wait, failed and were delivered, of those that are kept."""
    return client.request("GET", "/admin/webhooks")


def _deliveries(found: dict[str, Any]) -> None:
    table(HEADINGS, map(_row, found["deliveries"]), styles=STYLES)


def _row(each: dict[str, Any]) -> tuple[Any, ...]:
    return (each["id"], each["event"], each["at"], each["state"], each["attempts"], _answer(each))


def _answer(delivery: dict[str, Any]) -> str:
    """What the receiver said last."""
    if not delivery["attempts"]:
        return delivery["reason"] or "-"
    said = delivery["reason"] or f"HTTP {delivery['status']}"
    return f"{said}, after {delivery['took_seconds']:.1f} s"


@webhooks.command()
@click.argument("name")
@click.option(
    "--state",
    type=click.Choice(["all", "waiting", "delivered", "failed"]),
    default="all",
    help="Only these.",
)
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="At most.")
@printed(_deliveries)
@pass_client
def deliveries(client: Client, name: str, state: str, limit: int) -> Any:
    """What was sent to a webhook, latest first, with the last answers."""
    return read_pages(client, f"{_path(name)}/deliveries", "deliveries", limit=limit, state=state)


def _resent(found: dict[str, Any]) -> None:
    waiting = f"; {found['waiting']} on their way already" if found["waiting"] else ""
    click.echo(f"{found['queued']} sent again{waiting}: see waitroom webhooks deliveries")


@webhooks.command()
@click.argument("name")
@click.argument("ids", nargs=-1, metavar="[ID…]")
@click.option("--failed", is_flag=True, help="All that failed.")
@printed(_resent)
@pass_client
def resend(client: Client, name: str, ids: tuple[str, ...], *, failed: bool) -> Any:
    """Send messages again, each once, with the same id: those named, or all that failed."""
    if failed == bool(ids):
        raise click.UsageError("name messages by their ids, or say --failed")
    if failed:
        return client.request("POST", f"{_path(name)}/resend")
    said = [
        client.request("POST", f"{_path(name)}/deliveries/{_quoted(id_)}/resend") for id_ in ids
    ]
    return {
        "webhook": name,
        "queued": sum(each["queued"] for each in said),
        "waiting": sum(each["waiting"] for each in said),
    }


def _path(name: str) -> str:
    return f"/admin/webhooks/{_quoted(name)}"


def _quoted(name: str) -> str:
    return quote(name, safe="")


@webhooks.command()
@click.argument("names", nargs=-1, metavar="[NAME…]")
@JSON
@click.pass_obj
def test(connection: Connection, names: tuple[str, ...], *, as_json: bool) -> None:
    """Send a test to each webhook, or to those named, from this machine; once, without a retry.

    Exit 1 when one did not take it. Needs no replica.
    """
    settings = load_settings(connection.config)
    unknown = [name for name in names if name not in settings.webhooks]
    if unknown:
        raise click.UsageError(f"no webhook is named {', '.join(unknown)}")
    chosen = names or tuple(settings.webhooks)
    if not chosen:
        raise click.ClickException(
            'there is none; write [webhooks.team] with url = "https://…" into the settings'
        )
    answers = asyncio.run(_send_all(settings, chosen))
    rows = [
        (
            name,
            settings.webhooks[name].host,
            "taken" if answer.is_taken else "not taken",
            f"in {seconds:.1f} s" if answer.is_taken else answer.reason,
        )
        for name, (answer, seconds) in answers.items()
    ]
    headings = "webhook", "host", "result", "about"
    if as_json:
        print_json({"webhooks": [dict(zip(headings, row, strict=True)) for row in rows]})
    else:
        table(headings, rows, styles=STYLES)
    sys.exit(0 if all(answer.is_taken for answer, _ in answers.values()) else 1)


async def _send_all(
    settings: Settings, names: tuple[str, ...]
) -> dict[str, tuple[PostResult, float]]:
    """Side by side: each webhook's answer, and how long it took."""
    from sidecar.webhooks.model import new_test  # noqa: PLC0415 - the other commands start faster
    from sidecar.webhooks.sender import new_session, send  # noqa: PLC0415

    async with new_session() as session:

        async def try_one(name: str) -> tuple[PostResult, float]:
            webhook = settings.webhooks[name]
            room = (webhook.rooms or sorted(settings.rooms))[0]
            began = time.monotonic()
            notice = new_test(room, settings.rooms[room].total_active_users)
            answer = await send(session, webhook, notice)
            return answer, time.monotonic() - began

        tried = await asyncio.gather(*(try_one(name) for name in names))
    return dict(zip(names, tried, strict=True))
