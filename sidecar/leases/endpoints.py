"""Endpoints with which programs take, renew, release, find and list leases. A lease is the use of a
slot of a named resource, such as a seat, for a limited time. If all slots of the resource are
taken, the client waits in a queue. A template has the settings of many resources."""

import asyncio
import contextlib
import math
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any

from aiohttp import web

from sidecar.http.app_keys import SETTINGS
from sidecar.http.auth.owner import owner_of
from sidecar.http.auth.rights import OWNERS
from sidecar.http.endpoint import Endpoints, programs
from sidecar.http.long_poll import LONG_POLLS, is_gone
from sidecar.http.problem_kinds import QUEUE_FULL
from sidecar.http.problems import ProblemError
from sidecar.kit.clock import iso
from sidecar.kit.errors import StoreError
from sidecar.kit.tasks import wait_for
from sidecar.leases import schemas
from sidecar.leases.holder_names import make_stored_name, split_stored_name
from sidecar.leases.model import HolderState, LeaseOutcome
from sidecar.leases.service import LEASES, TemplateLeases
from sidecar.leases.store import Resource
from sidecar.visitors.tokens import is_visitor_id
from sidecar.visitors.visitor_number import visitor_number


def _find_template(request: web.Request) -> TemplateLeases:
    return request.app[LEASES].get(request.match_info["template"])


ENDPOINTS = Endpoints("leases", find=_find_template, unknown=schemas.UNKNOWN_LEASE)

#: The heartbeats of open requests are sent at multiples of this time, in seconds.
HEARTBEAT_STEP_S = 0.25
#: The pause before a heartbeat of an open request is repeated if Redis is unavailable, in seconds.
RETRY_S = 1.0
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


@ENDPOINTS.get(_TEMPLATE, _READS, replies={200: "A page of resources, sorted by name."})
async def list_resources(
    request: web.Request, page: schemas.ResourcesPage
) -> schemas.LeasedResources:
    """List the resources that somebody holds or waits for."""
    template = _find_template(request)
    if page.find:
        names = [make_stored_name(page.find, owner) for owner in list_owners(request)]
        resources, next_name = await template.store.find(
            page.find, names, after=page.after, limit=page.limit
        )
    else:
        resources = await template.store.list(after=page.after, limit=page.limit)
        next_name = resources[-1].name if len(resources) == page.limit else None
    return schemas.LeasedResources(
        template=template.name,
        resources=[
            schemas.LeasedResource(**_build_resource_members(r, page.holders)) for r in resources
        ],
        next=next_name,
        count=await template.store.count(),
    )


@ENDPOINTS.get(_LEASE + "/queue", _READS, replies={200: "The holders, and a page of the queue."})
async def show_resource(request: web.Request, page: schemas.QueuePage) -> schemas.ResourceState:
    """Show the holders of a resource and its queue.

    This is not a heartbeat, and changes nothing."""
    template, start = _find_template(request), page.start
    template.check(page.resource)
    resource = await template.store.show(page.resource, first=start, limit=page.limit)
    queue = [
        schemas.LeasePlace(
            **_build_holder_members(place.holder),
            position=position,
            joined_at=iso(place.order // 1000),
            heartbeat_due_at=iso(place.due_ms),
        )
        for position, place in enumerate(resource.queue, start + 1)
    ]
    members = {**_build_resource_members(resource), "next": page.next(len(queue))}
    return schemas.ResourceState(template=template.name, queue=queue, **members)


@ENDPOINTS.get(
    _LEASE,
    # Not _READS, because this heartbeat takes the lease if the holder was called.
    _CHANGES,
    replies={200: "The holder's state: granted, waiting or gone."},
)
async def find_lease(request: web.Request, params: schemas.FindParameters) -> schemas.LeaseStatus:
    """Find a holder's lease or place in the queue.

    For a waiting holder, this is the heartbeat. It takes the lease if the holder was called. With
    `wait`, the response comes as soon as the holder no longer waits."""
    template, owner = _find_template(request), owner_of(request).name
    poll = partial(template.poll, params.resource, params.holder, owner=owner)
    with _listen(request, params, params.holder) as wake_event:
        state, held_s = await _wait(request, wake_event, poll, await poll(), params.wait)
    return _make_status(params, params.holder, state, held_s)


@ENDPOINTS.post(
    _LEASE,
    _CHANGES,
    replies={
        200: (schemas.LeaseStatus, "The lease."),
        202: (schemas.LeaseStatus, "A place in the queue, or none if it was lost during `wait`."),
    },
    problems=(QUEUE_FULL,),
    problem_members={429: schemas.LeaseStatus},
)
async def take_lease(
    request: web.Request, params: schemas.TakeParameters, body: schemas.TakeLease
) -> web.Response:
    """Take a resource, or queue for the resource.

    Idempotent: a holder who has the lease or a place keeps it. While you wait, send a GET request
    with `wait`, or after `refresh_after_seconds`. 429: the queue is full (`max_waiting`)."""
    template, owner = _find_template(request), owner_of(request).name
    poll = partial(template.poll, params.resource, body.holder, owner=owner)
    with _listen(request, params, body.holder) as wake_event:
        state = await template.take(params.resource, body.holder, owner=owner, order=body.order)
        state, held_s = await _wait(request, wake_event, poll, state, params.wait)
    lease = _make_status(params, body.holder, state, held_s)
    if state.outcome is LeaseOutcome.FULL:
        limit = template.settings.max_waiting
        raise ProblemError(
            QUEUE_FULL,
            detail=f"The queue for {params.resource} has max_waiting = {limit} holders.",
            retry_after=max(1, math.ceil(state.refresh_ms / 1000)),
            **lease.model_dump(),
        )
    return lease.response(200 if state.outcome is LeaseOutcome.GRANTED else 202)


@ENDPOINTS.put(
    _LEASE,
    _CHANGES,
    replies={200: "The lease is renewed."},
    problems=(schemas.LEASE_OVER, schemas.NOT_RENEWED),
)
async def renew_lease(
    request: web.Request, path: schemas.LeasePath, body: schemas.RenewLease
) -> schemas.LeaseStatus:
    """Renew a lease, so that its term starts again."""
    template, owner = _find_template(request), owner_of(request).name
    state = await template.renew(path.resource, body.holder, body.fence, owner=owner)
    if state.outcome is LeaseOutcome.NOT_RENEWED:
        is_renewable = template.settings.renewable
        reason = "max_term is reached." if is_renewable else "The template is not renewable."
        raise ProblemError(
            schemas.NOT_RENEWED, detail=f"{reason} The end of the lease is unchanged."
        )
    if state.outcome is not LeaseOutcome.GRANTED:
        raise _make_lease_over_problem(path.resource, body.fence)
    return _make_status(path, body.holder, state)


@ENDPOINTS.delete(
    _LEASE,
    _CHANGES,
    replies={200: "Whether there was anything to release."},
    problems=(schemas.LEASE_OVER,),
)
async def release_lease(
    request: web.Request, params: schemas.ReleaseParameters
) -> schemas.Released:
    """Release a lease, or leave the queue.

    The next holder is called at once. Idempotent. With a fencing number, only that lease is
    released: 409 if the holder has a newer lease. A token can release its own holders, and
    `admin_token` all holders."""
    template, owner = _find_template(request), owner_of(request)
    owners = [owner.name]
    if owner.is_operator:
        owners = list_owners(request) if params.owner is None else [params.owner]
    state = await template.release(params.resource, params.holder, params.fence, owners=owners)
    if state.outcome is LeaseOutcome.STALE and params.fence is not None:
        raise _make_lease_over_problem(params.resource, params.fence)
    return schemas.Released(released=state.outcome is LeaseOutcome.GRANTED)


@contextlib.contextmanager
def _listen(
    request: web.Request, params: schemas.TakeParameters, holder: str
) -> Iterator[asyncio.Event]:
    """Yield an event that is set when the holder is called, the client disconnects or the replica
    stops. Without `wait`, the event is never set."""
    if not params.wait:
        yield asyncio.Event()
        return
    template, owner = _find_template(request), owner_of(request).name
    template.check(params.resource)
    with (
        request.app[LONG_POLLS].keep_open(request) as event,
        template.listen(params.resource, holder, event, owner=owner),
    ):
        yield event


async def _wait(
    request: web.Request,
    wake_event: asyncio.Event,
    poll: Callable[[], Awaitable[HolderState]],
    state: HolderState,
    wait_s: float,
) -> tuple[HolderState, float | None]:
    """Poll a waiting holder's state when the event is set and when a heartbeat is due, until the
    holder no longer waits or `wait_s` seconds have passed. Return the latest state, and how many
    seconds after the beginning it was read, or None if `wait_s` is 0."""
    polls, began_s = request.app[LONG_POLLS], time.monotonic()
    held_s, pause_s, failure = 0.0, state.refresh_ms / 1000, None
    while state.outcome is LeaseOutcome.WAITING and not polls.is_closed:
        if (left_s := began_s + wait_s - time.monotonic()) <= 0:
            break
        await wait_for(wake_event, min(left_s, _align_pause(pause_s)))
        # A poll would take the lease for nobody. The client may come again, so it keeps its place.
        if is_gone(request) or polls.is_closed:
            break
        wake_event.clear()
        polled_s = time.monotonic() - began_s
        try:
            state = await poll()
        except StoreError as error:  # a short outage must not fail the request
            failure, pause_s = error, RETRY_S
        else:
            failure, held_s, pause_s = None, polled_s, state.refresh_ms / 1000
    if failure is not None:
        raise failure
    return state, held_s if wait_s else None


def _align_pause(pause_s: float) -> float:
    """Return a pause that ends at the next multiple of HEARTBEAT_STEP_S, so that the heartbeats of
    many requests are one call of Redis. A pause of up to a second stays as it is."""
    if pause_s <= 1:
        return pause_s
    now_s = time.monotonic()
    return math.ceil((now_s + pause_s) / HEARTBEAT_STEP_S) * HEARTBEAT_STEP_S - now_s


def _make_lease_over_problem(resource: str, fence: int) -> ProblemError:
    return ProblemError(
        schemas.LEASE_OVER,
        detail=f"{fence} is not the fencing number of this holder's lease of {resource}: it ended, "
        "or there is a newer one. Stop, and take it anew.",
    )


def _make_status(
    path: schemas.LeasePath, holder: str, state: HolderState, held_s: float | None = None
) -> schemas.LeaseStatus:
    members: dict[str, Any] = {"state": state.outcome.name.lower(), "waiting": state.waiting}
    if state.outcome is LeaseOutcome.GRANTED:
        members |= {"waiting": None, "fence": state.fence}
        members |= {"granted_at": iso(state.started_ms), "expires_at": iso(state.expires_ms)}
        members["expires_in_seconds"] = (state.expires_ms - state.now_ms) / 1000
    elif state.outcome is LeaseOutcome.WAITING:
        members["order"] = state.order
        if not state.is_recovering:
            members |= {"position": state.ahead + 1, "ahead": state.ahead}
    return schemas.LeaseStatus(
        template=path.template,
        resource=path.resource,
        holder=holder,
        wait_seconds=_to_seconds(state.wait_ms),
        refresh_after_seconds=_to_seconds(state.refresh_ms or None),
        updated_at=iso(state.now_ms),
        held_seconds=held_s,
        **members,
    )


def list_owners(request: web.Request) -> list[str]:
    """Return the names of all tokens that a holder may have sent, and "" for browsers."""
    return ["", *OWNERS, *request.app[SETTINGS].tokens]


def _build_resource_members(resource: Resource, max_holders: int = 1000) -> dict[str, Any]:
    started_ms = [holder.started_ms for holder in resource.holders if holder.started_ms]
    return {
        "name": resource.name,
        "holders": [
            schemas.LeaseHolder(
                **_build_holder_members(holder.holder),
                fence=holder.fence or None,
                granted_at=iso(holder.started_ms) if holder.started_ms else None,
                expires_at=iso(holder.expires_ms),
            )
            for holder in resource.holders[:max_holders]
        ],
        "held": len(resource.holders),
        "oldest_at": iso(min(started_ms)) if started_ms else None,
        "waiting": resource.waiting,
        "wait_seconds": _to_seconds(resource.wait_ms),
    }


def _build_holder_members(name: str) -> dict[str, Any]:
    holder, owner = split_stored_name(name)
    number = visitor_number(holder) if not owner and is_visitor_id(holder) else None
    return {"holder": holder, "owner": owner or None, "number": number}


def _to_seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / 1000
