"""The webhooks of a replica, and how they log and count what became of their messages."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import structlog
from aiohttp import web

from sidecar.kit.names import Named
from sidecar.webhooks.deliveries import Deliveries
from sidecar.webhooks.metrics import WebhookMetrics
from sidecar.webhooks.model import AnyNotice, CallNotice
from sidecar.webhooks.settings import Webhook

Result = Literal["delivered", "failed", "dropped"]

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Receiver:
    name: str
    settings: Webhook
    deliveries: Deliveries
    metrics: WebhookMetrics

    def wants(self, room: str, event: str) -> bool:
        return event in self.settings.events and self.settings.is_about(room)

    def count_from_zero(self, rooms: Iterable[str]) -> None:
        """Let the metrics show 0 for each result that can come."""
        for room in filter(self.settings.is_about, rooms):
            for event in self.settings.events:
                for result in ("delivered", "failed", "dropped"):
                    self.metrics.webhooks.labels(room, event, result)
            if self.settings.tells_of_calls:
                for result in ("delivered", "failed", "dropped", "came", "over", "lost"):
                    self.metrics.calls.labels(room, result)

    async def enqueue(self, notice: AnyNotice) -> None:
        """Let a message wait to be sent, and drop the oldest where too many wait.

        Raises StoreError. Idempotent by the message's id.
        """
        for id_ in await self.deliveries.enqueue(notice):
            if dropped := await self.deliveries.drop(id_, reason="too many wait"):
                self.report(dropped.notice, "dropped", reason=dropped.reason)

    def report(
        self, notice: AnyNotice, result: Result, *, reason: str = "", count_calls: bool = True
    ) -> None:
        """Log and count the final result of a message."""
        if result == "delivered":
            self.log(notice, result)
        else:
            self.log(notice, result, log.warning, reason=reason)
        if notice.event != "test":
            self.metrics.webhooks.labels(notice.room, notice.event, result).inc()
        if isinstance(notice, CallNotice) and count_calls:
            self.metrics.calls.labels(notice.room, result).inc(len(notice.calls))

    def log(self, notice: AnyNotice, result: str, say: Any = log.info, **more: object) -> None:
        about = {"room": notice.room, "happened": notice.event, "id": notice.id}
        say(f"webhook_{result}", webhook=self.name, host=self.settings.host, **about, **more)


class Webhooks(Named[Receiver]):
    kind = "webhook"


#: Where handlers find the webhooks in their application.
WEBHOOKS: web.AppKey[Webhooks] = web.AppKey("webhooks", Webhooks)


def receiver_of(request: web.Request) -> Receiver:
    """Return the webhook that a request names. Raises UnknownNameError."""
    return request.app[WEBHOOKS].get(request.match_info["webhook"])
