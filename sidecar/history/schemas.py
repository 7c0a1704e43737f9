"""Models of the requests and responses of the API for the history."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import AliasGenerator, ConfigDict, Field

from sidecar.history.model import Period
from sidecar.http.models import At, OffsetPage, PageParameters, PageReply, Reply, Time, matching
from sidecar.http.problem_kinds import Kind
from sidecar.kit.moments import Past
from sidecar.rooms.acts import add_earlier_values, describe_act
from sidecar.rooms.schemas.changes import SettingChange, read_changes
from sidecar.rooms.schemas.common import RoomAddress
from sidecar.rooms.settings import RoomSettings

NO_HISTORY = Kind(
    "history_off",
    404,
    "No history is kept: set history to a database",
    "The history is off.",
    "Set `history` to a database, and restart the replicas.",
)
TOO_MANY_STAYS = Kind(
    "too_many_stays",
    422,
    "Too many stays for a replica",
    "The period has more stays than a replica reads for one request.",
    "Choose a shorter period, or run `waitroom report`.",
)


Share = Annotated[float, Field(ge=0, le=1)]


class PeriodParameters(RoomAddress):
    from_: Annotated[Past, Field(alias="from", examples=["24h", "2026-11-27T18:00Z"])] = ""
    """When the period begins: a time in ISO 8601, in UTC unless it has a zone, or a duration before
    now. Default: a day ago."""
    to: Annotated[Past, Field(examples=["now", "2026-11-28T00:00Z"])] = ""
    """When the period ends. This time is not in the period. Default: now."""
    format: Literal["json", "csv"] = "json"
    """The format of the response. `csv` is a table for a spreadsheet."""


class StaysPage(PeriodParameters, OffsetPage):
    pass


class ChangesPage(PeriodParameters, PageParameters):
    after: Annotated[
        str, *matching("([0-9]{1,15}-[0-9]{1,18})?", "the `next` of the page before")
    ] = ""
    """The `next` of the previous page."""

    @property
    def before(self) -> tuple[int, int] | None:
        """Return (ms, seq) of the last action on the previous page."""
        ms, _, seq = self.after.partition("-")
        return (int(ms), int(seq)) if self.after else None


class StayDocument(Reply):
    """A visitor's stay, from joining to its end. A time is null before it happens."""

    __qualname__ = "Stay"  # its name in the OpenAPI document

    model_config = ConfigDict(
        from_attributes=True,
        alias_generator=AliasGenerator(validation_alias=lambda name: name.replace("_at", "_ms")),
    )
    visitor: str
    """The visitor's id."""
    queue_order: int | None
    """The order in the queue. The visitor with the lowest order is called next."""
    end_reason: str | None
    """Why the stay ended: `session`, `left`, `finished`, `released`, `silent`, `swept`, `no_show`,
    `unused`, `unseen`, `reset` or `stuck`."""
    first_position: int | None
    """The position when the visitor joined the queue."""
    last_position: int | None
    """The last known position."""
    returns: int
    """How often the visitor returned to the same place, after Redis lost its data or after polling
    stopped."""
    joined_at: At | None
    """When the visitor joined."""
    queued_at: At | None
    """When the visitor last joined the queue."""
    called_at: At | None
    """When the visitor was called."""
    admitted_at: At | None
    """When the visitor was admitted."""
    ended_at: At | None
    """When the stay ended."""
    moved_at: At | None
    """When an operator last moved the visitor."""
    changed_at: At
    """When the last event of the stay was recorded."""
    class_name: Annotated[str, Field(serialization_alias="class")]
    """The visitor's class. Empty if the visitor has none."""
    state: Literal["waiting", "called", "inside", "ended"]
    """The state after the last event."""


class PlaceAt(Reply):
    at: Time
    """When the position changed."""
    position: int
    """The position in the queue from then on."""


class Event(Reply):
    """An event of a visitor. Its other members, such as order, position or detail, are strings."""

    model_config = ConfigDict(extra="allow")

    id: Annotated[str, Field(pattern="^[0-9]+-[0-9]+$")]
    """The event's id, unique in the room."""
    at: Time
    """When the event happened."""
    kind: str
    """`joined`, `called`, `admitted`, `expired`, `left`, `released`, `graded` (moved by a class),
    `promised` (the estimated wait was recorded) or `operator`."""
    why: str
    """The reason."""


class VisitorHistory(Reply):
    room: str
    """The room's name."""
    visitor: str
    """The visitor's id."""
    stay: StayDocument
    """The visitor's last stay."""
    places: list[PlaceAt]
    """The position over time, at most 1,000 points."""
    events: list[Event]
    """The latest events, at most 1,000, oldest first."""


class InPeriod(Reply):
    room: str
    """The room's name."""
    from_: Time = Field(alias="from")
    """When the period begins."""
    to: Time
    """When the period ends. This time is not in the period."""


class Stays(InPeriod, PageReply):
    stays: list[StayDocument]
    """The stays, oldest first."""


class Change(Reply):
    at: At = Field(validation_alias="at_ms")
    """When the operator acted."""
    by: str = Field(validation_alias="operator")
    """The operator's name, as in the request."""
    what: str
    """What the operator did."""
    visitor: str
    """The visitor's id. Empty if the action was not about one visitor."""
    detail: str
    """The new values, or the operator's reason."""
    text: str
    """What the operator did, in words."""
    changes: dict[str, SettingChange] | None = None
    """The values before and after a change of settings, by setting. null: the previous values are
    not known here. Not in CSV."""


class RoomChanges(InPeriod, PageReply):
    changes: list[Change]
    """The operators' actions, latest first."""


def create_changes_page(
    room: str, period: Period, changes: Sequence[Any], limit: int, *, configured: RoomSettings
) -> RoomChanges:
    """Create a page from rows of the table of operators' actions. `configured` has the room's
    settings from the settings file."""
    acts = add_earlier_values([{**row._asdict(), "what": row.action} for row in changes])
    documents = [
        Change.model_validate(
            {**act, "text": describe_act(act, configured), "changes": read_changes(act)}
        )
        for act in acts
    ]
    cursor = f"{changes[-1].ms}-{changes[-1].seq}" if len(changes) == limit else None
    return RoomChanges(**period.describe(room), changes=documents, next=cursor)


class Report(Reply):
    """A report on the stays that began in a period. Times are in seconds, and shares are from 0 to
    1. A time or share is null if no visitor counts toward it."""

    stays: int = 0
    """Stays that began in the period."""
    admitted_at_once: int = 0
    """Visitors admitted without waiting."""
    admitted_after_wait: int = 0
    """Visitors admitted from the queue."""
    finished: int = 0
    """Stays that the site ended, such as after a purchase."""
    expired: int = 0
    """Sessions that ended because no further request came."""
    left: int = 0
    """Sessions that the visitors ended themselves."""
    inside: int = 0
    """Visitors who are still inside."""
    waiting: int = 0
    """Visitors who are still waiting."""
    abandoned: int = 0
    """Visitors who gave up waiting."""
    no_shows: int = 0
    """Visitors who were called and did not come."""
    abandonment: float | None
    """The share of visitors in the queue who gave up waiting."""
    no_show_share: float | None
    """The share of visitors in the queue who were called and did not come."""
    released: int = 0
    """Stays that an operator ended."""
    reset: int = 0
    """Stays that a reset of the queue ended."""
    stuck: int = 0
    """Stays that the recorder closed, because no end was recorded."""
    wait_p50: float | None
    """The median wait of the visitors who waited, from joining to admission."""
    wait_p90: float | None
    """The 90th percentile of these waits."""
    wait_p99: float | None
    """The 99th percentile of these waits."""
    wait_max: float | None
    """The longest wait."""
    gave_up_after_p50: float | None
    """The median wait of the visitors who gave up."""
    inside_p50: float | None
    """The median length of ended sessions."""
    inside_p90: float | None
    """The 90th percentile of these lengths."""
    inversions: int
    """Visitors who were still in the queue when a visitor behind them was called. Visitors who were
    moved or who returned do not count."""
    moved: int = 0
    """Visitors whom an operator moved."""
    estimates: int = 0
    """How many wait estimates, for a few visitors per minute, were compared with the actual waits:
    at most 100,000."""
    estimates_held: Share | None = None
    """The share of these estimates whose range contained the actual wait."""
    estimate_error_p50: float | None = None
    """The median error of the estimates, as a share of the actual wait."""


class RoomReport(Report, InPeriod):
    pass


class EstimatesParameters(PeriodParameters):
    step: Annotated[int, Field(ge=60, le=86_400)] = 300
    """The length of a step, in seconds."""


class EstimateStep(Reply):
    at: Time
    """When the step begins."""
    estimates: int
    """Wait estimates made in the step for visitors who were admitted later."""
    held: Share
    """The share of these estimates whose range contained the actual wait."""
    promised_low: float
    """The median of the lower ends of the estimates' ranges, in seconds."""
    promised: float
    """The median of the estimates, in seconds."""
    promised_high: float
    """The median of the upper ends of the estimates' ranges, in seconds."""
    waited: float
    """The median of the actual waits, in seconds."""


class Estimates(InPeriod):
    steps: list[EstimateStep]
    """The steps that have estimates, oldest first."""
