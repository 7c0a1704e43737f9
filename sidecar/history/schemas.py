"""Requests and responses of the history."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from sidecar.kit.http.models import OffsetPage, PageParameters, PageReply, Reply, Time, matching
from sidecar.kit.http.problem_kinds import Kind
from sidecar.rooms.schemas.common import RoomAddress

NO_HISTORY = Kind(
    "history_off", 404, "No history is kept: set history to a database", "No history is kept."
)
TOO_MANY_STAYS = Kind(
    "too_many_stays",
    422,
    "Too many stays for a replica",
    "More stays than a replica reports on: `waitroom report` knows no bound.",
)

_AGO = r"[0-9]{1,5}(\.[0-9]+)?(ms|s|m|h|d)"
_TIME = r"[0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{3})?)?(Z|[+-][0-9]{2}:[0-9]{2})?"
_MOMENT = f"^(|now|{_AGO}|[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}(T{_TIME})?)$"
#: How it may be written; history/lookups.py reads it.
Moment = Annotated[str, Field(json_schema_extra={"pattern": _MOMENT})]


class PeriodParameters(RoomAddress):
    from_: Annotated[Moment, Field(alias="from", examples=["24h", "2026-11-27T18:00Z"])] = ""
    """The period's beginning: a date or a time (ISO 8601; UTC where no zone is said), or how long
    ago. Otherwise a day ago."""
    to: Annotated[Moment, Field(examples=["now", "2026-11-28T00:00Z"])] = ""
    """The period's end, which is no part of it. Otherwise now."""
    format: Literal["json", "csv"] = "json"
    """json, or csv for a spreadsheet."""


class StaysPage(PeriodParameters, OffsetPage):
    pass


class ChangesPage(PeriodParameters, PageParameters):
    after: Annotated[
        str, *matching("([0-9]{1,15}-[0-9]{1,18})?", "the `next` of the page before")
    ] = ""
    """Behind which the page begins: the `next` of the page before."""


class Stay(Reply):
    """One stay, from joining to its end. null: has not happened."""

    visitor: str
    class_: str = Field(alias="class")
    queue_order: int | None
    joined_at: Time | None
    queued_at: Time | None
    called_at: Time | None
    admitted_at: Time | None
    ended_at: Time | None
    end_reason: str | None
    """session, left, released, silent, swept, no_show, unseen, reset or stuck"""
    first_position: int | None
    last_position: int | None
    returns: int
    moved_at: Time | None
    changed_at: Time
    """When it was last heard of."""
    state: Literal["waiting", "called", "inside", "ended"]


class PlaceAt(Reply):
    at: Time
    position: int


class Event(Reply):
    """What else is known of it is text: order, joined, position, by, detail."""

    model_config = ConfigDict(extra="allow")

    id: Annotated[str, Field(pattern="^[0-9]+-[0-9]+$")]
    """Never the same twice in a room."""
    at: Time
    kind: str
    """joined, called, admitted, expired, left, released or operator"""
    why: str
    """How it came about."""


class VisitorHistory(Reply):
    room: str
    visitor: str
    stay: Stay
    places: list[PlaceAt]
    """Its place in the queue over time, 1,000 points at most."""
    events: list[Event]
    """1,000 at most."""


class Period(Reply):
    room: str
    from_: Time = Field(alias="from")
    to: Time


class Stays(Period, PageReply):
    stays: list[Stay]


class Change(Reply):
    at: Time
    by: str
    what: str
    visitor: str
    detail: str


class RoomChanges(Period, PageReply):
    changes: list[Change]


class RoomReport(Period):
    """The stays that began in the period. Times are seconds, shares from 0 to 1; null: there was
    nobody to say it of."""

    stays: int
    admitted_at_once: int
    admitted_after_wait: int
    waiting: int
    inside: int
    abandoned: int
    no_shows: int
    abandonment: float | None
    no_show_share: float | None
    released: int
    reset: int
    stuck: int
    wait_p50: float | None
    wait_p90: float | None
    wait_p99: float | None
    wait_max: float | None
    gave_up_after_p50: float | None
    inside_p50: float | None
    inside_p90: float | None
    inversions: int
    """Called later than somebody behind them while both stood in the queue."""
    moved: int
