"""The configured webhooks, which enqueue their messages, and log and count the final results."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import structlog
from aiohttp import web

from sidecar.kit.names import Named
from sidecar.webhooks.deliveries import Deliveries, Delivery, DeliveryState, Health
from sidecar.webhooks.metrics import WebhookMetrics
from sidecar.webhooks.model import AnyNotice, CallNotice
from sidecar.webhooks.retry import ORDERED_ATTEMPTS
from sidecar.webhooks.settings import TARGET_EVENT_NAMES, Webhook

WebhookStateName = Literal["unused", "delivers", "waiting", "retrying", "failing"]

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class WebhookHealth:
    """The state of a webhook, and the numbers and the message from which it follows."""

    state: WebhookStateName
    #: The time since which nothing is delivered, in ms; None if the state is not failing.
    failing_since_ms: int | None
    health: Health
    #: The state of the latest message, and the message; None if no message is stored.
    last: tuple[DeliveryState, Delivery] | None


@dataclass(frozen=True, slots=True)
class ConfiguredWebhook:
    """A configured webhook, with its messages in Redis."""

    name: str
    settings: Webhook
    deliveries: Deliveries
    metrics: WebhookMetrics

    def is_about_targets(self) -> bool:
        return any(event in self.settings.events for event in TARGET_EVENT_NAMES)

    def is_subscribed_to(self, room: str, event: str) -> bool:
        return event in self.settings.events and self.settings.is_about(room)

    def export_zeros(self, rooms: Iterable[str]) -> None:
        """Create the counters of all possible results, so that they are exported as 0."""
        results = ("delivered", "failed", "dropped")
        for room in filter(self.settings.is_about, rooms):
            for event in self.settings.events:
                for result in results if event not in TARGET_EVENT_NAMES else ():
                    self.metrics.webhooks.labels(room, event, result)
            if self.settings.has_calls:
                for result in (*results, "came", "over", "lost"):
                    self.metrics.calls.labels(room, result)

    def export_health(self, health: Health) -> None:
        """Set the gauges of the webhook."""
        is_failing = health.failures >= ORDERED_ATTEMPTS
        since_ms = (health.failing_since_ms or 0) if is_failing else 0
        self.metrics.failing.labels(self.name).set(since_ms / 1000)
        self.metrics.lag.labels(self.name).set(health.lag_s)

    async def read_health(self) -> WebhookHealth:
        """Return the webhook's state. It is "failing" after three failed attempts in a row, and
        after the latest message has failed for good. Raises StoreError."""
        health = await self.deliveries.read_health()
        last = next(iter(await self.deliveries.read_page(limit=1)), None)
        if last and (last[0] == "failed" or health.failures >= ORDERED_ATTEMPTS):
            since_ms = health.failing_since_ms or last[1].notice.at_ms
            return WebhookHealth("failing", since_ms, health, last)
        state: WebhookStateName = "delivers" if last else "unused"
        if health.counts["waiting"]:
            state = "retrying" if health.failures else "waiting"
        return WebhookHealth(state, None, health, last)

    async def enqueue(self, notice: AnyNotice) -> None:
        """Enqueue a message. If too many messages wait, drop the oldest. Raises StoreError."""
        for id_ in await self.deliveries.enqueue(notice):
            if dropped := await self.deliveries.drop(id_, reason="too many wait"):
                self.report(dropped.notice, "dropped", reason=dropped.reason)

    def report(
        self,
        notice: AnyNotice,
        result: Literal["delivered", "failed", "dropped"],
        *,
        reason: str = "",
        count_calls: bool = True,
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

    def log(self, notice: AnyNotice, result: str, write: Any = log.info, **more: object) -> None:
        about = {"target": notice.target} if notice.target else {"room": notice.room}
        fields = {**about, "happened": notice.event, "id": notice.id}
        write(f"webhook_{result}", webhook=self.name, host=self.settings.host, **fields, **more)


class Webhooks(Named[ConfiguredWebhook]):
    """All configured webhooks."""

    kind = "webhook"


WEBHOOKS: web.AppKey[Webhooks] = web.AppKey("webhooks", Webhooks)
