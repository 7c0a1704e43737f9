"""The messages of webhooks, and how Redis keeps them."""

import secrets
import time
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, Self, TypeAlias

from pydantic import TypeAdapter, ValidationError

from sidecar.webhooks.settings import Event


@dataclass(frozen=True, slots=True)
class Notice:
    """An event of a room. `threshold`: the room's notify_above, for queue_over."""

    id: str
    event: Event | Literal["test"]
    room: str
    at_ms: int
    waiting: int
    active: int
    cap: int
    wait_seconds: int | None = None
    threshold: int | None = None


@dataclass(frozen=True, slots=True)
class CalledVisitor:
    """A visitor who was called. Redis keeps no `claim_url`: anyone who has it can use it.

    `order` and `joined_ms` make the visitor's ticket. None: the room's event does not say them.
    """

    visitor: str
    called_ms: int
    claim_before_ms: int = 0
    claim_url: str = ""
    order: int | None = None
    joined_ms: int | None = None


@dataclass(frozen=True, slots=True)
class CallNotice:
    """Visitors of a room who were called. `at_ms`: when the last of them was."""

    id: str
    room: str
    at_ms: int
    calls: tuple[CalledVisitor, ...]
    event: Literal["called"] = "called"


AnyNotice: TypeAlias = Notice | CallNotice


def new_test(room: str, cap: int) -> Notice:
    at_ms = int(time.time() * 1000)
    return Notice(f"test-{secrets.token_hex(8)}", "test", room, at_ms, waiting=0, active=0, cap=cap)


class Document:
    """A dataclass that Redis keeps as JSON."""

    __slots__ = ()

    @classmethod
    @cache
    def _adapter(cls) -> TypeAdapter[Any]:
        return TypeAdapter(cls)

    def text(self) -> str:
        return self._adapter().dump_json(self, by_alias=True).decode()

    @classmethod
    def read(cls, text: str | None) -> Self | None:
        """Return None for no text, and for text of another version that cannot be read."""
        try:
            return None if text is None else cls._adapter().validate_json(text)
        except ValidationError:
            return None
