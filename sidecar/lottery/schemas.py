"""Request and response models, and problems, of the endpoints for a pre-queue's draw."""

from typing import Annotated

from pydantic import Field

from sidecar.http.models import Reply, Time
from sidecar.http.problem_kinds import Kind
from sidecar.rooms.schemas.common import RoomAddress

NO_DRAW = Kind(
    "no_draw",
    404,
    "No draw",
    "The room has no event with a pre-queue and that name.",
    "Check the event's name: `waitroom rooms events ROOM`.",
)
NOT_DRAWN_YET = Kind(
    "not_drawn_yet",
    404,
    "Nothing is drawn yet",
    "The places are published after the opening.",
    "Request the list after the opening.",
)
LIST_GONE = Kind(
    "list_gone",
    404,
    "The list is no longer kept",
    "The list was deleted when the next pre-queue started.",
    "Fetch the list before the next pre-queue starts.",
)
COMMITMENT_UNKNOWN = Kind(
    "commitment_unknown",
    503,
    "The commitment is not known yet",
    "The replicas have not agreed on the commitment yet.",
    "Retry after the time in `Retry-After`.",
)

#: The maximum and the default number of places on a page.
PLACES_LIMIT = 10_000
_Name = Annotated[str, Field(json_schema_extra={"pattern": "^[a-z0-9][a-z0-9_-]{0,31}$"})]
_Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class DrawParameters(RoomAddress):
    event: _Name | None = None
    """The name of an event with a pre-queue. Default: the current event with a pre-queue, or else
    the next, or else the last."""


class PlacesPage(DrawParameters):
    after: Annotated[int, Field(ge=0, le=10**9)] = 0
    """The `next` of the previous page."""
    limit: Annotated[int, Field(ge=0, le=PLACES_LIMIT)] = PLACES_LIMIT
    """The maximum number of places to list."""


class Draw(Reply):
    room: str
    """The room's name."""
    event: _Name
    """The event's name."""
    events: list[str]
    """The names of all events with a pre-queue, by time."""
    prequeue_from: Time
    """When the pre-queue begins."""
    opens_at: Time
    """When the room opens and the places are drawn."""
    revealed_at: Time
    """When the secret and the places are published."""
    updated_at: Time
    """The time of this response."""
    commitment: _Sha256
    """The SHA-256 of the string `secret`."""
    secret: _Sha256 | None = None
    """The secret of the draw. null until it is published."""
    count: int | None = None
    """How many places were drawn; null until the list is known."""
    places_sha256: _Sha256 | None = None
    """The SHA-256 of the list: a line `place id` for each place, in order. It never changes."""
    places_url: str | None = None
    """The URL of the list. null before it is published, and after it was deleted."""
    store_emptied_at: Time | None = None
    """When Redis lost its data during the pre-queue. The list then contains only visitors who
    polled after that. null: no data was lost."""


class DrawnPlaces(Reply):
    room: str
    """The room's name."""
    event: _Name
    """The event's name."""
    offset: int
    """How many places come before this page."""
    next: int | None
    """The `after` of the next page. null: this is the last page."""
    places: list[tuple[str, Annotated[int, Field(ge=1)]]]
    """Pairs of a visitor's id and the visitor's place."""
