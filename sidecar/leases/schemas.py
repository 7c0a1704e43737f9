"""Requests and responses of leases."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from sidecar.http.models import (
    Body,
    Name,
    Number,
    OffsetPage,
    PageParameters,
    PageReply,
    Parameters,
    Reply,
    Seconds,
    Time,
    matching,
)
from sidecar.http.problem_kinds import Kind, unknown
from sidecar.kit.names import NAME
from sidecar.leases.settings import HOLDER, RESOURCE, LeaseSettings

UNKNOWN_LEASE = unknown("lease")
LEASE_OVER = Kind(
    "lease_over",
    409,
    "The lease is over",
    "The lease is over, or the fencing number is that of another lease. Nothing was changed.",
    "Take the lease anew. Stop work that depends on the old one.",
)
NOT_RENEWED = Kind(
    "not_renewed",
    409,
    "Not renewed",
    "The template is not `renewable`, or `max_term` is reached. The lease ends when it said.",
    "Finish before the lease ends, or wait for another one.",
)

LETTERS = "1 to 128 letters, digits and . _ - : @ +"
ResourceName = Annotated[
    str, *matching(RESOURCE, f"{LETTERS}, and it begins with a letter or digit")
]
HolderName = Annotated[str, *matching(HOLDER, LETTERS)]


class TemplateAddress(Parameters):
    template: Annotated[Name, Field(examples=["seat"])]
    """A template that is configured."""


class LeaseAddress(TemplateAddress):
    resource: Annotated[ResourceName, Field(examples=["17"])]
    """Any name that the template allows. A resource exists as soon as a client names it."""


class HolderAddress(LeaseAddress):
    holder: HolderName
    """Your name for the client that holds the lease: a program, a visitor, an order."""


class ReleaseParameters(HolderAddress):
    fence: Number | None = None
    """Releases only the lease with this fencing number."""
    owner: Annotated[
        str | None,
        *matching(f"({NAME.pattern})?", "the name of a token, or empty for a browser"),
    ] = None
    """For operators: releases only the holder of this token, or of a browser (empty)."""


class ResourcesPage(TemplateAddress, PageParameters):
    after: Annotated[str, *matching(f"({RESOURCE.pattern})?", "the name of a resource")] = ""
    """The resource behind which the page begins."""
    find: Annotated[str, *matching(f"({HOLDER.pattern})?".replace(r"\Z", ""), LETTERS)] = ""
    """Only resources whose name begins so, that a holder of this name holds or waits for, or of
    which a lease has this fencing number. One request looks at 5000 resources: a page may hold few
    or none, and `next` says that there are more to look at."""
    holders: Annotated[int, Field(ge=0, le=1000)] = 1000
    """How many holders of each resource are listed at most."""


class QueuePage(LeaseAddress, OffsetPage):
    """A page of a resource's queue."""


class HolderBody(Body):
    holder: HolderName
    """Your name for the client that holds the lease: a program, a visitor, an order."""


class TakeLease(HolderBody):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"holder": "order-4711"},
                {"holder": "order-4712", "order": 1795802400120000},
            ]
        }
    )
    order: Number | None = None
    """The `order` of the place that you had before Redis was emptied."""


class RenewLease(HolderBody):
    model_config = ConfigDict(
        json_schema_extra={"examples": [{"holder": "order-4711", "fence": 1795802400000000}]}
    )
    fence: Number
    """The fencing number of the lease."""


class Lease(Reply):
    """A holder's state at one resource."""

    state: Literal["granted", "waiting", "gone", "full"]
    """`gone`: neither the lease nor a place. `full`: the queue is full."""
    template: str
    """The template's name."""
    resource: str
    """The resource's name."""
    holder: str
    """The holder, as sent."""
    fence: Number | None = None
    """The fencing number. A later lease has a greater one. Send it with each change to the
    resource, and refuse smaller ones there."""
    granted_at: Time | None = None
    """When the lease began."""
    expires_at: Time | None = None
    """When it ends, by the clock of Redis."""
    expires_in_seconds: Seconds | None = None
    """The same, from now."""
    position: Annotated[int, Field(ge=1)] | None = None
    """In the queue. 1 is next. null also while places come back after Redis was emptied."""
    ahead: int | None = None
    """How many wait before this holder."""
    waiting: int | None = None
    """How many wait for this resource. null for its holder."""
    wait_seconds: Seconds | None = None
    """The expected wait. null: unknown."""
    order: Number | None = None
    """The place's own number. Send it again if Redis was emptied."""
    refresh_after_seconds: Seconds | None = None
    """When to ask again. A waiting holder that stops asking loses its place. null: no need to
    ask."""
    updated_at: Time
    """The time of this response, by the clock of Redis."""


class Released(Reply):
    released: bool
    """Whether there was anything to give up."""


class LeaseHolder(Reply):
    holder: str
    """The holder, as sent."""
    owner: str | None
    """The token that the holder came with. null: a browser."""
    fence: Number | None
    """The fencing number. null: called, not yet arrived."""
    granted_at: Time | None
    """When the lease began."""
    expires_at: Time
    """When it ends."""


class LeasedResource(Reply):
    """One leased resource: its holders, and the length of its queue."""

    name: str
    """The resource's name."""
    holders: list[LeaseHolder]
    """The lease that ends first comes first."""
    held: int
    """How many have a lease or a turn."""
    oldest_at: Time | None
    """When the oldest lease began. null: nobody has one."""
    waiting: int
    """How many wait for it."""
    wait_seconds: Seconds | None
    """How long a newcomer would wait. null: unknown, while places come back after Redis was
    emptied."""


class LeasePlace(Reply):
    """A place in the queue."""

    holder: str
    """The holder, as sent."""
    owner: str | None
    """The token that the holder came with. null: a browser."""
    position: Annotated[int, Field(ge=1)]
    """In the queue. 1 is next."""
    joined_at: Time
    """When the holder came, by the clock of Redis."""
    heartbeat_due_at: Time
    """When the next heartbeat is due. Without it the place is lost after `heartbeat_timeout`."""


class ResourceState(LeasedResource, PageReply):
    """The holders of a resource, and a page of its queue."""

    template: str
    """The template's name."""
    queue: list[LeasePlace]
    """A page of the queue, in its order."""


class LeasedResources(PageReply):
    """A page of resources, by name."""

    template: str
    """The template's name."""
    resources: list[LeasedResource]
    """One for each resource that is held or waited for."""
    count: int
    """How many there are on all pages."""


class LeaseTemplate(LeaseSettings, Reply):
    """A template as configured; durations in seconds."""

    name: str
    """The template's name."""
    in_use: int
    """How many resources are held or waited for."""


class LeaseTemplates(Reply):
    leases: list[LeaseTemplate]
    """One for each template."""
