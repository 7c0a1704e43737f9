"""Events: when a room opens, which settings apply then, and its phase before and after."""

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

#: The most events of a room. The scripts get all of them.
MAX_EVENTS = 20


@cache
def _zones() -> frozenset[str]:
    """Return the names of time zones. They are the package's, so the same on every machine."""
    return frozenset((files("tzdata") / "zones").read_text(encoding="utf-8").split())


class RoomEvent(BaseModel):
    """One opening. Times are kept in ms since 1970, UTC."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Name
    """Written like a class's name, and used once. Visitors can read it in the status document, and
    a lottery draw depends on it."""
    timezone: str = "UTC"
    """The time zone of times without an offset."""
    prequeue_from: Moment | None = None
    """From this time on visitors take places, which are drawn by lot at the opening. It is before
    `opens_at`. None: nobody can come before the opening."""
    opens_at: Moment
    """From this time on visitors are let in."""
    closes_at: Moment | None = None
    """From this time on the room does what `between_events` says. It is after `opens_at`. None: it
    stays open until the next event begins."""
    total_active_users: Count | None = Field(default=None, ge=0, le=10_000_000)
    """Replaces the room's own from the opening to the close."""
    new_users_per_minute: Count | None = Field(default=None, ge=1, le=10_000_000)
    """Replaces the room's own from the opening to the close."""
    message: str | None = Field(default=None, max_length=500)
    """Replaces the room's own from the opening to the close. An empty text: no message."""

    @field_validator("timezone")
    @classmethod
    def _is_known(cls, value: str) -> str:
        if value not in _zones():
            raise ValueError(
                'no time zone is called so: write a name such as "Europe/Zurich", or "UTC"'
            )
        return value

    @field_validator("opens_at", "closes_at")
    @classmethod
    def _is_after_the_step_before(cls, value: int | None, info: ValidationInfo) -> int | None:
        before = "prequeue_from" if info.field_name == "opens_at" else "opens_at"
        earlier_ms = info.data.get(before) if "timezone" in info.data else None
        if value is not None and earlier_ms is not None and value <= earlier_ms:
            raise ValueError(f"must be later than {before}")
        return value

    @property
    def begins_ms(self) -> int:
        """From this time on visitors may take places."""
        return self.opens_at if self.prequeue_from is None else self.prequeue_from

    @property
    def draw_key(self) -> str:
        """The name of its pre-queue's draw in Redis."""
        return f"{self.name}:{self.begins_ms}"

    @property
    def overrides(self) -> dict[str, Any]:
        """The room's settings that the event replaces while it is open."""
        names = {"total_active_users", "new_users_per_minute", "message"}
        return self.model_dump(include=names, exclude_none=True)


def problems_of_events(events: Sequence[RoomEvent]) -> list[str]:
    """Return what is wrong with a room's events together; each is valid by itself."""
    problems = []
    if len(events) > MAX_EVENTS:
        problems.append(
            f"at most {MAX_EVENTS} events, these are {len(events)}: take out those that are over"
        )
    names = find_duplicates(event.name for event in events)
    problems += [f"two events are called {name!r}" for name in names]
    lasting: RoomEvent | None = None
    for event in sorted(events, key=lambda event: event.begins_ms):
        if lasting is not None and event.begins_ms < _ends_ms(lasting):
            problems.append(
                f"{event.name} begins before {lasting.name} is over"
                if lasting.closes_at is not None
                else f"{event.name} begins before {lasting.name} has opened"
            )
        if lasting is None or _ends_ms(event) > _ends_ms(lasting):
            lasting = event
    return problems


_EVENT = '{"name": "sale", "timezone": "Europe/Zurich", "opens_at": "2026-12-01 10:00"}'
Events = Annotated[
    tuple[Annotated[RoomEvent, parse_table(_EVENT)], ...],
    parse_list(_EVENT),
    reject_problems(problems_of_events),
]


def draws_of(events: Iterable[RoomEvent]) -> list[RoomEvent]:
    """Return the events with a pre-queue, ordered by when it begins."""
    drawn = [event for event in events if event.prequeue_from is not None]
    return sorted(drawn, key=lambda event: event.begins_ms)


def problems_of_change(
    before: Sequence[RoomEvent], after: Sequence[RoomEvent], now_ms: int
) -> list[str]:
    """Return why a room's events must not be changed so. Places that were taken would be drawn with
    another secret, or new ones with a secret that is known. An event may be removed at any time,
    which cancels it."""
    named, draw_keys = {event.name: event for event in after}, {event.draw_key for event in before}
    new = [
        one for one in draws_of(after) if one.draw_key not in draw_keys and one.begins_ms <= now_ms
    ]
    problems = []
    for event in draws_of(before):
        same = named.get(event.name)
        if event.begins_ms <= now_ms < event.opens_at:
            instead = [one.name for one in new if one.opens_at > event.begins_ms]
            if same is not None and same.prequeue_from != event.prequeue_from:
                problems.append(
                    f"events: {event.name}: its pre-queue is on: leave prequeue_from alone, or "
                    "take the event out to cancel it"
                )
            elif same is None and instead:
                problems.append(
                    f"events: {instead[0]}: the pre-queue of {event.name} is on: leave its name "
                    "alone, or take the event out to cancel it"
                )
        elif event.opens_at <= now_ms and _opens_later(event, same):
            problems.append(
                f"events: {event.name}: its secret is published; give the next event a name of "
                "its own"
            )
    return problems


def _opens_later(event: RoomEvent, after: RoomEvent | None) -> bool:
    """Return True if the same draw, with the same secret, opens later than before."""
    if after is None or after.prequeue_from is None or after.draw_key != event.draw_key:
        return False
    return after.opens_at > event.opens_at


def _ends_ms(event: RoomEvent) -> int:
    """Return when an event ends. One without an end lasts a moment at least."""
    return event.opens_at + 1 if event.closes_at is None else event.closes_at


@value
class Moments:
    """A room's phase, the event that it belongs to, and the event that comes next."""

    phase: Phase
    #: The event whose pre-queue or opening is on.
    event: RoomEvent | None = None
    #: The next event that has not begun.
    coming: RoomEvent | None = None

    @property
    def overrides(self) -> dict[str, Any]:
        """The room's settings that an open event replaces, by name with their new values."""
        is_on = self.phase is Phase.OPEN
        return self.event.overrides if self.event is not None and is_on else {}


_ALWAYS_OPEN = Moments(Phase.OPEN)


def moments(events: Sequence[RoomEvent], now_ms: int, *, is_open_between: bool) -> Moments:
    """Return the phase and events at a time. The scripts decide by the same rule
    (rooms/lua/parts/openings.lua)."""
    if not events:
        return _ALWAYS_OPEN
    begun = [event for event in events if event.begins_ms <= now_ms]
    yet = [event for event in events if event.begins_ms > now_ms]
    coming = min(yet, key=lambda event: event.begins_ms, default=None)
    event = max(begun, key=lambda event: event.begins_ms, default=None)
    if event is not None:
        if now_ms < event.opens_at:
            return Moments(Phase.PREQUEUE, event, coming)
        if event.closes_at is None or now_ms < event.closes_at:
            return Moments(Phase.OPEN, event, coming)
    return Moments(Phase.OPEN if is_open_between else Phase.CLOSED, None, coming)


_Settings = TypeVar("_Settings", bound=BaseModel)


def during(settings: _Settings, now: Moments) -> _Settings:
    """Return a room's settings with those of an open event laid over them."""
    return settings.model_copy(update=now.overrides) if now.overrides else settings
