"""Events: a room that opens at a time, what holds in it then, and what it is before and after."""

from __future__ import annotations

import contextlib
import re
from datetime import UTC, datetime
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Annotated, Any, TypeVar
from zoneinfo import ZoneInfo

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, field_validator

from sidecar.base.classes import Name, a_list, a_table, repeated
from sidecar.base.fields import Count  # noqa: TC001 - pydantic reads it
from sidecar.base.values import value

if TYPE_CHECKING:
    from collections.abc import Sequence

#: A room's events. The scripts are given all of them.
MAX_EVENTS = 20
#: Of a time, in ms: until the year 2200.
LATEST_MS = 7_258_118_400_000
_TIME = re.compile(
    r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d(:\d\d)?)?", re.ASCII
)
_HOW = 'write a date and a time, such as "2026-12-01 10:00", or "2026-12-01T10:00+01:00"'


class Phase(StrEnum):
    """What a room does at a moment."""

    OPEN = "open"
    #: Nobody comes in, nobody takes a place, nobody is called.
    CLOSED = "closed"
    #: Places are taken and kept; nobody is called, and nobody is told a position.
    PREQUEUE = "prequeue"


@cache
def _zones() -> frozenset[str]:
    """The time zones' names; the same on every machine, unlike those that the system knows."""
    return frozenset((files("tzdata") / "zones").read_text(encoding="utf-8").split())


def _zone(value: str) -> str:
    if value not in _zones():
        raise ValueError(
            'no time zone is called so: write a name such as "Europe/Zurich", or "UTC"'
        )
    return value


def read_moment(value: object, zone: str) -> int:
    """Milliseconds since 1970 of a time as settings have it: text, TOML's own, or milliseconds
    already. Without an offset it is what the clocks on the walls of a time zone show.

    Raises ValueError, which says how to write it.
    """
    moment = _in_text(value) if isinstance(value, str) else value
    if isinstance(moment, datetime):
        if moment.tzinfo is None:
            moment = _on_the_wall(moment, zone)
        return round(moment.timestamp() * 1000)
    if isinstance(moment, bool) or not isinstance(moment, int | float) or moment % 1 != 0:
        raise ValueError(_HOW)
    return int(moment)


def _in_text(value: str) -> datetime:
    text = value.strip().upper()
    if _TIME.fullmatch(text):  # Python would take much more
        with contextlib.suppress(ValueError):
            return datetime.fromisoformat(text)
    raise ValueError(_HOW)


def _on_the_wall(moment: datetime, zone: str) -> datetime:
    """Raises ValueError where the clocks show that time never, or twice."""
    where = ZoneInfo(zone)
    before, after = (moment.replace(tzinfo=where, fold=fold) for fold in (0, 1))
    if before.utcoffset() == after.utcoffset():
        return before
    # In UTC and back is a time that the clocks do show.
    meant = [one.astimezone(UTC).astimezone(where) for one in (before, after)]
    if meant[0].replace(tzinfo=None) == moment:
        what, do = "comes twice", "put back then: say which with its offset,"
    else:
        what, do = "never comes", "put forward then: write the time that is meant,"
    first, second = (_written(one) for one in sorted(meant))
    raise ValueError(
        f"{_written(moment)} {what} in {zone}, where the clocks are {do} {first} or {second}"
    )


def _written(moment: datetime) -> str:
    has_seconds = moment.second or moment.microsecond
    return moment.isoformat(" ", "auto" if has_seconds else "minutes")


def parse_moment(value: object, info: ValidationInfo) -> int:
    moment_ms = read_moment(value, str(info.data.get("timezone", "UTC")))
    if not 0 <= moment_ms <= LATEST_MS:
        raise ValueError("write a time from 1970 to 2199")
    return moment_ms


Moment = Annotated[int, BeforeValidator(parse_moment), Field(ge=0, le=LATEST_MS)]


class RoomEvent(BaseModel):
    """One opening. Times are kept in ms since 1970, UTC."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Name
    #: Of the times that are written without an offset.
    timezone: str = "UTC"
    #: From then on places are taken, which are drawn; None: nobody can come before the opening.
    prequeue_from: Moment | None = None
    opens_at: Moment
    #: None: it stays open until the next event begins.
    closes_at: Moment | None = None
    #: What holds instead of the room's own from the opening to the close; None: the room's own.
    total_active_users: Count | None = Field(default=None, ge=0, le=10_000_000)
    new_users_per_minute: Count | None = Field(default=None, ge=1, le=10_000_000)
    message: str | None = Field(default=None, max_length=500)

    @field_validator("timezone")
    @classmethod
    def _is_known(cls, value: str) -> str:
        return _zone(value)

    @field_validator("opens_at")
    @classmethod
    def _opens_after_the_prequeue(cls, value: int, info: ValidationInfo) -> int:
        begins = info.data.get("prequeue_from")
        if begins is not None and begins >= value and "timezone" in info.data:
            raise ValueError("must be later than prequeue_from")
        return value

    @field_validator("closes_at")
    @classmethod
    def _closes_after_the_opening(cls, value: int | None, info: ValidationInfo) -> int | None:
        opens = info.data.get("opens_at")
        if value is None or opens is None or "timezone" not in info.data:
            return value
        if value <= opens:
            raise ValueError("must be later than opens_at")
        return value

    @property
    def begins_ms(self) -> int:
        """From when on anybody can have a place."""
        return self.opens_at if self.prequeue_from is None else self.prequeue_from

    @property
    def overrides(self) -> dict[str, Any]:
        """The room's settings that it replaces while it is open."""
        names = ("total_active_users", "new_users_per_minute", "message")
        values = {name: getattr(self, name) for name in names}
        return {name: value for name, value in values.items() if value is not None}


_EVENT = '{"name": "sale", "timezone": "Europe/Zurich", "opens_at": "2026-12-01 10:00"}'
Events = Annotated[tuple[Annotated[RoomEvent, a_table(_EVENT)], ...], a_list(_EVENT)]


def problems_of_events(events: Sequence[RoomEvent]) -> list[str]:
    """What is wrong with a room's events, each for itself right."""
    problems = []
    if len(events) > MAX_EVENTS:
        problems.append(
            f"at most {MAX_EVENTS} events, these are {len(events)}: take out those that are over"
        )
    names = repeated(event.name for event in events)
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


def _ends_ms(event: RoomEvent) -> int:
    """What is open until the next begins is open for a moment at least."""
    return event.opens_at + 1 if event.closes_at is None else event.closes_at


@value
class Moments:
    """A room's phase, the event that it is about, and the event that comes next."""

    phase: Phase
    #: The one in whose pre-queue or opening we are.
    event: RoomEvent | None = None
    #: The next one that has not begun.
    coming: RoomEvent | None = None

    @property
    def overrides(self) -> dict[str, Any]:
        """The room's settings that an open event replaces, with what it replaces them by."""
        is_on = self.phase is Phase.OPEN
        return self.event.overrides if self.event is not None and is_on else {}


_ALWAYS_OPEN = Moments(Phase.OPEN)


def moments(events: Sequence[RoomEvent], now_ms: int, *, is_open_between: bool) -> Moments:
    """What holds at a time. The scripts decide by the same rule (lua/shared/events.lua)."""
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
    """A room's settings as they hold at its moments: with an open event's laid over them."""
    return settings.model_copy(update=now.overrides) if now.overrides else settings
