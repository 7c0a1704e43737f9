"""Defines a room's scheduled events: their times, and the room settings that they replace."""

from collections.abc import Iterable, Sequence
from functools import cache
from importlib.resources import files
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from sidecar.kit.moments import Moment
from sidecar.kit.setting_types import Count
from sidecar.kit.values import value
from sidecar.rooms.messages import Message
from sidecar.visitors.classes import (
    Name,
    find_duplicates,
    list_validator,
    problems_validator,
    table_validator,
)
from sidecar.visitors.model import Phase

#: The maximum number of events of a room. Each call of a Lua script sends all of them to Redis.
MAX_EVENTS = 20
#: The settings of a room that an open event can replace.
EVENT_SETTINGS = {"total_active_users", "new_users_per_minute", "message"}


@cache
def _read_time_zone_names() -> frozenset[str]:
    """Return the names of the time zones in the package tzdata. The machine's own may differ."""
    return frozenset((files("tzdata") / "zones").read_text(encoding="utf-8").split())


class RoomEvent(BaseModel):
    """One scheduled opening of a room. Times are stored in ms since 1970, UTC."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Name
    """The name of the event, unique in the room and written like a class name. Visitors
    can read it in the status document, and the lottery draw depends on it."""
    timezone: str = "UTC"
    """The time zone of the times below that have no UTC offset."""
    prequeue_from: Moment | None = None
    """When the pre-queue begins, which must be before `opens_at`. From then on, visitors join, and
    their places are drawn by lot at the opening. None: nobody can join before the opening."""
    opens_at: Moment
    """When the room opens. From then on, visitors are admitted."""
    closes_at: Moment | None = None
    """When the event ends, which must be after `opens_at`. From then on, `between_events` applies.
    None: the room stays open until the next event begins."""
    total_active_users: Count | None = Field(default=None, ge=0, le=10_000_000)
    """Replaces the room's own `total_active_users` from `opens_at` to `closes_at`."""
    new_users_per_minute: Count | None = Field(default=None, ge=1, le=10_000_000)
    """Replaces the room's own `new_users_per_minute` from `opens_at` to `closes_at`."""
    message: Message | None = None
    """Replaces the room's own `message` from `opens_at` to `closes_at`. Empty: no message."""

    @field_validator("timezone")
    @classmethod
    def _check_timezone(cls, value: str) -> str:
        if value not in _read_time_zone_names():
            raise ValueError(
                'no time zone is called so: write a name such as "Europe/Zurich", or "UTC"'
            )
        return value

    @field_validator("opens_at", "closes_at")
    @classmethod
    def _check_sequence(cls, value: int | None, info: ValidationInfo) -> int | None:
        earlier_step = "prequeue_from" if info.field_name == "opens_at" else "opens_at"
        earlier_ms = info.data.get(earlier_step) if "timezone" in info.data else None
        if value is not None and earlier_ms is not None and value <= earlier_ms:
            raise ValueError(f"must be later than {earlier_step}")
        return value

    @property
    def begins_ms(self) -> int:
        """The time from which visitors may join, in ms: the pre-queue's start, or the opening."""
        return self.opens_at if self.prequeue_from is None else self.prequeue_from

    @property
    def ends_ms(self) -> int:
        """The time at which the event ends, in ms: closes_at, or by default 1 ms after opens_at."""
        return self.opens_at + 1 if self.closes_at is None else self.closes_at

    @property
    def draw_key(self) -> str:
        """The name under which Redis stores the draw of the event's pre-queue."""
        return f"{self.name}:{self.begins_ms}"

    @property
    def overrides(self) -> dict[str, Any]:
        """The room settings that the event replaces while it is open, with its values for them."""
        return self.model_dump(include=EVENT_SETTINGS, exclude_none=True)


def find_event_problems(events: Sequence[RoomEvent]) -> list[str]:
    """Return the problems of valid events that belong to one room, such as an overlap."""
    problems = []
    if len(events) > MAX_EVENTS:
        problems.append(
            f"at most {MAX_EVENTS} events, these are {len(events)}: take out those that are over"
        )
    names = find_duplicates(event.name for event in events)
    problems += [f"two events are called {name!r}" for name in names]
    last: RoomEvent | None = None  # the event that ends last, of those checked so far
    for event in sorted(events, key=lambda event: event.begins_ms):
        if last is not None and event.begins_ms < last.ends_ms:
            end = "has opened" if last.closes_at is None else "is over"
            problems.append(f"{event.name} begins before {last.name} {end}")
        if last is None or event.ends_ms > last.ends_ms:
            last = event
    return problems


_EVENT_EXAMPLE = '{"name": "sale", "timezone": "Europe/Zurich", "opens_at": "2026-12-01 10:00"}'
Events = Annotated[
    tuple[Annotated[RoomEvent, table_validator(_EVENT_EXAMPLE)], ...],
    list_validator(_EVENT_EXAMPLE),
    problems_validator(find_event_problems),
]


def list_drawn_events(events: Iterable[RoomEvent]) -> list[RoomEvent]:
    """Return the events whose places are drawn by lot, earliest first: those with a pre-queue."""
    drawn_events = [event for event in events if event.prequeue_from is not None]
    return sorted(drawn_events, key=lambda event: event.begins_ms)


@value
class Schedule:
    """A room's schedule as of one time: the phase, the event of that phase, and the next event."""

    phase: Phase
    #: The event that is open or in its pre-queue. None if there is no such event.
    event: RoomEvent | None = None
    #: The next event, which has not begun. None if there is no such event.
    next_event: RoomEvent | None = None

    @property
    def overrides(self) -> dict[str, Any]:
        """The room settings that an open event replaces, with its values for them."""
        is_open = self.phase is Phase.OPEN
        return self.event.overrides if self.event is not None and is_open else {}


def find_schedule(events: Sequence[RoomEvent], now_ms: int, *, is_open_between: bool) -> Schedule:
    """Return a room's schedule as of a time, by the rule of rooms/lua/parts/openings.lua."""
    if not events:
        return Schedule(Phase.OPEN)
    future = (event for event in events if event.begins_ms > now_ms)
    next_event = min(future, key=lambda event: event.begins_ms, default=None)
    begun = (event for event in events if event.begins_ms <= now_ms)
    event = max(begun, key=lambda event: event.begins_ms, default=None)
    if event is not None:
        if now_ms < event.opens_at:
            return Schedule(Phase.PREQUEUE, event, next_event)
        if event.closes_at is None or now_ms < event.closes_at:
            return Schedule(Phase.OPEN, event, next_event)
    return Schedule(Phase.OPEN if is_open_between else Phase.CLOSED, None, next_event)


_Settings = TypeVar("_Settings", bound=BaseModel)


def apply_event_settings(settings: _Settings, schedule: Schedule) -> _Settings:
    """Return the settings, with the values of the open event if there is one."""
    return settings.model_copy(update=schedule.overrides) if schedule.overrides else settings
