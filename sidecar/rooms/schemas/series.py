"""Request and response models of the endpoint for a room's time series."""

from typing import Annotated

from pydantic import ConfigDict, Field

from sidecar.http.models import Reply
from sidecar.rooms.schemas.common import Count, Milliseconds, RoomAddress, RoomReply

DAY_S = 86_400


class SeriesParameters(RoomAddress):
    from_: Annotated[Milliseconds | None, Field(alias="from")] = None
    """The start of the series, ms since 1970. Default: an hour before `until`."""
    until: Milliseconds | None = None
    """The end of the series, ms since 1970. Default: now."""
    step: Annotated[int, Field(ge=60, le=DAY_S)] = 60
    """The length of a step, in seconds. For times over two hours ago, at least five minutes."""


class SeriesStep(Reply):
    wait_half: float | None
    """The median wait of the admitted visitors, in seconds. null: nobody was admitted."""
    wait_most: float | None
    """The 90th percentile of the waits, in seconds. null: nobody was admitted."""
    from_ms: Milliseconds
    """When the step begins."""
    ends_ms: Milliseconds
    """When the step ends. Where samples are missing, a step is longer than requested."""
    waiting: Count
    """Visitors in the queue at the end of the step."""
    active: Count
    """Sessions at the end of the step, including those of called visitors."""
    cap: Count
    """The cap at the end of the step, or the ceiling of an adaptive room, if that is lower."""
    ceiling: Count | None
    """The limit that an adaptive room set or advised at the end. null: not adaptive."""
    p90: float | None
    """The p90 of the response times of the site behind an adaptive room, in seconds."""
    error_share: float | None
    """The share of errors among the site's responses, from 0 to 1."""
    joined: Count
    """Newcomers who had to wait."""
    admitted: Count
    """Visitors who were admitted, at once or from the queue."""
    abandoned: Count
    """Visitors who left the queue, or did not arrive when called."""


class SeriesEvent(Reply):
    model_config = ConfigDict(from_attributes=True)

    name: str
    """The event's name."""
    prequeue_from: Milliseconds | None
    """When the event's pre-queue begins. null: the event has none."""
    opens_at: Milliseconds
    """When the room opens."""
    closes_at: Milliseconds | None
    """When the event ends. null: it ends when the next event begins."""


class Series(RoomReply):
    steps: list[SeriesStep]
    """The steps, oldest first. The first step does not begin before the oldest sample."""
    events: list[SeriesEvent]
    """All events of the room, even those outside of the series."""
