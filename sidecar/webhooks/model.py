"""The model of webhooks: their messages, and dataclasses that Redis stores as JSON."""

import secrets
import time
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias

from pydantic import AliasChoices, Field, TypeAdapter, ValidationError

from sidecar.webhooks.settings import RoomEventName, TargetEventName


@dataclass(frozen=True, slots=True)
class SiteChange:
    """A change of the state of the site behind an adaptive room."""

    state: str
    previous_state: str
    text: str
    ceiling: int


@dataclass(frozen=True, slots=True)
class Notice:
    """A message about an event of a room or of a target. For a target, `room` is "", and `waiting`,
    `active` and `cap` are its jobs, calls and `concurrency`. `threshold` is notify_above; only
    queue_over and target_queue_over have it. Only site_state has `site`."""

    id: str
    event: RoomEventName | TargetEventName | Literal["site_state", "test"]
    room: str
    at_ms: int
    waiting: int
    active: int
    cap: int
    wait_seconds: int | None = None
    threshold: int | None = None
    target: str = ""
    site: SiteChange | None = None


@dataclass(frozen=True, slots=True)
class CalledVisitor:
    """A visitor who was called, because it is the visitor's turn. `claim_url` is never stored,
    because it admits anybody who has it."""

    visitor: str
    called_ms: Annotated[int, Field(validation_alias=AliasChoices("called_ms", "at_ms"))]
    claim_before_ms: int = 0
    claim_url: str = ""
    #: Fields of the visitor's ticket. None if the event in the room's stream does not have them.
    order: int | None = None
    joined_ms: int | None = None
    #: The id of the event in the room's stream.
    id: str = ""


@dataclass(frozen=True, slots=True)
class CallNotice:
    """A message about visitors of a room who were called. The last call was at `at_ms`."""

    id: str
    room: str
    at_ms: int
    calls: tuple[CalledVisitor, ...]
    event: Literal["called"] = "called"
    #: A Notice has this attribute too.
    target: ClassVar[str] = ""


AnyNotice: TypeAlias = Notice | CallNotice


def create_test_notice(room: str, cap: int) -> Notice:
    """Create a test message, which an operator sends."""
    at_ms = int(time.time() * 1000)
    return Notice(f"test-{secrets.token_hex(8)}", "test", room, at_ms, waiting=0, active=0, cap=cap)


class Document:
    """The base of dataclasses that Redis stores as JSON."""

    __slots__ = ()

    @classmethod
    @cache
    def _adapter(cls) -> TypeAdapter[Any]:
        return TypeAdapter(cls)

    def to_json(self) -> str:
        return self._adapter().dump_json(self, by_alias=True).decode()

    @classmethod
    def read(cls, json: str | bytes | None) -> Self | None:
        """Read a document. Return None if there is none, or this version cannot read it."""
        try:
            return None if json is None else cls._adapter().validate_json(json)
        except ValidationError:
            return None
