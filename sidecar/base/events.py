"""Events: a room that opens at a time, what holds in it then, and what it is before and after."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any
from zoneinfo import ZoneInfo

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, field_validator

from sidecar.base.classes import Name, from_json
from sidecar.base.fields import Count  # noqa: TC001 - pydantic reads it

if TYPE_CHECKING:
    from collections.abc import Sequence

#: A room's events. The scripts are given all of them.
MAX_EVENTS = 20
#: Of a time, in ms: until the year 2200.
_LATEST_MS = 7_258_118_400_000


class Phase(StrEnum):
    """What a room does at a moment."""

    OPEN = "open"
    #: Nobody comes in, nobody takes a place, nobody is called.
    CLOSED = "closed"
    #: Places are taken and kept; nobody is called, and nobody is told a position.
    PREQUEUE = "prequeue"


def _zone(value: str) -> str:
    try:
        ZoneInfo(value)
    except (ValueError, OSError):
        raise ValueError('write a name such as "Europe/Zurich", or "UTC"') from None
    return value


def _moment(value: object, info: ValidationInfo) -> object:
    """Milliseconds from text: by the offset in it, or by the event's time zone."""
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    if not isinstance(value, (str, datetime)):
        raise ValueError('write a time such as "2026-12-01 10:00"')  # noqa: TRY004
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        raise ValueError('write a time such as "2026-12-01 10:00"') from None
    if moment.tzinfo is None:
        moment = _local(moment, str(info.data.get("timezone", "UTC")))
    return round(moment.timestamp() * 1000)


def _local(moment: datetime, zone: str) -> datetime:
    """What a clock on the wall shows, as a moment. Raises ValueError where it shows that time
    never, or twice."""
    earlier, later = (moment.replace(tzinfo=ZoneInfo(zone), fold=fold) for fold in (0, 1))
    if earlier.utcoffset() == later.utcoffset():
        return earlier
    there_and_back = earlier.astimezone(UTC).astimezone(ZoneInfo(zone)).replace(tzinfo=None)
    what = "comes twice" if there_and_back == moment else "does not exist"
    offsets = " or ".join(one.isoformat() for one in (earlier, later))
    raise ValueError(
        f"{moment} {what} in {zone}, where the clocks change then: give the offset too, as in "
        f"{offsets}"
    )


Moment = Annotated[int, BeforeValidator(_moment), Field(ge=0, le=_LATEST_MS)]


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
        if begins is not None and begins >= value:
            raise ValueError("must be later than prequeue_from")
        return value

    @field_validator("closes_at")
    @classmethod
    def _closes_after_the_opening(cls, value: int | None, info: ValidationInfo) -> int | None:
        opens = info.data.get("opens_at")
        if value is not None and opens is not None and value <= opens:
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


Events = Annotated[tuple[RoomEvent, ...], BeforeValidator(from_json)]


def problems_of_events(events: Sequence[RoomEvent]) -> list[str]:
    """What is wrong with a room's events, each for itself right."""
    problems = []
    if len(events) > MAX_EVENTS:
        problems.append(f"at most {MAX_EVENTS} events; take out those that are over")
    if len({event.name for event in events}) < len(events):
        problems.append("two events have the same name")
    in_order = sorted(events, key=lambda event: event.begins_ms)
    for before, after in pairwise(in_order):
        ends = before.opens_at if before.closes_at is None else before.closes_at
        if after.begins_ms < ends:
            problems.append(f"{before.name} and {after.name} overlap")
    return problems


@dataclass(frozen=True, slots=True)
class Moments:
    """A room's phase, the event that it is about, and the event that comes next."""

    phase: Phase
    #: The one in whose pre-queue or opening we are.
    event: RoomEvent | None = None
    #: The next one that has not begun.
    coming: RoomEvent | None = None


def moments(events: Sequence[RoomEvent], now_ms: int, *, is_open_between: bool) -> Moments:
    """What holds at a time. The scripts decide by the same rule (lua/shared/events.lua)."""
    if not events:
        return Moments(Phase.OPEN)
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
