"""Request and response models of the endpoints for a room's state, events and grants."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from sidecar.http.models import Body, Reply, Time, Whole, wanted
from sidecar.kit.setting_types import DURATION, parse_duration
from sidecar.rooms.adaptive.controller import StateName
from sidecar.rooms.messages import Message
from sidecar.rooms.schemas.common import Count, Position, RoomAddress, RoomReply
from sidecar.rooms.settings import RoomSettings
from sidecar.visitors.grants import MAX_LIFE_S
from sidecar.visitors.model import Phase

MAX_GRANTS = 1000
DEFAULT_LIFETIME_S = 86_400


class PreviewParameters(RoomAddress):
    at: Time | None = None
    """The time to preview instead of now. Without an offset, it is in the events' time zone, as in
    2026-12-01 10:05."""


class GrantRequest(Body):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"class": "vip", "expires_in": "2h"},
                {"class": "vip", "once": True, "count": 100},
            ],
            "anyOf": [
                {"properties": {"once": {"const": True}}, "required": ["once"]},
                {"properties": {"count": {"const": 1}}},
            ],
        }
    )
    class_: Annotated[str, wanted('is needed, such as {"class": "vip"}')] = Field(alias="class")
    """The class that the grants give to visitors."""
    expires_in: Annotated[
        int | float,
        BeforeValidator(parse_duration),
        wanted('write a number of seconds, or text such as "2h"'),
        Field(
            json_schema_extra={
                "anyOf": [
                    {"type": "number", "exclusiveMinimum": 0, "maximum": MAX_LIFE_S},
                    {"type": "string", "pattern": DURATION},
                ]
            }
        ),
    ] = DEFAULT_LIFETIME_S
    """How long the grants are valid: seconds, or text such as `2h`; at most 366 days."""
    once: bool = False
    """Whether each grant can be used only once, by one visitor."""
    count: Annotated[Whole, Field(ge=1, le=MAX_GRANTS)] = 1
    """How many grants to issue. More than one requires `once`."""

    @model_validator(mode="after")
    def _require_once_for_several(self) -> "GrantRequest":
        if self.count > 1 and not self.once:
            raise ValueError("count: all would be the same; say once too")
        return self


class SubQueue(Reply):
    line: str
    """The sub-queue's name."""
    waiting: Count
    """Visitors in the sub-queue."""
    wait_seconds: Count | None
    """The estimated wait of a newcomer. null: unknown."""


RoomStateName = Literal[
    "no_redis",
    "recovering",
    "off",
    "paused",
    "draining",
    "closed",
    "prequeue",
    "cap_0",
    "at_cap",
    "running",
]


class SiteState(Reply):
    """The state of the site behind an adaptive room, as last measured."""

    state: StateName
    """`healthy`: the ceiling grows while the room is full. `strained`: one visitor may enter when
    another leaves. `overloaded`: nobody is called until enough have left. `slow without load`:
    fewer visitors did not help. `no signal`: nginx reports too few responses."""
    text: str
    """The state in words."""
    ceiling: Count
    """How many visitors may be inside, or could be with `mode = "on"`."""
    sustainable: Count | None
    """How many visitors the site can probably serve. null: it was never overloaded."""
    p90_seconds: Annotated[float, Field(ge=0)]
    """The p90 of the response times, in seconds."""
    error_share: float
    """The share of errors, from 0 to 1."""
    responses: Count
    """The number of responses on which these figures are based."""


class RoomState(RoomReply):
    state: RoomStateName
    """What the room does, as the dashboard and the commands show it: the first of these that
    applies. `recovering`: Redis was emptied, and nobody is called. `off`: all visitors pass.
    `paused`, `draining`, `closed`, `prequeue`: as in `mode` and `phase`. `cap_0`: nobody is let in.
    `at_cap`: all slots are taken. `running`: none of these. `no_redis`: only in the dashboard."""
    mode: Literal["open", "paused", "draining", "running"]
    """`open`: all visitors pass. `paused`: nobody is called. `draining`: newcomers may not wait."""
    phase: Phase
    """The phase of the room, which its events determine."""
    site: SiteState | None
    """The state of the site, if the room is adaptive and the site was measured."""
    event: str | None
    """The event that is open or in its pre-queue. null: none."""
    coming: str | None
    """The next event. null: none."""
    waiting: Count
    """Visitors in the queue."""
    active: Count
    """Sessions, including those of called visitors."""
    provisional: Count
    """Sessions of visitors who were called and have not arrived yet."""
    wait_seconds: Count | None
    """The estimated wait of a newcomer. null: unknown."""
    lines: list[SubQueue]
    """The room's sub-queues. Drawn places are in none of them."""
    revision: Count
    """The number of the last change of settings. It grows with each change."""
    replicas: Count
    """Replicas that have called Redis in the last few seconds."""
    recovery_stage: Literal[0, 1, 2]
    """2: Redis was emptied, and nobody is called. 1: visitors may still be missing. 0: normal."""
    recovers_until: Time | None
    """When the recovery ends. null: `recovery_stage` is not 2."""
    settings: RoomSettings
    """The settings in force, including changes made at run time. Durations are in seconds, times
    in ms since 1970."""
    changed: dict[str, Any]
    """Only the settings that were changed at run time."""
    configured: dict[str, Any]
    """The configured values of the settings in `changed`, as this replica read them."""
    counters: dict[str, int]
    """Totals since Redis was last empty: `joined`, `called`, `admitted` and others."""


class RoomStates(Reply):
    rooms: list[RoomState]
    """All rooms."""


class Removed(RoomReply):
    removed: Count
    """How many places were removed."""


class Step(Reply):
    step: Literal["prequeue_from", "opens_at", "closes_at"]
    """The event's setting that contains this time."""
    phase: Phase
    """The phase that begins then."""
    at: Time
    """The time."""
    local: Time
    """The time in the event's time zone."""
    in_seconds: int
    """Seconds from now to this time. Negative: the time is past."""


class SettingsAtTime(Reply):
    total_active_users: Count
    """The cap at that time."""
    new_users_per_minute: Position | None
    """The rate at that time. null: no limit."""
    message: Message | None
    """The message at that time: a text, or a table with texts by language. null: none."""


class EventPreview(SettingsAtTime):
    """An event, with the settings in force while it is open."""

    name: str
    """The event's name."""
    timezone: str
    """The event's time zone."""
    state: Literal["coming", "prequeue", "open", "over"]
    """The event's state at the time of the preview."""
    before: Phase
    """The room's phase until the event begins."""
    steps: list[Step]
    """The steps of the event, by time."""


class EventsPreview(RoomReply, SettingsAtTime):
    at: Time
    """The time of the preview."""
    local: Time
    """The time in the events' time zone, or in UTC if they have several."""
    phase: Phase
    """The room's phase."""
    event: str | None
    """The event that is open or in its pre-queue. null: none."""
    coming: str | None
    """The next event. null: none."""
    mode: str
    """The room's mode."""
    events: list[EventPreview]
    """The events, by time."""
    warnings: list[str]
    """Warnings about settings that are allowed but look like mistakes."""


class IssuedGrants(RoomReply):
    class_: str = Field(serialization_alias="class")
    """The class that the grants give."""
    expires_at: Time
    """When the grants expire."""
    grants: list[str]
    """The grants. Add `waitroom_grant=…` to the address of a page."""
