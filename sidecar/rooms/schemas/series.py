"""Requests and responses about a room's figures over time."""

from typing import Annotated

from pydantic import ConfigDict, Field

from sidecar.http.models import Reply
from sidecar.rooms.schemas.common import Count, Milliseconds, OfRoom, RoomAddress

DAY_S = 86_400


class SeriesParameters(RoomAddress):
    from_: Annotated[Milliseconds | None, Field(alias="from")] = None
    """The first time of interest, ms since 1970. Default: an hour before `until`."""
    until: Milliseconds | None = None
    """The last, ms since 1970. Default: now."""
    step: Annotated[int, Field(ge=60, le=DAY_S)] = 60
    """How long a step is, in seconds. Older than two hours, none is shorter than five minutes."""


class SeriesStep(Reply):
    wait_half: float | None
    """Half of the visitors let in waited no longer, in seconds. null: nobody was let in."""
    wait_most: float | None
    """Nine in ten waited no longer, in seconds."""
    from_ms: Milliseconds
    """When it begins."""
    ends_ms: Milliseconds
    """When it ends. Where nothing was measured, a step is longer than you asked for."""
    waiting: Count
    """In the queue, at the end."""
    active: Count
    """Sessions at the end, called visitors included."""
    cap: Count
    """The cap at the end."""
    joined: Count
    """Newcomers who had to wait."""
    admitted: Count
    """Visitors who came in, at once or from the queue."""
    abandoned: Count
    """Visitors who left the queue, or did not come when called."""


class SeriesEvent(Reply):
    model_config = ConfigDict(from_attributes=True)

    name: str
    """The event's name."""
    prequeue_from: Milliseconds | None
    """When its pre-queue begins."""
    opens_at: Milliseconds
    """When it opens."""
    closes_at: Milliseconds | None
    """When it closes."""


class Series(OfRoom):
    steps: list[SeriesStep]
    """Oldest first. The first one begins when the room was first measured, at the earliest."""
    events: list[SeriesEvent]
    """The room's events, which may be at other times."""
