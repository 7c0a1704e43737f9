"""The draw of an event's pre-queue, by commitment and revelation.

Before the pre-queue begins its secret is fixed and the SHA-256 of it published. The place of a
visitor is the HMAC-SHA256 (RFC 2104) of its id with that secret. When the event has opened the
secret is published too, and anybody can compute every place again.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sidecar.base.events import RoomEvent

#: Of the HMAC the first so many bits are the lot: a double holds them exactly.
LOT_BITS = 50


def secret_of(key: str, room: str, event: RoomEvent) -> str:
    """64 hexadecimal digits. Who moves the opening keeps the secret; a pre-queue that begins at
    another time has another one, so that none is ever used again after it was published."""
    said = f"waitroom-draw:{room}:{event.name}:{event.begins_ms}"
    return hmac.new(key.encode(), said.encode(), hashlib.sha256).hexdigest()


def commitment_to(secret: str) -> str:
    """SHA-256 of the secret's hexadecimal text, in hexadecimal."""
    return hashlib.sha256(secret.encode()).hexdigest()


def lot(secret: str, visitor: str) -> int:
    """The visitor's lot, below 2**LOT_BITS; the smaller, the sooner. Of two that are the same,
    which is next to impossible, the id that sorts first goes first."""
    digest = hmac.new(secret.encode(), visitor.encode(), hashlib.sha256).digest()
    return int.from_bytes(digest[:8], "big") >> (64 - LOT_BITS)
