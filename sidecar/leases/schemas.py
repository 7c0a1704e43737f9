"""Requests and responses of leases."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from sidecar.kit.http.models import (
    DEPRECATED,
    Body,
    Name,
    Number,
    PageParameters,
    PageReply,
    Parameters,
    Reply,
    Seconds,
    Time,
    matching,
)
from sidecar.kit.http.problem_kinds import Kind, unknown
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
    """It is there as soon as somebody names it."""


class HolderAddress(LeaseAddress):
    holder: HolderName
    """Who: a program, a visitor, an order."""


class ReleaseParameters(HolderAddress):
    fence: Number | None = None
    """Of that lease alone."""
    owner: Annotated[
        str | None,
        *matching(f"({NAME.pattern})?", "the name of a token, or empty for a browser"),
    ] = None
    """For operators: of this token's holder alone, or of a browser (empty)."""


class ResourcesPage(TemplateAddress, PageParameters):
    after: Annotated[str, *matching(f"({RESOURCE.pattern})?", "the name of a resource")] = ""
    """The resource behind which the page begins."""


class HolderBody(Body):
    holder: HolderName
    """Who: a program, a visitor, an order."""


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
    """Of a place before, should the store have been emptied since."""


class RenewLease(HolderBody):
    model_config = ConfigDict(
        json_schema_extra={"examples": [{"holder": "order-4711", "fence": 1795802400000000}]}
    )
    fence: Number
    """As the lease has it."""


class Lease(Reply):
    """Where a holder stands at one resource."""

    state: Literal["granted", "waiting", "gone", "full"]
    """gone: has neither the lease nor a place; full: the queue is."""
    template: str
    resource: str
    holder: str
    fence: Number | None = None
    """The fencing number: of a later lease it is greater. Give it to what you change, which refuses
    a smaller one."""
    granted_at: Time | None = None
    expires_at: Time | None = None
    """By the store's clock."""
    expires_in_seconds: Seconds | None = None
    position: Annotated[int, Field(ge=1)] | None = None
    """In the queue, from 1 on. null also while a store that was emptied is filled again."""
    ahead: int | None = None
    waiting: int | None = None
    """How many wait for this resource. null for who holds it."""
    wait_seconds: Seconds | None = None
    """Expected. null: not known."""
    order: Number | None = None
    """The place's own number: say it when you take the resource again, should the store be
    emptied."""
    refresh_after_seconds: Seconds | None = None
    """When to ask again: a holder who waits and does not has left. null: no need to."""
    updated_at: Time


class Released(Reply):
    released: bool
    """Whether there was anything to give up."""


class LeaseHolder(Reply):
    holder: str
    owner: str | None
    """The token that the holder came with. null: a browser."""
    fence: Number | None
    """null: it is their turn, and they have not come yet."""
    granted_at: Time | None
    expires_at: Time


class LeasedResource(Reply):
    """The first whose lease ends comes first."""

    name: str
    resource: Annotated[str, Field(json_schema_extra=DEPRECATED)]
    """The same as `name`."""
    holders: list[LeaseHolder]
    waiting: int


class LeasedResources(PageReply):
    """A page, by the resource's name."""

    template: str
    resources: list[LeasedResource]
    count: int
    """Of all pages together."""


class LeaseTemplate(LeaseSettings, Reply):
    """As the file has it; durations in seconds."""

    name: str
    in_use: int
    """How many resources are held or waited for."""


class LeaseTemplates(Reply):
    leases: list[LeaseTemplate]
