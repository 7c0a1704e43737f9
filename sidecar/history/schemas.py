"""Requests and responses of the history."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AliasGenerator, ConfigDict, Field

from sidecar.kit.http.models import At, OffsetPage, PageParameters, PageReply, Reply, Time, matching
from sidecar.kit.http.problem_kinds import Kind
from sidecar.rooms.schemas.common import RoomAddress

NO_HISTORY = Kind(
    "history_off",
    404,
    "No history is kept: set history to a database",
    "No history is kept.",
    "Set `history` to a database, and restart the replicas.",
)
TOO_MANY_STAYS = Kind(
    "too_many_stays",
    422,
    "Too many stays for a replica",
    "A report covers more stays than a replica reads for one request.",
    "Ask for a shorter time, or run `waitroom report`.",
)

_AGO = r"[0-9]{1,5}(\.[0-9]+)?(ms|s|m|h|d)"
_TIME = r"[0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{3})?)?(Z|[+-][0-9]{2}:[0-9]{2})?"
_MOMENT = f"^(|now|{_AGO}|[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}(T{_TIME})?)$"
#: How it may be written; model.read_period reads it.
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

    @property
    def before(self) -> tuple[int, int] | None:
        """The ms and seq of the last change on the page before."""
        ms, _, seq = self.after.partition("-")
        return (int(ms), int(seq)) if self.after else None


class Stay(Reply):
    """One stay, from joining to its end. null: has not happened."""

    model_config = ConfigDict(
        from_attributes=True,
        alias_generator=AliasGenerator(validation_alias=lambda name: name.replace("_at", "_ms")),
    )
    visitor: str
    queue_order: int | None
    end_reason: str | None
    """session, left, released, silent, swept, no_show, unseen, reset or stuck"""
    first_position: int | None
    last_position: int | None
    returns: int
    joined_at: At | None
    queued_at: At | None
    called_at: At | None
    admitted_at: At | None
    ended_at: At | None
    moved_at: At | None
    changed_at: At
    """When it was last heard of."""
    class_name: Annotated[str, Field(serialization_alias="class")]
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
    """The reason."""


class VisitorHistory(Reply):
    room: str
    visitor: str
    stay: Stay
    places: list[PlaceAt]
    """Its place in the queue over time, 1,000 points at most."""
    events: list[Event]
    """1,000 at most."""


class InPeriod(Reply):
    room: str
    from_: Time = Field(alias="from")
    to: Time


class Stays(InPeriod, PageReply):
    stays: list[Stay]


class Change(Reply):
    model_config = ConfigDict(from_attributes=True)

    at: At = Field(validation_alias="at_ms")
    by: str = Field(validation_alias="operator")
    what: str = Field(validation_alias="action")
    visitor: str
    detail: str


class RoomChanges(InPeriod, PageReply):
    changes: list[Change]


class Report(Reply):
    """The stays that began in a period. Times are seconds, shares from 0 to 1; null: nobody to
    compute it from."""

    stays: int = 0
    admitted_at_once: int = 0
    admitted_after_wait: int = 0
    waiting: int = 0
    inside: int = 0
    abandoned: int = 0
    no_shows: int = 0
    abandonment: float | None
    """The share of visitors in the queue who gave up waiting."""
    no_show_share: float | None
    """The share of visitors in the queue who were called and did not come."""
    released: int = 0
    """By an operator."""
    reset: int = 0
    stuck: int = 0
    """Closed without an end that was recorded."""
    wait_p50: float | None
    """From joining to admission, of visitors who waited."""
    wait_p90: float | None
    wait_p99: float | None
    wait_max: float | None
    gave_up_after_p50: float | None
    inside_p50: float | None
    """Of visitors whose session has ended."""
    inside_p90: float | None
    inversions: int
    """Called later than somebody behind them while both stood in the queue, without those whom an
    operator moved or who came back."""
    moved: int = 0


class RoomReport(Report, InPeriod):
    pass
