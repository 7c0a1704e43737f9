"""Leases for programs: take or queue, look, renew, release, list."""

import math
from typing import Any

from aiohttp import web

from sidecar.http.app_keys import SETTINGS
from sidecar.http.auth.owner import owner_of
from sidecar.http.auth.rights import OWNERS
from sidecar.http.endpoint import Endpoints, programs
from sidecar.http.problem_kinds import QUEUE_FULL
from sidecar.http.problems import ProblemError
from sidecar.kit.clock import iso
from sidecar.leases import schemas
from sidecar.leases.model import Hold, LeaseOutcome
from sidecar.leases.service import LEASES, Template
from sidecar.leases.settings import holder_and_owner, name_in_store
from sidecar.leases.store import Holder, QueuePlace, Resource


def _template_of(request: web.Request) -> Template:
    return request.app[LEASES].get(request.match_info["template"])


ENDPOINTS = Endpoints("leases", find=_template_of)

_TEMPLATE = "/v1/leases/{template}"
_LEASE = _TEMPLATE + "/{resource}"
_READS = programs("leases", "read", role="viewer")
_CHANGES = programs("leases", role="operator")


@ENDPOINTS.get("/v1/leases", _READS, replies={200: "The templates."})
async def list_templates(request: web.Request) -> schemas.LeaseTemplates:
    """List all templates, as configured."""
    templates = [
        schemas.LeaseTemplate.model_construct(
            name=template.name,
            in_use=await template.store.count(),
            **template.settings.model_dump(),
        )
        for template in request.app[LEASES]
    ]
    return schemas.LeaseTemplates.model_construct(leases=templates)


@ENDPOINTS.get(
    _TEMPLATE,
    _READS,
    replies={200: "A page, by the resource's name."},
    problems=(schemas.UNKNOWN_LEASE,),
)
async def list_resources(
    request: web.Request, page: schemas.ResourcesPage
) -> schemas.LeasedResources:
    """List the resources that are held or waited for."""
    template = _template_of(request)
    if page.find:
        names = [name_in_store(page.find, owner) for owner in _owners(request)]
        resources, following = await template.store.find(
            page.find, names, after=page.after, limit=page.limit
        )
    else:
        resources = await template.store.list(after=page.after, limit=page.limit)
        following = resources[-1].name if len(resources) == page.limit else None
    return schemas.LeasedResources(
        template=template.name,
        resources=[schemas.LeasedResource(**_members(one, page.holders)) for one in resources],
        next=following,
        count=await template.store.count(),
    )


@ENDPOINTS.get(
    _LEASE + "/queue",
    _READS,
    replies={200: "The holders, and a page of the queue."},
    problems=(schemas.UNKNOWN_LEASE,),
)
async def show_resource(request: web.Request, page: schemas.QueuePage) -> schemas.ResourceState:
    """Show who holds a resource and who waits for it.

    This is no heartbeat, and changes nothing.
    """
    template, start = _template_of(request), page.start
    template.check(page.resource)
    resource = await template.store.show(page.resource, first=start, limit=page.limit)
    queue = [_place(place, start + n) for n, place in enumerate(resource.queue, 1)]
    return schemas.ResourceState(
        template=template.name, queue=queue, next=page.next(len(queue)), **_members(resource)
    )


@ENDPOINTS.get(
    _LEASE,
    # A heartbeat, which takes the lease when it is the holder's turn.
    _CHANGES,
    replies={200: "Granted, waiting or gone."},
    problems=(schemas.UNKNOWN_LEASE,),
)
async def find_lease(request: web.Request, at: schemas.HolderAddress) -> schemas.Lease:
    """Find a holder's lease or place in the queue.

    This is the heartbeat of a waiting holder, and takes the lease when it is free.
    """
    template = _template_of(request)
    hold = await template.look(at.resource, at.holder, owner=owner_of(request).name)
    return _lease(at, at.holder, hold)


@ENDPOINTS.post(
    _LEASE,
    _CHANGES,
    replies={200: (schemas.Lease, "The holder has it."), 202: (schemas.Lease, "They wait.")},
    problems=(schemas.UNKNOWN_LEASE, QUEUE_FULL),
    problem_members={429: schemas.Lease},
)
async def take_lease(
    request: web.Request, at: schemas.LeaseAddress, body: schemas.TakeLease
) -> web.Response:
    """Take a resource, or queue for it.

    Idempotent: a holder who has the lease or a place keeps it. While you wait, send a GET after
    `refresh_after_seconds`. 429: `max_waiting` are in the queue.
    """
    template, owner = _template_of(request), owner_of(request).name
    hold = await template.take(at.resource, body.holder, owner=owner, order=body.order)
    lease = _lease(at, body.holder, hold)
    if hold.outcome is LeaseOutcome.FULL:
        limit = template.settings.max_waiting
        raise ProblemError(
            QUEUE_FULL,
            detail=f"max_waiting = {limit} are in the queue for {at.resource}.",
            retry_after=max(1, math.ceil(hold.refresh_ms / 1000)),
            **lease.model_dump(),
        )
    return lease.response(200 if hold.outcome is LeaseOutcome.GRANTED else 202)


@ENDPOINTS.put(
    _LEASE,
    _CHANGES,
    replies={200: "The holder has it."},
    problems=(schemas.UNKNOWN_LEASE, schemas.LEASE_OVER, schemas.NOT_RENEWED),
)
async def renew_lease(
    request: web.Request, at: schemas.LeaseAddress, body: schemas.RenewLease
) -> schemas.Lease:
    """Renew a lease: its term starts again."""
    template, owner = _template_of(request), owner_of(request).name
    hold = await template.renew(at.resource, body.holder, body.fence, owner=owner)
    if hold.outcome is LeaseOutcome.NOT_RENEWED:
        is_renewable = template.settings.renewable
        reason = "max_term is reached." if is_renewable else "Its leases are not renewable."
        raise ProblemError(schemas.NOT_RENEWED, detail=f"{reason} It ends when it said.")
    if hold.outcome is not LeaseOutcome.GRANTED:
        raise _stale(at.resource, body.fence)
    return _lease(at, body.holder, hold)


@ENDPOINTS.delete(
    _LEASE,
    _CHANGES,
    replies={200: "Whether there was anything to give up."},
    problems=(schemas.UNKNOWN_LEASE, schemas.LEASE_OVER),
)
async def release_lease(request: web.Request, at: schemas.ReleaseParameters) -> schemas.Released:
    """Release a lease, a turn or a place in the queue.

    The next holder has it at once. Idempotent. A fencing number releases only that lease: 409 if
    the holder has a newer one. A token releases its own holders, the `admin_token` all.
    """
    template, owner = _template_of(request), owner_of(request)
    owners = [owner.name]
    if owner.is_operator:
        owners = _owners(request) if at.owner is None else [at.owner]
    hold = await template.release(at.resource, at.holder, at.fence, owners=owners)
    if hold.outcome is LeaseOutcome.STALE and at.fence is not None:
        raise _stale(at.resource, at.fence)
    return schemas.Released(released=hold.outcome is LeaseOutcome.GRANTED)


def _stale(resource: str, fence: int) -> ProblemError:
    return ProblemError(
        schemas.LEASE_OVER,
        detail=f"{fence} is not the fencing number of this holder's lease of {resource}: it ended, "
        "or there is a newer one. Stop, and take it anew.",
    )


def _lease(at: schemas.LeaseAddress, holder: str, hold: Hold) -> schemas.Lease:
    lease = schemas.Lease(
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


def _owners(request: web.Request) -> list[str]:
    """Return every owner that a holder may have; "" is a browser."""
    return ["", *OWNERS, *request.app[SETTINGS].tokens]


def _members(resource: Resource, max_holders: int = 1000) -> dict[str, Any]:
    wait_ms = resource.wait_ms
    started = [held.started_ms for held in resource.holders if held.started_ms]
    return {
        "name": resource.name,
        "holders": [_holder(held) for held in resource.holders[:max_holders]],
        "held": len(resource.holders),
        "oldest_at": iso(min(started)) if started else None,
        "waiting": resource.waiting,
        "wait_seconds": None if wait_ms is None else wait_ms / 1000,
    }


def _holder(held: Holder) -> schemas.LeaseHolder:
    holder, owner = holder_and_owner(held.holder)
    return schemas.LeaseHolder(
        holder=holder,
        owner=owner or None,
        fence=held.fence or None,
        granted_at=iso(held.started_ms) if held.started_ms else None,
        expires_at=iso(held.expires_ms),
    )


def _place(place: QueuePlace, position: int) -> schemas.LeasePlace:
    holder, owner = holder_and_owner(place.holder)
    return schemas.LeasePlace(
        holder=holder,
        owner=owner or None,
        position=position,
        joined_at=iso(place.order // 1000),
        heartbeat_due_at=iso(place.due_ms),
    )
