"""Events: when a room opens, which settings are in force then, and its phase before and after."""

from collections.abc import Iterable, Sequence
from functools import cache
from importlib.resources import files
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from sidecar.kit.moments import Moment
from sidecar.kit.setting_types import Count
from sidecar.kit.values import value
from sidecar.visitors.classes import Name, find_duplicates, parse_list, parse_table, reject_problems
from sidecar.visitors.model import Phase

#: The most events of a room. There is a limit because every script call sends all of them.
MAX_EVENTS = 20


@cache
def _zones() -> frozenset[str]:
    """Return the names of time zones, from the package tzdata, so the same on every machine."""
    return frozenset((files("tzdata") / "zones").read_text(encoding="utf-8").split())


class RoomEvent(BaseModel):
    """One opening of a room. Times are stored in ms since 1970, UTC."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Name
    """The name of the event, unique in the room and written like a class's name. Visitors can read
    it in the status document, and a lottery draw depends on it."""
    timezone: str = "UTC"
    """The time zone of those times below that have no offset."""
    prequeue_from: Moment | None = None
    """The begin of the pre-queue, before `opens_at`. From then on visitors join, and their places
    are drawn by lot at the opening. None: nobody can join before the opening."""
    opens_at: Moment
    """The opening: from this time on visitors are admitted."""
    closes_at: Moment | None = None
    """The close, after `opens_at`. From then on `between_events` applies. None: the room stays open
    until the next event begins."""
    total_active_users: Count | None = Field(default=None, ge=0, le=10_000_000)
    """Replaces the room's own `total_active_users` from the opening to the close."""
    new_users_per_minute: Count | None = Field(default=None, ge=1, le=10_000_000)
    """Replaces the room's own `new_users_per_minute` from the opening to the close."""
    message: str | None = Field(default=None, max_length=500)
    """Replaces the room's own `message` from the opening to the close. Empty: no message."""

    @field_validator("timezone")
    @classmethod
    def _check_timezone(cls, value: str) -> str:
        if value not in _zones():
            raise ValueError(
                'no time zone is called so: write a name such as "Europe/Zurich", or "UTC"'
            )
        return value

    @field_validator("opens_at", "closes_at")
    @classmethod
    def _check_sequence(cls, value: int | None, info: ValidationInfo) -> int | None:
        before = "prequeue_from" if info.field_name == "opens_at" else "opens_at"
        earlier_ms = info.data.get(before) if "timezone" in info.data else None
        if value is not None and earlier_ms is not None and value <= earlier_ms:
            raise ValueError(f"must be later than {before}")
        return value

    @property
    def begins_ms(self) -> int:
        """The time in ms from which on visitors may join: the pre-queue's begin or the opening."""
        return self.opens_at if self.prequeue_from is None else self.prequeue_from

    @property
    def ends_ms(self) -> int:
        """The end of the event in ms. An event without closes_at ends 1 ms after its opening."""
        return self.opens_at + 1 if self.closes_at is None else self.closes_at

    @property
    def draw_key(self) -> str:
        """The name under which Redis stores the draw of the event's pre-queue."""
        return f"{self.name}:{self.begins_ms}"

    @property
    def overrides(self) -> dict[str, Any]:
        """The settings of the room that the event replaces while it is open, with their values."""
        names = {"total_active_users", "new_users_per_minute", "message"}
        return self.model_dump(include=names, exclude_none=True)


def find_event_problems(events: Sequence[RoomEvent]) -> list[str]:
    """Return the problems of a room's events in combination. Each event is valid by itself."""
    problems = []
    if len(events) > MAX_EVENTS:
        problems.append(
            f"at most {MAX_EVENTS} events, these are {len(events)}: take out those that are over"
        )
    names = find_duplicates(event.name for event in events)
    problems += [f"two events are called {name!r}" for name in names]
    last: RoomEvent | None = None  # the event so far that ends last
    for event in sorted(events, key=lambda event: event.begins_ms):
        if last is not None and event.begins_ms < last.ends_ms:
            end = "has opened" if last.closes_at is None else "is over"
            problems.append(f"{event.name} begins before {last.name} {end}")
        if last is None or event.ends_ms > last.ends_ms:
            last = event
    return problems


_EVENT = '{"name": "sale", "timezone": "Europe/Zurich", "opens_at": "2026-12-01 10:00"}'
Events = Annotated[
    tuple[Annotated[RoomEvent, parse_table(_EVENT)], ...],
    parse_list(_EVENT),
    reject_problems(find_event_problems),
]


def list_draws(events: Iterable[RoomEvent]) -> list[RoomEvent]:
    """Return the events with a pre-queue, sorted by the begin of the pre-queue."""
    drawn = [event for event in events if event.prequeue_from is not None]
    return sorted(drawn, key=lambda event: event.begins_ms)


@value
class Moments:
    """A room's phase at one time, the event of that phase, and the next event."""

    phase: Phase
    #: The event that is in its pre-queue or open. None if there is no such event.
    event: RoomEvent | None = None
    #: The next event, which has not begun. None if no event is to come.
    coming: RoomEvent | None = None

    @property
    def overrides(self) -> dict[str, Any]:
        """The settings of the room that an open event replaces, with their values."""
        is_on = self.phase is Phase.OPEN
        return self.event.overrides if self.event is not None and is_on else {}


def moments(events: Sequence[RoomEvent], now_ms: int, *, is_open_between: bool) -> Moments:
    """Return a room's phase and events at a time. The scripts have the same rule
    (rooms/lua/parts/openings.lua)."""
    if not events:
        return Moments(Phase.OPEN)
    begun = [event for event in events if event.begins_ms <= now_ms]
    future = [event for event in events if event.begins_ms > now_ms]
    coming = min(future, key=lambda event: event.begins_ms, default=None)
    event = max(begun, key=lambda event: event.begins_ms, default=None)
    if event is not None:
        if now_ms < event.opens_at:
            return Moments(Phase.PREQUEUE, event, coming)
        if event.closes_at is None or now_ms < event.closes_at:
            return Moments(Phase.OPEN, event, coming)
    return Moments(Phase.OPEN if is_open_between else Phase.CLOSED, None, coming)


_Settings = TypeVar("_Settings", bound=BaseModel)


def apply_event_settings(settings: _Settings, now: Moments) -> _Settings:
    """Return a room's settings with the settings of an open event applied."""
    return settings.model_copy(update=now.overrides) if now.overrides else settings
