"""waitroom webhooks: try them."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import TYPE_CHECKING

import click

from sidecar.cli.common import load_settings
from sidecar.cli.connection import SettingsGroup
from sidecar.cli.printing import JSON, print_json, table

if TYPE_CHECKING:
    from sidecar.cli.connection import Connection
    from sidecar.kit.outbox import Answer
    from sidecar.settings import Settings

STYLES = {"taken": "green", "not taken": "red"}


@click.group(cls=SettingsGroup)
def webhooks() -> None:
    """Try the webhooks that the settings name."""


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


async def _send_all(settings: Settings, names: tuple[str, ...]) -> dict[str, tuple[Answer, float]]:
    """Side by side: each webhook's answer, and how long it took."""
    from sidecar.webhooks.model import new_test  # noqa: PLC0415 - the other commands start faster
    from sidecar.webhooks.notifier import new_session, send  # noqa: PLC0415

    async with new_session() as session:

        async def try_one(name: str) -> tuple[Answer, float]:
            webhook = settings.webhooks[name]
            room = (webhook.rooms or sorted(settings.rooms))[0]
            began = time.monotonic()
            notice = new_test(room, settings.rooms[room].total_active_users)
            answer = await send(session, webhook, notice)
            return answer, time.monotonic() - began

        tried = await asyncio.gather(*(try_one(name) for name in names))
    return dict(zip(names, tried, strict=True))
