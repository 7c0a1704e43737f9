"""Leases for programs: take or queue, look, renew, release, list."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from sidecar.kit.clock import iso
from sidecar.kit.http.app_keys import SETTINGS
from sidecar.kit.http.auth.owner import owner_of
from sidecar.kit.http.auth.scopes import OWNERS
from sidecar.kit.http.endpoint import Endpoints, programs
from sidecar.kit.http.problem_kinds import QUEUE_FULL
from sidecar.kit.http.problems import problem
from sidecar.leases.app_keys import LEASES
from sidecar.leases.model import LeaseOutcome
from sidecar.leases.schemas import (
    LEASE_OVER,
    NOT_RENEWED,
    UNKNOWN_LEASE,
    HolderAddress,
    Lease,
    LeaseAddress,
    LeasedResource,
    LeasedResources,
    LeaseHolder,
    LeaseTemplate,
    LeaseTemplates,
    Released,
    ReleaseParameters,
    RenewLease,
    ResourcesPage,
    TakeLease,
)
from sidecar.leases.settings import holder_and_owner

if TYPE_CHECKING:
    from aiohttp import web

    from sidecar.leases.model import Hold
    from sidecar.leases.store import Holder, Resource

ENDPOINTS = Endpoints(
    "leases", find=lambda request: request.app[LEASES].get(request.match_info["template"])
)

_TEMPLATE = "/v1/leases/{template}"
_LEASE = _TEMPLATE + "/{resource}"


@ENDPOINTS.get(
    "/v1/leases", programs("leases", "read"), replies={200: (LeaseTemplates, "The templates.")}
)
async def list_templates(request: web.Request) -> LeaseTemplates:
    """All templates, as the file has them."""
    templates = [
        LeaseTemplate.model_construct(
            name=template.name,
            in_use=await template.store.count(),
            **template.settings.model_dump(),
        )
        for template in request.app[LEASES]
    ]
    return LeaseTemplates.model_construct(leases=templates)


@ENDPOINTS.get(
    _TEMPLATE,
    programs("leases", "read"),
    parameters=ResourcesPage,
    replies={200: (LeasedResources, "A page, by the resource's name.")},
    problems=(UNKNOWN_LEASE,),
)
async def list_resources(request: web.Request, page: ResourcesPage) -> LeasedResources:
    """Who holds what.

    Only what is held or waited for: nothing else is kept.
    """
    template = request.app[LEASES].get(page.template)
    found = await template.store.list(after=page.after, limit=page.limit)
    return LeasedResources(
        template=template.name,
        resources=[_listed(resource) for resource in found],
        next=found[-1].name if len(found) == page.limit else None,
        count=await template.store.count(),
    )


@ENDPOINTS.get(
    _LEASE,
    # It is a heartbeat, and takes the lease when it is the holder's turn.
    programs("leases"),
    parameters=HolderAddress,
    replies={200: (Lease, "Granted, waiting or gone.")},
    problems=(UNKNOWN_LEASE,),
)
async def find_lease(request: web.Request, at: HolderAddress) -> Lease:
    """Where a holder stands.

    The heartbeat of whoever waits: it takes the lease when it is their turn.
    """
    template = request.app[LEASES].get(at.template)
    hold = await template.look(at.resource, at.holder, owner=owner_of(request).name)
    return _lease(at, at.holder, hold)


@ENDPOINTS.post(
    _LEASE,
    programs("leases"),
    parameters=LeaseAddress,
    body=TakeLease,
    replies={200: (Lease, "The holder has it."), 202: (Lease, "They wait.")},
    problems=(UNKNOWN_LEASE, QUEUE_FULL),
    problem_members={429: Lease},
)
async def take_lease(request: web.Request, at: LeaseAddress, body: TakeLease) -> web.Response:
    """Take a resource, or queue for it.

    Idempotent: whoever has the lease or a place keeps it. Whoever waits asks again with GET after
    `refresh_after_seconds`. 429: `max_waiting` are in the queue.
    """
    template, owner = request.app[LEASES].get(at.template), owner_of(request).name
    hold = await template.take(at.resource, body.holder, owner=owner, order=body.order)
    lease = _lease(at, body.holder, hold)
    if hold.outcome is LeaseOutcome.FULL:
        return problem(
            QUEUE_FULL,
            detail=f"max_waiting = {template.settings.max_waiting} are in line for {at.resource}.",
            retry_after=max(1, math.ceil(hold.refresh_ms / 1000)),
            **lease.model_dump(),
        )
    return lease.response(200 if hold.outcome is LeaseOutcome.GRANTED else 202)


@ENDPOINTS.put(
    _LEASE,
    programs("leases"),
    parameters=LeaseAddress,
    body=RenewLease,
    replies={200: (Lease, "The holder has it.")},
    problems=(UNKNOWN_LEASE, LEASE_OVER, NOT_RENEWED),
)
async def renew_lease(
    request: web.Request, at: LeaseAddress, body: RenewLease
) -> Lease | web.Response:
    """Begin the term anew."""
    template, owner = request.app[LEASES].get(at.template), owner_of(request).name
    hold = await template.renew(at.resource, body.holder, body.fence, owner=owner)
    if hold.outcome is LeaseOutcome.GRANTED:
        return _lease(at, body.holder, hold)
    if hold.outcome is LeaseOutcome.NOT_RENEWED:
        is_never = not template.settings.renewable
        why = "Its leases are not renewable." if is_never else "max_term is reached."
        return problem(NOT_RENEWED, detail=f"{why} It ends when it said.")
    return _stale(at.resource, body.fence)


@ENDPOINTS.delete(
    _LEASE,
    programs("leases"),
    parameters=ReleaseParameters,
    replies={200: (Released, "Whether there was anything to give up.")},
    problems=(UNKNOWN_LEASE, LEASE_OVER),
)
async def release_lease(request: web.Request, at: ReleaseParameters) -> Released | web.Response:
    """Give it up.

    The lease, the turn or the place in the queue; the next has it at once. Idempotent. With a
    fencing number only that lease: 409 where the holder has a newer one. Holders are those of the
    token that asks; the `admin_token` releases anybody's.
    """
    template, owner = request.app[LEASES].get(at.template), owner_of(request)
    owners = [owner.name]
    if owner.is_operator:
        every = ["", *OWNERS, *request.app[SETTINGS].tokens]
        owners = every if at.owner is None else [at.owner]
    hold = await template.release(at.resource, at.holder, at.fence, owners=owners)
    if hold.outcome is LeaseOutcome.STALE and at.fence is not None:
        return _stale(at.resource, at.fence)
    return Released(released=hold.outcome is LeaseOutcome.GRANTED)


def _lease(at: LeaseAddress, holder: str, hold: Hold) -> Lease:
    lease = Lease(
        state="gone",
        template=at.template,
        resource=at.resource,
        holder=holder,
        waiting=hold.waiting,
        refresh_after_seconds=hold.refresh_ms / 1000 if hold.refresh_ms else None,
        updated_at=iso(hold.now_ms),
    )
    if hold.outcome is LeaseOutcome.GRANTED:
        lease.state, lease.waiting = "granted", None
        lease.fence = hold.fence
        lease.granted_at, lease.expires_at = iso(hold.started_ms), iso(hold.expires_ms)
        lease.expires_in_seconds = (hold.expires_ms - hold.now_ms) / 1000
    elif hold.outcome is LeaseOutcome.FULL:
        lease.state = "full"
    elif hold.outcome is LeaseOutcome.WAITING:
        lease.state, lease.order = "waiting", hold.order
        if not hold.is_recovering:
            lease.position, lease.ahead = hold.ahead + 1, hold.ahead
            lease.wait_seconds = None if hold.wait_ms is None else hold.wait_ms / 1000
    return lease


def _listed(resource: Resource) -> LeasedResource:
    return LeasedResource(
        name=resource.name,
        resource=resource.name,
        holders=[_listed_holder(held) for held in resource.holders],
        waiting=resource.waiting,
    )


def _listed_holder(held: Holder) -> LeaseHolder:
    holder, owner = holder_and_owner(held.holder)
    return LeaseHolder(
        holder=holder,
        owner=owner or None,
        fence=held.fence or None,
        granted_at=iso(held.started_ms) if held.started_ms else None,
        expires_at=iso(held.expires_ms),
    )


def _stale(resource: str, fence: int) -> web.Response:
    return problem(
        LEASE_OVER,
        detail=f"{fence} is not the fencing number of this holder's lease of {resource}: it ended, "
        "or there is a newer one. Stop, and take it anew.",
    )
