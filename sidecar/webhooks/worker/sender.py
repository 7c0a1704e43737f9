"""Brings notices to one webhook: a sender of its own for each, so that one that hangs holds up no
other."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import aiohttp

from sidecar.kit.outbox import Answer, Schedule, Sender, post
from sidecar.kit.retry import Backoff
from sidecar.webhooks.messages import compose, read_dingtalk

if TYPE_CHECKING:
    from collections.abc import Callable

    from sidecar.webhooks.call_notices import CallNotice
    from sidecar.webhooks.room_notices import Notice
    from sidecar.webhooks.settings import Webhook

    AnyNotice: TypeAlias = Notice | CallNotice

TIMEOUT_S = 5.0
#: Takes about a quarter of an hour.
SCHEDULE = Schedule(8, Backoff(1.0, 300.0, factor=4, jitter=0.2))


def new_session() -> aiohttp.ClientSession:
    """It keeps no cookies, and heeds HTTPS_PROXY, HTTP_PROXY and NO_PROXY."""
    return aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar(), trust_env=True)


async def send(session: aiohttp.ClientSession, webhook: Webhook, notice: AnyNotice) -> Answer:
    """One try. Signed anew: a signature has the time of the try."""
    read = read_dingtalk if webhook.format == "dingtalk" else None
    message = compose(webhook, notice, now_s=time.time())
    return await post(session, message, timeout_s=TIMEOUT_S, read=read)


@dataclass(eq=False)
class WebhookSender(Sender["AnyNotice"]):
    schedule = SCHEDULE

    webhook: Webhook
    session: aiohttp.ClientSession

    async def send(self, item: AnyNotice) -> Answer:
        return await send(self.session, self.webhook, item)

    def log(self, say: Callable[..., object], result: str, item: AnyNotice, **more: object) -> None:
        say(f"webhook_{result}", webhook=self.name, host=self.webhook.host, room=item.room,
            happened=item.event, id=item.id, **more)  # fmt: skip
