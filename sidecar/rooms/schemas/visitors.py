"""Request and response models of the endpoints for a room's visitors."""

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, model_validator

from sidecar.http.models import Body, OffsetPage, PageReply, Reply, Whole, wanted
from sidecar.http.problem_kinds import Kind
from sidecar.rooms.schemas.common import (
    Milliseconds,
    Position,
    RoomAddress,
    RoomReply,
    VisitorReply,
)

NOT_DRAWN = Kind(
    "not_drawn",
    409,
    "Nothing is drawn yet",
    "Nobody has a place before the pre-queue is over.",
    "Wait until the pre-queue is over.",
)
NO_PLACE_FREE = Kind(
    "no_place_free",
    409,
    "No place is free there",
    "The visitors there joined at the same moment: no place is free between them.",
    "Move the visitor to another position.",
)
NEVER_MOVED = Kind(
    "never_moved",
    409,
    "Nobody moved this visitor",
    "This visitor was never moved, so there is no earlier place.",
    "Name a position instead.",
)
DRAWN_PLACE = Kind(
    "drawn_place",
    409,
    "A drawn place has no class",
    "The place comes from a lottery draw. It has no class, and can be moved after the opening.",
    "Wait for the opening, then move the visitor.",
)
MAX_POSITION = 100_000_000
#: The positions that have a name. For RoomStore.move, 0 is the place before the first move.
NAMED_POSITIONS = {"head": 1, "back": 0}
MAX_REASON = 200
#: Excludes line ends and other control characters. Pydantic itself rejects lone surrogates.
_REASON = r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029]*$"


class VisitorsPage(RoomAddress, OffsetPage):
    pass


ClassOrNone = Annotated[str | None, wanted("the name of one, or null for none")]
#: The reason for a change, for the log.
Why = Annotated[
    str,
    Field(max_length=MAX_REASON, pattern=_REASON),
    wanted(f"text of {MAX_REASON} characters at most, on one line"),
]


class ChooseClass(Body):
    """The class of a waiting visitor."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"class": "vip", "why": "customer 17"}, {"class": None}]}
    )
    class_: ClassOrNone = Field(alias="class")
    """The new class. null: none."""
    why: Why = ""
    """The reason, which is written to the log."""


class MoveVisitor(Body):
    """The new position of a visitor in the queue, or the visitor's new class."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"position": "head", "why": "ticket 4711, paid twice"},
                {"position": 20},
                {"position": "back"},
                {"class": "vip"},
                {"class": None},
            ],
            "oneOf": [{"required": ["position"]}, {"required": ["class"]}],
        }
    )
    position: Annotated[
        Annotated[Whole, Field(ge=1, le=MAX_POSITION)] | Literal["head", "back"],
        wanted('a whole number from 1 on, "head" or "back"'),
    ] = 1
    """The new position; 1 is the head. `back`: the place held before the first move."""
    class_: ClassOrNone = Field(default=None, alias="class")
    """The new class. null: none."""
    why: Why = ""
    """The reason, which is written to the log."""

    @model_validator(mode="before")
    @classmethod
    def _require_position_or_class(cls, body: Any) -> Any:
        if ("position" in body) == ("class" in body):
            raise ValueError('position: say either this, such as {"position": 1}, or class')
        return body

    @property
    def changes_class(self) -> bool:
        return "class_" in self.model_fields_set


class Waiting(Reply):
    visitor: str
    """The visitor's id."""
    number: str
    """The visitor number, as on the waiting page."""
    position: Position
    """The position in the whole queue."""
    order: int
    """The order in the queue. A visitor with a smaller order is called sooner."""
    line: str | None
    """The sub-queue. null: the room has none, or the place was drawn."""
    class_: str = Field(serialization_alias="class")
    """The visitor's class. Empty: none, or the place was drawn."""
    joined_at_ms: Milliseconds | None
    """When the visitor joined the queue. null: places are drawn by lot."""


class WaitingVisitors(RoomReply, PageReply):
    waiting: list[Waiting]
    """The waiting visitors, in the order of the queue."""


class Session(Reply):
    visitor: str
    """The visitor's id."""
    ends_at_ms: Milliseconds
    """When the session ends without another request."""


class Sessions(RoomReply, PageReply):
    sessions: list[Session]
    """The sessions, soonest to end first."""


class Visitor(VisitorReply):
    number: str
    """The visitor number, as on the waiting page."""
    state: Literal["waiting", "called", "inside", "revoked", "unknown"]
    """`called`: the visitor was called, and has not arrived yet. `inside`: the visitor has a
    session. `revoked`: the visitor was released or left."""
    position: Position | None = None
    """The position in the whole queue. null in a pre-queue."""
    line: str | None = None
    """The sub-queue. null: the room has none, or the place was drawn."""
    class_: str = Field(default="", serialization_alias="class")
    """The class, while the visitor waits. Empty: none, or the place was drawn."""
    joined_at_ms: Milliseconds | None = None
    """When the visitor joined the queue, while waiting. null: places are drawn by lot."""
    line_position: Position | None = None
    """The approximate position in the sub-queue."""
    started_at_ms: Milliseconds | None
    """When the session began."""
    ends_at_ms: Milliseconds | None
    """When the session ends without another request."""
    revoked_at_ms: Milliseconds | None
    """When the pass or ticket became void."""


class VisitorReleased(VisitorReply):
    released: Literal[True] = True
    """Always true."""


class VisitorMoved(VisitorReply):
    position: Position
    """The new position."""
