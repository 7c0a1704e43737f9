"""Request and response models of the endpoints that change a room's settings or show its log."""

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, model_validator

from sidecar.http.models import Body, Reply, Whole
from sidecar.http.problem_kinds import Kind
from sidecar.rooms.acts import describe_act, find_reason
from sidecar.rooms.schemas.common import Count, Milliseconds, RoomAddress, RoomReply
from sidecar.rooms.schemas.rooms import RoomState
from sidecar.rooms.schemas.visitors import Why
from sidecar.rooms.settings import RoomSettings

UNKNOWN_CHANGE = Kind(
    "unknown_change",
    404,
    "Unknown change",
    "The room's log has no change with that revision, or no longer has it.",
    "Set the values yourself. A long value, such as a style sheet, is not kept.",
)
CHANGED_SINCE = Kind(
    "changed_since",
    409,
    "Changed since",
    "A setting has been changed again since this change. Nothing was undone.",
    "See the room's log, and talk to the operator who made the later change.",
)


class ChangeParameters(RoomAddress):
    why: Why = ""
    """The reason, which is written to the log."""


class ActAddress(ChangeParameters):
    act: Literal["pause", "drain", "resume"]
    """The action."""
    clear_message: bool = False
    """Also clears the message that was set at run time, in the same change."""


class HoldParameters(ChangeParameters):
    seconds: Annotated[Whole, Field(ge=1, le=86_400)] = 300
    """For how long nobody is called."""


class Alert(Body):
    """The message of Alertmanager's webhook. Its other members are ignored."""

    model_config = ConfigDict(extra="ignore")

    status: Literal["firing", "resolved"] | None = None
    """`firing`: a longer hold stays as it is. `resolved`: ends the hold that an alert began."""
    common_annotations: dict[str, Any] = Field(default={}, alias="commonAnnotations")
    """`summary` is the reason."""


class Changes(Body):
    """Settings by name, validated like the settings file. app/openapi/settings.py adds their
    schema."""

    model_config = ConfigDict(extra="allow")

    @model_validator(mode="before")
    @classmethod
    def _reject_empty_body(cls, body: Any) -> Any:
        if not body:
            raise ValueError("the body names no setting")
        return body


class Undo(Body):
    revision: Annotated[Whole, Field(ge=1, examples=[12])]
    """The revision of the change to undo: `change` in its response, `revision` in the log."""


class ChangedRoom(RoomState):
    change: Count
    """The revision of this change, which an undo names."""


class Outlook(Reply):
    """A forecast of how the queue moves."""

    cap: Count
    """`total_active_users`, or the value that an open event replaces it with."""
    called_in_a_minute: Count
    """Visitors in the queue who are called within a minute."""
    first_called_seconds: Count | None
    """Seconds until the first visitor in the queue is called. null: unknown, or never."""
    last_called_seconds: Count | None
    """Seconds until the last visitor in the queue is called. null: unknown, or never."""


class Forecast(RoomReply):
    at_ms: Milliseconds
    """When the forecast was made."""
    waiting: Count
    """Visitors in the queue."""
    active: Count
    """Sessions, including those of called visitors."""
    now: Outlook
    """The forecast with the settings in force."""
    then: Outlook
    """The forecast with the change."""


class SettingChange(Reply):
    before: Any = Field(serialization_alias="from")
    """The previous value. null: as configured."""
    after: Any = Field(serialization_alias="to")
    """The new value. null: as configured."""


def read_changes(act: Mapping[str, Any]) -> dict[str, SettingChange] | None:
    """Return the old and new values of the settings that an action changed. Return None if the
    action changed no setting, or if an old value is unknown."""
    texts = act.get("changes") or {}
    if not texts or any(before is None for before, _ in texts.values()):
        return None
    return {
        name: SettingChange(before=json.loads(before or "null"), after=json.loads(after or "null"))
        for name, (before, after) in texts.items()
    }


class Act(Reply):
    at: Milliseconds
    """When the operator acted."""
    by: str
    """The name of the operator."""
    what: str
    """The action: `change`, `undo`, `reset`, `move`, `back`, `release` and others."""
    visitor: str
    """The id of the visitor concerned. Empty: the action does not concern one visitor."""
    detail: str
    """The new values, or the operator's reason."""
    text: str
    """What the operator did, in words."""
    why: str
    """The operator's reason for a change of settings."""

    revision: Count | None = None
    """The revision of a change of settings, which an undo names."""
    changes: dict[str, SettingChange] | None = None
    """The values before and after a change of settings, by setting."""

    @classmethod
    def from_log(cls, act: dict[str, Any], file_settings: RoomSettings) -> "Act":
        """Return the model of an entry of the log that rooms/store/lists.py has read."""
        words = {"text": describe_act(act, file_settings), "why": find_reason(act)}
        return cls.model_construct(**{**act, **words, "changes": read_changes(act)})


class RoomLog(RoomReply):
    log: list[Act]
    """The actions, latest first."""
