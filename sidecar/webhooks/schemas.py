"""Requests and responses about webhooks, without addresses and secrets."""

from typing import Annotated, Literal

from pydantic import Field

from sidecar.http.models import (
    Name,
    OffsetPage,
    PageReply,
    Parameters,
    Reply,
    Seconds,
    Time,
    matching,
)
from sidecar.http.problem_kinds import Kind, unknown
from sidecar.webhooks.deliveries import State

UNKNOWN_WEBHOOK = unknown("webhook")
UNKNOWN_DELIVERY = Kind(
    "unknown_delivery",
    404,
    "Unknown delivery",
    "The webhook has no delivery of that id, or not any more.",
    "List the deliveries: a webhook keeps the latest ones.",
)
DELIVERY_CHANGED = Kind(
    "delivery_changed",
    409,
    "The delivery has changed",
    "It has had another attempt since you looked. Nothing was sent.",
    "Look at the last answer, and send it again if it is still needed.",
)

Count = Annotated[int, Field(ge=0)]


class WebhookAddress(Parameters):
    webhook: Annotated[Name, Field(examples=["team"])]
    """A webhook that is configured."""


class DeliveryAddress(WebhookAddress):
    id: Annotated[str, *matching("[a-z0-9_-]{1,200}", "the id of a delivery")]
    """The message's id: `id` in its body, and `X-Waitroom-Delivery`."""


class DeliveriesPage(WebhookAddress, OffsetPage):
    state: Literal["all", "waiting", "delivered", "failed"] = "all"
    """Only these."""


class ResendParameters(DeliveryAddress):
    attempts: Annotated[int, Field(ge=0, le=10**9)] | None = None
    """Sends it again only if it has had so many attempts: of two operators who press at the same
    moment, one sends it."""


class TestParameters(WebhookAddress):
    room: Name | None = None
    """The room that the test names. Without it, the first one that the webhook is about."""


class WebhookDelivery(Reply):
    """A message, and what became of it."""

    id: str
    """Stays the same with each attempt, and when it is sent again."""
    event: str
    """What happened, or `test`."""
    room: str
    """Where."""
    at: Time
    """When it happened."""
    state: State
    """`waiting`: on its way, or tried again later. `failed`: given up."""
    attempts: Count
    """How often it was sent."""
    calls: Count | None
    """With `called`: how many visitors were in it."""
    last_attempt_at: Time | None
    """null: none yet."""
    took_seconds: Seconds | None
    """How long the last attempt took."""
    status: int | None
    """The HTTP status of the last answer. null: there was none."""
    reason: str
    """Why the last attempt did not succeed. Empty: it did, or there was none."""
    body: str
    """The first 500 characters of what the receiver answered to an attempt that did not succeed.
    Parts of the webhook's address and its secret are replaced by `…`."""
    resent_by: str | None
    """Who sent it again last. null: nobody."""


class WebhookState(Reply):
    """One webhook."""

    name: str
    """Its name in the settings."""
    host: str
    """Of its address, all that is shown."""
    format: Literal["generic", "slack", "dingtalk"]
    """In which form messages are sent."""
    is_signed: bool
    """Whether it has a secret."""
    events: list[str]
    """Which events it gets."""
    rooms: list[str]
    """Of which rooms. Empty: of all."""
    waiting: Count
    """Messages that wait to be sent."""
    delivered: Count
    """Messages that were delivered, of those that are kept."""
    failed: Count
    """Messages that were given up, of those that are kept."""
    last: WebhookDelivery | None
    """The latest message. null: none is kept."""


class WebhookList(Reply):
    webhooks: list[WebhookState]
    """By name."""


class WebhookDeliveries(PageReply):
    webhook: str
    """The webhook's name."""
    deliveries: list[WebhookDelivery]
    """Latest first."""
    waiting: Count
    """Messages that wait to be sent."""
    delivered: Count
    """Messages that were delivered, of those that are kept."""
    failed: Count
    """Messages that were given up, of those that are kept."""


class Resent(Reply):
    webhook: str
    """The webhook's name."""
    queued: Count
    """Messages that are sent again now."""
    waiting: Count
    """Messages that were on their way already: they are not sent twice."""


class SentTest(Reply):
    webhook: str
    """The webhook's name."""
    id: str
    """The id of the test, by which it is in the list of deliveries."""
