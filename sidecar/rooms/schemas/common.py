"""Types, problems and checks that several endpoints of rooms use."""

from collections.abc import Awaitable, Callable
from typing import Annotated

from pydantic import Field

from sidecar.http.models import Name, Parameters, Reply, matching
from sidecar.http.problem_kinds import Kind, unknown
from sidecar.http.problems import ProblemError
from sidecar.rooms.service import WaitingRoom
from sidecar.visitors.visitor_number import NUMBER, read_number

UNKNOWN_ROOM = unknown("room")
UNKNOWN_VISITOR = Kind(
    "unknown_visitor",
    404,
    "Unknown visitor",
    "No visitor has that id or number.",
    "Check the id or number. A visitor who left is in the history, if you keep one.",
)
UNKNOWN_CLASS = Kind(
    "unknown_class",
    404,
    "Unknown class",
    "The room has no class with that name.",
    "Use one of the room's `classes`.",
)

AMBIGUOUS_NUMBER = Kind(
    "ambiguous_number",
    409,
    "Several visitors have this number",
    "More than one visitor has that number. `visitors` lists their ids.",
    "Identify the visitor by an id.",
)

VISITOR_ID = "^[A-Za-z0-9_-]{22}$"


def check_class(room: WaitingRoom, name: str) -> None:
    """Raise ProblemError if the room has no class of this name."""
    if name not in room.settings.classes:
        names = ", ".join(room.settings.classes) or "it has none"
        raise ProblemError(UNKNOWN_CLASS, detail=f"The classes of {room.name}: {names}.")


async def resolve_id(id_or_number: str, find_ids: Callable[[str], Awaitable[list[str]]]) -> str:
    """Return the id of the visitor whom an operator names by id or by visitor number. `find_ids`
    returns the ids of all visitors with a number. Raises ProblemError if none or several have it.
    """
    number = read_number(id_or_number)
    if number is None:
        return id_or_number
    visitors = await find_ids(number)
    if not visitors:
        raise ProblemError(UNKNOWN_VISITOR, detail=f"no visitor here has the number {number}")
    if len(visitors) > 1:
        detail = f"{number} is the number of {' and '.join(visitors)}"
        raise ProblemError(AMBIGUOUS_NUMBER, detail=detail, visitors=visitors)
    return visitors[0]


VisitorName = Annotated[
    str,
    *matching(
        f"(?:{VISITOR_ID.strip('^$')}|{NUMBER})",
        "a visitor's id, which has 22 letters, digits, - and _, or number, such as 7K2Q-9XDM",
    ),
]
RoomName = Annotated[Name, Field(description="The room's name.")]
Position = Annotated[int, Field(ge=1)]
Count = Annotated[int, Field(ge=0)]
Milliseconds = Annotated[int, Field(ge=0, description="ms since 1970, by the clock of Redis.")]


class RoomAddress(Parameters):
    room: Annotated[Name, Field(examples=["shop"])]
    """The name of a configured room."""


class VisitorAddress(RoomAddress):
    visitor: Annotated[VisitorName, Field(examples=["hQmVzkXy3c1tA9bWn0Lr-Q"])]
    """The visitor's id, as in lists and in the log, or the visitor number on the waiting page."""


class RoomReply(Reply):
    room: RoomName


class VisitorReply(RoomReply):
    visitor: str
    """The visitor's id."""
