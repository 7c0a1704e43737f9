"""Request and response models of the API for webhooks. They never contain a URL or a secret."""

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
from sidecar.webhooks.deliveries import DeliveryState
from sidecar.webhooks.service import WebhookStateName

UNKNOWN_WEBHOOK = unknown("webhook")
UNKNOWN_DELIVERY = Kind(
    "unknown_delivery",
    404,
    "Unknown delivery",
    "The webhook has no delivery with that id, or no longer has it.",
    "List the deliveries. A webhook keeps only the latest ones.",
)
DELIVERY_CHANGED = Kind(
    "delivery_changed",
    409,
    "The delivery has changed",
    "Somebody else has sent the message again since you looked. Nothing was sent.",
    "See the last response, and send the message again if it is still needed.",
)

Count = Annotated[int, Field(ge=0)]


class WebhookAddress(Parameters):
    webhook: Annotated[Name, Field(examples=["team"])]
    """The name of a configured webhook."""


class DeliveriesPage(WebhookAddress, OffsetPage):
    state: Literal["all", "waiting", "delivered", "failed"] = "all"
    """Only messages in this state."""


class ResendParameters(WebhookAddress):
    id: Annotated[str, *matching("[a-z0-9_-]{1,200}", "the id of a delivery")]
    """The message's id: `id` in its body, and the header `X-Waitroom-Delivery`."""
    attempts: Annotated[int, Field(ge=0, le=10**9)] | None = None
    """Resend the message only if it has had this number of attempts, so that only one of two
    operators who resend it at the same time succeeds."""


class TestParameters(WebhookAddress):
    room: Name | None = None
    """The room that the test message names. Default: the first of the webhook's rooms, by name."""


class WebhookDelivery(Reply):
    """A message and the result of its last attempt."""

    id: str
    """The message's id, the same in each attempt."""
    event: str
    """The event, or `test`."""
    room: str
    """The room's name. Empty for an event of a target."""
    target: str | None
    """The target's name. null for an event of a room."""
    at: Time
    """When the event happened."""
    state: DeliveryState
    """`waiting`: the message will be sent, or retried. `failed`: there are no more attempts."""
    attempts: Count
    """How many attempts to send the message there were."""
    calls: Count | None
    """How many visitors are in the message, if the event is `called`."""
    last_attempt_at: Time | None
    """When the last attempt began. null: there was none."""
    took_seconds: Seconds | None
    """How long the last attempt took."""
    status: int | None
    """The HTTP status of the last response. null: there was none."""
    reason: str
    """Why the last attempt failed. Empty: it succeeded, or there was none."""
    body: str
    """The first 500 characters of the response to a failed attempt. Parts of the webhook's URL and
    its secret are replaced by `…`."""
    resent_by: str | None
    """The operator who last resent the message. null: nobody did."""


class DeliveryCounts(Reply):
    waiting: Count
    """Messages that are waiting to be sent."""
    delivered: Count
    """Stored messages that were delivered."""
    failed: Count
    """Stored messages that failed."""


class WebhookState(DeliveryCounts):
    """A webhook: its settings, and how many of its messages are stored."""

    name: str
    """The webhook's name in the settings."""
    state: WebhookStateName
    """`unused`: no message is stored. `delivers`: none waits. `waiting`: messages wait. `retrying`:
    messages wait after a failed attempt. `failing`: nothing is delivered, because three attempts in
    a row failed or the latest message was given up."""
    failing_since: Time | None
    """Since when nothing is delivered. null: `state` is not `failing`."""
    host: str
    """The host of the webhook's URL. The rest of the URL is secret."""
    format: Literal["generic", "slack", "dingtalk"]
    """The format of the messages."""
    is_signed: bool
    """Whether the webhook has a secret."""
    events: list[str]
    """The events about which messages are sent to the webhook."""
    rooms: list[str]
    """The rooms about which messages are sent to the webhook. Empty: all rooms."""
    last: WebhookDelivery | None
    """The latest message. null: none is stored."""


class WebhookList(Reply):
    webhooks: list[WebhookState]
    """All webhooks, by name."""


class WebhookDeliveries(DeliveryCounts, PageReply):
    webhook: str
    """The webhook's name."""
    deliveries: list[WebhookDelivery]
    """The messages, latest first."""


class Resent(Reply):
    webhook: str
    """The webhook's name."""
    queued: Count
    """Messages that will be sent again."""
    waiting: Count
    """Messages that were already waiting. They are not sent twice."""


class SentTest(Reply):
    webhook: str
    """The webhook's name."""
    id: str
    """The id of the test message in the list of deliveries."""
