"""The settings of one room. Each can be changed at run time too, by the same rules."""

from __future__ import annotations

import contextlib
import json
import re
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from sidecar.kit.errors import ConfigError
from sidecar.kit.setting_types import (
    Count,
    Networks,
    Paths,
    Percent,
    Seconds,
    from_text,
    problems_in,
)
from sidecar.queue.classes import Classes, Lines, problems_of_classes
from sidecar.queue.verdict_lifetime import OUTAGE_MS, RELEASE_HOLD_MS, SESSION_GRACE_MS
from sidecar.rooms.openings import Events, Moments, moments

#: Events that a room's stream holds where no history is kept.
EVENTS_KEPT = 100_000
_SITE = re.compile(r"https?://([A-Za-z0-9.-]+|\[[0-9a-fA-F:.]+\])(:[0-9]{1,5})?/?\Z")
#: Settings that the scripts do not need.
_NOT_FOR_SCRIPTS = {
    "message",
    "suspended",
    "sweep_interval",
    "queueing_status_code",
    "shield_above",
    "on_store_failure",
    "bind_pass",
    "rollout_percent",
    "exempt_addresses",
    "exempt_paths",
    "exempt_header",
    "notify_above",
    "rank_limit",
    "class_header",
    "public_url",
}


def _site(value: str) -> str:
    """A site's address, as links in messages begin."""
    match = _SITE.match(value)
    if match is None or int((match[2] or ":443")[1:]) not in range(1, 65_536):
        raise ValueError("write the site's address, such as https://shop.example, without a path")
    return value.rstrip("/")


#: The same, of an event.
_NOT_OF_EVENTS = {"name", "message", "timezone"}


class RoomSettings(BaseModel):
    """One room. Durations are in seconds; text such as "5m" is understood."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    total_active_users: Count = Field(ge=0, le=10_000_000)
    new_users_per_minute: Count | None = Field(default=None, ge=1, le=10_000_000)
    session_duration: Seconds = Field(default=300, ge=5, le=86_400 * 7)
    session_max_duration: Seconds | None = Field(default=None, ge=5, le=86_400 * 30)
    disable_session_renewal: bool = False
    queueing_method: Literal["fifo", "random", "passthrough", "reject"] = "fifo"
    queue_all: bool = False
    suspended: bool = False
    max_waiting: Count | None = Field(default=None, ge=0, le=1_000_000_000)
    rank_limit: Count | None = Field(default=None, ge=1, le=1_000_000_000)
    lines: Lines = ()
    classes: Classes = {}
    class_header: bool = False
    display: Literal["arrival", "order"] = "arrival"
    events: Events = ()
    between_events: Literal["closed", "open"] = "closed"
    heartbeat_timeout: Seconds = Field(default=120, ge=10, le=86_400)
    heartbeat_interval: Seconds | None = Field(default=None, ge=1, le=3600)
    sweep_interval: Seconds = Field(default=120, ge=1, le=3600)
    claim_window: Seconds = Field(default=30, ge=5, le=3600, validate_default=True)
    poll_limit: Count = Field(default=30, ge=1, le=1_000_000_000)
    shield_above: Count = Field(default=500, ge=1, le=10_000_000)
    on_store_failure: Literal["bounded", "admit", "wait"] = "bounded"
    recovery_window: Seconds | None = Field(default=None, ge=0, le=3600)
    bind_pass: Literal["none", "user_agent", "ip"] = "none"  # noqa: S105 - not a password
    max_places_per_address: Count | None = Field(default=None, ge=1, le=100)
    rollout_percent: Percent = Field(default=100, ge=0, le=100)
    exempt_addresses: Networks = None
    exempt_paths: Paths = None
    exempt_header: bool = False
    queueing_status_code: Annotated[Literal[200, 202, 429, 503], BeforeValidator(from_text)] = 503
    #: From how many waiting the event queue_over is sent.
    notify_above: Count | None = Field(default=None, ge=1, le=1_000_000_000)
    #: Where visitors find the site, for links that reach them elsewhere.
    public_url: Annotated[str, AfterValidator(_site)] | None = None
    message: str | None = Field(default=None, max_length=500)

    # Rules between fields are rules of the later field: pydantic asks a model's own
    # validator only when every field is right, and then a problem would hide another.
    @field_validator("heartbeat_interval")
    @classmethod
    def _beats_within_the_timeout(cls, value: float | None, info: ValidationInfo) -> float | None:
        timeout: float | None = info.data.get("heartbeat_timeout")
        if value is not None and timeout is not None and value > timeout / 2:
            raise ValueError(f"must be at most half of heartbeat_timeout ({timeout:g} s)")
        return value

    @field_validator("claim_window")
    @classmethod
    def _claims_within_the_timeout(cls, value: float, info: ValidationInfo) -> float:
        timeout: float | None = info.data.get("heartbeat_timeout")
        if timeout is not None and value > timeout:
            raise ValueError(f"must not be longer than heartbeat_timeout ({timeout:g} s)")
        return value

    @field_validator("classes")
    @classmethod
    def _classes_agree(cls, value: Classes, info: ValidationInfo) -> Classes:
        if problems := problems_of_classes(value, info.data.get("lines")):
            raise ValueError("\n".join(problems))
        return value

    @property
    def is_open(self) -> bool:
        """Whether everybody passes, uncounted."""
        return self.suspended or self.queueing_method == "passthrough"

    @property
    def mode(self) -> Literal["open", "paused", "draining", "running"]:
        """open: everybody passes; paused: nobody is called; draining: nobody new may wait, and the
        queue is called; running otherwise."""
        if self.is_open:
            return "open"
        if self.queue_all:
            return "paused"
        return "draining" if self.max_waiting == 0 else "running"

    def moments(self, now_ms: int) -> Moments:
        """What the room does at a time, by its events."""
        return moments(self.events, now_ms, is_open_between=self.between_events == "open")

    def for_scripts(
        self,
        *,
        events_kept: int = EVENTS_KEPT,
        tells_called: bool = False,
        outage_ms: int = OUTAGE_MS,
    ) -> str:
        """The settings as the scripts read them: JSON, unset ones left out. `events_kept`: about
        how many events the room's stream holds at most. `tells_called`: whether a webhook brings
        calls to visitors who have no page open. `outage_ms`: without a script for longer, nobody
        could be heard."""
        values = self.model_dump(exclude_none=True, exclude=_NOT_FOR_SCRIPTS)
        for event in values["events"]:
            for name in _NOT_OF_EVENTS & event.keys():
                del event[name]
        for name in ("lines", "classes", "events"):
            if not values[name]:
                del values[name]
        values["events_kept"] = events_kept
        values["tells_called"] = tells_called
        values["outage_ms"] = outage_ms
        values["session_grace_ms"] = SESSION_GRACE_MS
        values["release_hold_ms"] = RELEASE_HOLD_MS
        return json.dumps(values)

    def changed(self, overrides: dict[str, Any]) -> RoomSettings:
        """These settings with some replaced.

        Raises ConfigError naming each field that is unknown or not allowed.
        """
        try:
            return RoomSettings.model_validate({**self.model_dump(), **overrides})
        except ValidationError as error:
            raise ConfigError(problems_in(error, RoomSettings)) from None

    def overridden(self, overrides: dict[str, Any]) -> tuple[RoomSettings, list[str]]:
        """These settings with those changed at run time laid over them, and what is wrong with
        them. One that is not allowed here, or that only a later version knows, takes no other
        along: the scripts go by all of them."""
        try:
            return (self.changed(overrides) if overrides else self), []
        except ConfigError as error:
            problems = error.problems
        settings, left = self, dict(overrides)
        for _ in overrides:  # one may need another that comes later: a class its line
            for name in list(left):
                with contextlib.suppress(ConfigError):
                    settings = settings.changed({name: left[name]})
                    del left[name]
        return settings, problems
