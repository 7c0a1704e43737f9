"""Requests and responses about changes of a room's settings, and its log."""

import json
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, model_validator

from sidecar.http.models import Body, Reply, Whole
from sidecar.http.problem_kinds import Kind
from sidecar.rooms.schemas.common import Count, Milliseconds, OfRoom, RoomAddress
from sidecar.rooms.schemas.rooms import RoomState

UNKNOWN_CHANGE = Kind(
    "unknown_change",
    404,
    "Unknown change",
    "The room's log has no change of that revision, or not any more.",
    "Set the values yourself. A long value, such as a style sheet, is not kept.",
)
CHANGED_SINCE = Kind(
    "changed_since",
    409,
    "Changed since",
    "A setting was changed again since the change that you undo. Nothing was undone.",
    "Look at the room's log, and talk to the operator whom it names.",
)


class ActAddress(RoomAddress):
    act: Literal["pause", "drain", "resume"]
    """What to do."""


class Changes(Body):
    """Settings by name, whose rules are those of the configuration; described by
    api/openapi/settings.py."""

    model_config = ConfigDict(extra="allow")

    @model_validator(mode="before")
    @classmethod
    def _is_not_empty(cls, given: Any) -> Any:
        if not given:
            raise ValueError("the body names no setting")
        return given


class Undo(Body):
    revision: Annotated[Whole, Field(ge=1, examples=[12])]
    """Of the change: `change` of its response, or `revision` in the log."""


class ChangedRoom(RoomState):
    change: Count
    """The revision that this change made, by which it can be undone."""


class Outlook(Reply):
    """How the queue moves."""

    cap: Count
    """`total_active_users`, or what an open event sets instead."""
    called_in_a_minute: Count
    """Visitors in the queue who are called within a minute."""
    first_called_seconds: Count | None
    """Until the first of them is called. null: unknown, or nobody is called."""
    last_called_seconds: Count | None
    """Until the last of them is called. null: nobody waits, or as above."""


class Forecast(OfRoom):
    at_ms: Milliseconds
    """When it was made."""
    waiting: Count
    """In the queue."""
    active: Count
    """Sessions, called visitors included."""
    now: Outlook
    """With the settings in force."""
    then: Outlook
    """With the change."""


class SettingChange(Reply):
    before: Any = Field(serialization_alias="from")
    """The value before. null: as configured."""
    after: Any = Field(serialization_alias="to")
    """The new value. null: as configured."""


class Act(Reply):
    at: Milliseconds
    """When."""
    by: str
    """The operator's name, as given."""
    what: str
    """`change`, `undo`, `reset`, `move`, `back`, `release` and others."""
    visitor: str
    """The visitor's id. Empty: it was not about one visitor."""
    detail: str
    """The new values, or the reason given."""

    revision: Count | None = None
    """Of a change of settings: by it the change can be undone."""
    changes: dict[str, SettingChange] | None = None
    """The same, by setting."""

    @classmethod
    def of(cls, act: dict[str, Any]) -> "Act":
        """Read an entry of the log (rooms/store/lists.py)."""
        changes = act.get("changes") and {
            name: SettingChange(
                before=json.loads(before or "null"), after=json.loads(after or "null")
            )
            for name, (before, after) in act["changes"].items()
        }
        return cls.model_construct(**{**act, "changes": changes})


class RoomLog(OfRoom):
    log: list[Act]
    """Latest first."""


def _value(text: str) -> Any:
    return json.loads(text) if text else None
