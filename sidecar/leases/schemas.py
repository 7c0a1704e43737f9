"""Request and response models of the lease API."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from sidecar.http.long_poll import MAX_WAIT_S
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
    optional,
    wanted,
)
from sidecar.http.problem_kinds import Kind, unknown
from sidecar.kit.names import NAME
from sidecar.leases.settings import HOLDER, RESOURCE, LeaseSettings

UNKNOWN_LEASE = unknown("lease")
LEASE_OVER = Kind(
    "lease_over",
    409,
    "The lease is over",
    "The lease has ended, or the fencing number belongs to another lease. Nothing was changed.",
    "Stop work that depends on the old lease, and take a new one.",
)
NOT_RENEWED = Kind(
    "not_renewed",
    409,
    "Not renewed",
    "The template is not `renewable`, or `max_term` is reached. The end of the lease is unchanged.",
    "Finish before the lease ends, or wait for another lease.",
)

LETTERS = "1 to 128 letters, digits and . _ - : @ +"
ResourceName = Annotated[
    str, *matching(RESOURCE, f"{LETTERS}, and it begins with a letter or digit")
]
HolderName = Annotated[str, *matching(HOLDER, LETTERS)]
Wait = Annotated[
    float, Field(ge=0, le=MAX_WAIT_S), wanted(f"seconds from 0 to {MAX_WAIT_S}, such as 20 or 0.5")
]


class TemplatePath(Parameters):
    template: Annotated[Name, Field(examples=["seat"])]
    """The name of a configured template."""


class LeasePath(TemplatePath):
    resource: Annotated[ResourceName, Field(examples=["17"])]
    """Any name that the template allows. A resource exists as soon as a client names it."""


class TakeParameters(LeasePath):
    wait: Wait = 0
    """How long to keep the request open while the holder waits for the resource, in seconds. The
    replica sends the heartbeats meanwhile, and takes the lease when the holder is called."""


class FindParameters(TakeParameters):
    holder: HolderName
    """Your name for the client that holds the lease: a program, a visitor, an order."""


class ReleaseParameters(LeasePath):
    holder: HolderName
    """Your name for the client that holds the lease: a program, a visitor, an order."""
    fence: Number | None = None
    """The fencing number. If set, only a lease with this number is released."""
    owner: Annotated[
        str | None,
        *matching(f"({NAME.pattern})?", "the name of a token, or empty for a browser"),
    ] = None
    """For operators: the name of the token that the holder sent, or empty for a browser. If set,
    only that holder is released."""


class ResourcesPage(TemplatePath, PageParameters):
    after: Annotated[str, *matching(f"({RESOURCE.pattern})?", "the name of a resource")] = ""
    """The `next` of the previous page."""
    find: Annotated[str, *matching(f"({HOLDER.pattern})?".replace(r"\Z", ""), LETTERS)] = ""
    """If set, lists only resources whose name begins with this text, that a holder of this name
    holds or waits for, or that have a lease with this fencing number. One request searches at most
    5000 resources, so a page may list few or none even if `next` says there are more."""
    holders: Annotated[int, Field(ge=0, le=1000)] = 1000
    """The highest number of holders to list for each resource."""


class QueuePage(LeasePath, OffsetPage):
    """A page of a resource's queue."""


class TakeLease(Body):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"holder": "order-4711"},
                {"holder": "order-4712", "order": 1795802400120000},
            ]
        }
    )
    holder: HolderName
    """Your name for the client that holds the lease: a program, a visitor, an order."""
    order: Number | None = None
    """The `order` of the place that you had before Redis lost its data."""


class RenewLease(Body):
    model_config = ConfigDict(
        json_schema_extra={"examples": [{"holder": "order-4711", "fence": 1795802400000000}]}
    )
    holder: HolderName
    """The holder, as sent when the lease was taken."""
    fence: Number
    """The fencing number of the lease."""


class LeaseStatus(Reply):
    """The state of a holder at one resource."""

    __qualname__ = "Lease"  # its name in the OpenAPI document

    state: Literal["granted", "waiting", "gone", "full"]
    """`gone`: the holder has no lease and no place. `full`: the queue is full."""
    template: str
    """The template's name."""
    resource: str
    """The resource's name."""
    holder: str
    """The holder, as sent."""
    fence: Number | None = None
    """The fencing number. A later lease has a greater number. Send it with each change to the
    resource, which should refuse a number that is smaller than one it has received before."""
    granted_at: Time | None = None
    """When the lease began."""
    expires_at: Time | None = None
    """When the lease ends, by the clock of Redis."""
    expires_in_seconds: Seconds | None = None
    """The time until the lease ends."""
    position: Annotated[int, Field(ge=1)] | None = None
    """The position in the queue; 1 is next. null if this holder does not wait, and while Redis
    recovers from losing its data."""
    ahead: int | None = None
    """How many holders wait ahead of this one."""
    waiting: int | None = None
    """How many holders wait for this resource. null if this holder has the lease."""
    wait_seconds: Seconds | None = None
    """The expected wait. null: unknown."""
    order: Number | None = None
    """The number that decides the place in the queue. Send it to restore the place if Redis has
    lost its data."""
    refresh_after_seconds: Seconds | None = None
    """The time until a waiting holder must send a heartbeat to keep its place. null: not needed."""
    held_seconds: Annotated[Seconds | None, optional] = None
    """With `wait`: how long the request was open when this state was read. The lease lasts for
    `expires_in_seconds` from then on."""
    updated_at: Time
    """The time of this response, by the clock of Redis."""


class Released(Reply):
    released: bool
    """True if something was released."""


class _NamedHolder(Reply):
    holder: str
    """The holder, as sent."""
    owner: str | None
    """The name of the token that the holder sent. null: the holder is a browser."""
    number: str | None
    """The visitor number of a browser, as on its waiting page. null: the holder is a program."""


class LeaseHolder(_NamedHolder):
    fence: Number | None
    """The fencing number. null: the holder was called and has not taken the lease yet."""
    granted_at: Time | None
    """When the lease began. null: the holder was called and has not taken the lease yet."""
    expires_at: Time
    """When the lease ends or, for a called holder, the time to take the lease ends."""


class LeasedResource(Reply):
    """One leased resource: its holders, and the length of its queue."""

    name: str
    """The resource's name."""
    holders: list[LeaseHolder]
    """The holders, ordered by when their leases end."""
    held: int
    """How many holders have a lease or were called to take one."""
    oldest_at: Time | None
    """When the oldest lease began. null: nobody has a lease."""
    waiting: int
    """How many holders wait for the resource."""
    wait_seconds: Seconds | None
    """How long a newcomer would wait. null: unknown, while Redis recovers from losing its data."""


class LeasePlace(_NamedHolder):
    """A place in the queue."""

    position: Annotated[int, Field(ge=1)]
    """The position in the queue; 1 is next."""
    joined_at: Time
    """When the holder joined the queue, by the clock of Redis."""
    heartbeat_due_at: Time
    """When the next heartbeat is due. If it is late by `heartbeat_timeout`, the place is lost."""


class ResourceState(LeasedResource, PageReply):
    """The holders of a resource, and a page of its queue."""

    template: str
    """The template's name."""
    queue: list[LeasePlace]
    """A page of the queue, in its order."""


class LeasedResources(PageReply):
    """A page of resources, in the order of their names."""

    template: str
    """The template's name."""
    resources: list[LeasedResource]
    """The resources that somebody holds or waits for."""
    count: int
    """How many resources there are on all pages."""


class LeaseTemplate(LeaseSettings, Reply):
    """A template as configured. Durations are in seconds."""

    name: str
    """The template's name."""
    in_use: int
    """How many resources somebody holds or waits for."""


class LeaseTemplates(Reply):
    leases: list[LeaseTemplate]
    """All templates."""
