"""The webhooks as operators see them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sidecar.kit.names import Named

if TYPE_CHECKING:
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
