"""What webhooks are sent, and how Redis keeps what is on its way."""

import secrets
import time
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, Self, TypeAlias

from pydantic import TypeAdapter, ValidationError

from sidecar.webhooks.settings import Event


@dataclass(frozen=True, slots=True)
class Notice:
    """One event of a room. `threshold`: the room's notify_above, for queue_over."""

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
class Invitation:
    """One call: who, when, until when they have to come, and where."""

    visitor: str
    called_ms: int
    claim_before_ms: int
    claim_url: str


@dataclass(frozen=True, slots=True)
class CallNotice:
    """Some calls of one room. `at_ms`: when the last of them was."""

    id: str
    room: str
    at_ms: int
    calls: tuple[Invitation, ...]
    event: Literal["called"] = "called"


def new_test(room: str, cap: int) -> Notice:
    """A test: nothing has happened."""
    at_ms = int(time.time() * 1000)
    return Notice(f"test-{secrets.token_hex(8)}", "test", room, at_ms, waiting=0, active=0, cap=cap)


AnyNotice: TypeAlias = Notice | CallNotice


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
        """None: there is none, or another version wrote it, and it cannot be read."""
        try:
            return None if text is None else cls._adapter().validate_json(text)
        except ValidationError:
            return None
