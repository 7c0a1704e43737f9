"""The webhooks as operators see them."""

from dataclasses import dataclass

from sidecar.kit.names import Named
from sidecar.webhooks.deliveries import Deliveries
from sidecar.webhooks.settings import Webhook


@dataclass(frozen=True, slots=True)
class Receiver:
    name: str
    settings: Webhook
    deliveries: Deliveries


class Webhooks(Named[Receiver]):
    """All that are configured."""

    kind = "webhook"
