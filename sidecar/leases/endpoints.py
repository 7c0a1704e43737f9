"""Leases for programs: take or queue, look, renew, release, list."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from aiohttp import web

from sidecar.kit.clock import iso
from sidecar.kit.errors import ConfigError
from sidecar.kit.http.app_keys import SETTINGS
from sidecar.kit.http.auth.owner import owner_of
from sidecar.kit.http.auth.scopes import OWNERS
from sidecar.kit.http.problems import problem
from sidecar.kit.http.request_parameters import LIST_LIMIT, object_of, whole_of
from sidecar.kit.names import is_plain_name
from sidecar.leases.app_keys import LEASES
from sidecar.leases.model import LeaseOutcome
from sidecar.leases.settings import RESOURCE, holder_and_owner

if TYPE_CHECKING:
    from sidecar.leases.model import Hold
    from sidecar.leases.service import Template
    from sidecar.leases.store import Holder, Resource

_NO_STORE = {"Cache-Control": "no-store"}
_STATES = {
    LeaseOutcome.GRANTED: "granted",
    LeaseOutcome.WAITING: "waiting",
    LeaseOutcome.FULL: "full",
}
#: A number of JSON that is exact everywhere.
MAX_NUMBER = 2**53


async def take(request: web.Request) -> web.Response:
    """The lease (200), or a place in line (202); 429 where the line is full."""
    template, resource = _named(request)
    holder, order = _holder_and(await object_of(request), "order")
    owner = owner_of(request).name
    hold = await template.take(resource, holder, owner=owner, order=order)
    told = _told(template, resource, holder, hold)
    if hold.outcome is LeaseOutcome.FULL:
        return problem(
            429,
            "The line is full",
            detail=f"max_waiting = {template.settings.max_waiting} are in line for {resource}.",
            retry_after=max(1, math.ceil(hold.refresh_ms / 1000)),
            **told,
        )
    status = 200 if hold.outcome is LeaseOutcome.GRANTED else 202
    return web.json_response(told, status=status, headers=_NO_STORE)


async def look(request: web.Request) -> web.Response:
    """Granted, waiting or gone. Asking is the heartbeat of whoever waits."""
    template, resource = _named(request)
    holder = _in_query(request, "holder")
    hold = await template.look(resource, holder, owner=owner_of(request).name)
    return web.json_response(_told(template, resource, holder, hold), headers=_NO_STORE)


async def renew(request: web.Request) -> web.Response:
    """The term begins anew; 409 where the lease is over, is another's, or may not be renewed."""
    template, resource = _named(request)
    holder, fence = _holder_and(await object_of(request), "fence")
    if fence is None:
        raise ConfigError(["fence: is needed, as the lease was told it"])
    hold = await template.renew(resource, holder, fence, owner=owner_of(request).name)
    if hold.outcome is LeaseOutcome.GRANTED:
        return web.json_response(_told(template, resource, holder, hold), headers=_NO_STORE)
    if hold.outcome is LeaseOutcome.NOT_RENEWED:
        is_never = not template.settings.renewable
        why = "Its leases are not renewable." if is_never else "max_term is reached."
        return problem(409, "Not renewed", detail=f"{why} It ends when it said.")
    return _stale(resource, fence)


async def release(request: web.Request) -> web.Response:
    """Gives up the lease, the turn or the place; the next in line has it at once. Twice equals
    once. With a fencing number only that lease; 409 where the holder has a newer one. The
    operator's is of whichever token's holder is called so, or of a browser."""
    template, resource = _named(request)
    holder, fence = _in_query(request, "holder"), None
    if "fence" in request.query:
        fence = _whole(request.query["fence"], "fence")
    hold = await template.release(resource, holder, fence, owners=_owners(request))
    if hold.outcome is LeaseOutcome.STALE and fence is not None:
        return _stale(resource, fence)
    return web.json_response({"released": hold.outcome is LeaseOutcome.GRANTED}, headers=_NO_STORE)


async def list_resources(request: web.Request) -> web.Response:
    """Who holds what, by the resource's name; `next` is the `after` of the next page."""
    template = request.app[LEASES].get(request.match_info["template"])
    after, limit = (
        request.query.get("after", ""),
        _whole(request.query.get("limit", "100"), "limit"),
    )
    if after and not RESOURCE.match(after):
        raise ConfigError(["after: the name of a resource"])
    if not 1 <= limit <= LIST_LIMIT:
        raise ConfigError([f"limit: a whole number from 1 to {LIST_LIMIT}"])
    found = await template.store.list(after=after, limit=limit)
    document = {
        "template": template.name,
        "resources": [_listed(resource) for resource in found],
        "next": found[-1].name if len(found) == limit else None,
        "count": await template.store.count(),
    }
    return web.json_response(document, headers=_NO_STORE)


async def list_templates(request: web.Request) -> web.Response:
    """The templates as the file has them, and how many resources of each are in use."""
    templates = [
        {
            "name": template.name,
            **template.settings.model_dump(),
            "in_use": await template.store.count(),
        }
        for template in request.app[LEASES]
    ]
    return web.json_response({"leases": templates}, headers=_NO_STORE)


def _named(request: web.Request) -> tuple[Template, str]:
    template = request.app[LEASES].get(request.match_info["template"])
    return template, request.match_info["resource"]


def _owners(request: web.Request) -> list[str]:
    """Whose holders a release is of: the token's own, or for an operator those of all."""
    owner, asked = owner_of(request), request.query.get("owner")
    if not owner.is_operator:
        return [owner.name]
    if asked is None:
        return ["", *OWNERS, *request.app[SETTINGS].tokens]
    if asked and not is_plain_name(asked):
        raise ConfigError(["owner: the name of a token, or empty for a browser"])
    return [asked]


def _told(template: Template, resource: str, holder: str, hold: Hold) -> dict[str, Any]:
    is_granted = hold.outcome is LeaseOutcome.GRANTED
    is_waiting = hold.outcome is LeaseOutcome.WAITING
    is_known = is_waiting and not hold.is_recovering
    return {
        "state": _STATES.get(hold.outcome, "gone"),
        "template": template.name,
        "resource": resource,
        "holder": holder,
        "fence": hold.fence if is_granted else None,
        "granted_at": iso(hold.started_ms) if is_granted else None,
        "expires_at": iso(hold.expires_ms) if is_granted else None,
        "expires_in_seconds": (hold.expires_ms - hold.now_ms) / 1000 if is_granted else None,
        "position": hold.ahead + 1 if is_known else None,
        "ahead": hold.ahead if is_known else None,
        "waiting": None if is_granted else hold.waiting,
        "wait_seconds": hold.wait_ms / 1000 if is_known and hold.wait_ms is not None else None,
        "order": hold.order if is_waiting else None,
        "refresh_after_seconds": hold.refresh_ms / 1000 if hold.refresh_ms else None,
        "updated_at": iso(hold.now_ms),
    }


def _listed(resource: Resource) -> dict[str, Any]:
    return {
        "resource": resource.name,
        "holders": [_listed_holder(held) for held in resource.holders],
        "waiting": resource.waiting,
    }


def _listed_holder(held: Holder) -> dict[str, Any]:
    holder, owner = holder_and_owner(held.holder)
    return {
        "holder": holder,
        "owner": owner or None,
        "fence": held.fence or None,
        "granted_at": iso(held.started_ms) if held.started_ms else None,
        "expires_at": iso(held.expires_ms),
    }


def _stale(resource: str, fence: int) -> web.Response:
    return problem(
        409,
        "The lease is over",
        detail=f"{fence} is not the fencing number of this holder's lease of {resource}: it ended, "
        "or there is a newer one. Stop, and take it anew.",
    )


def _holder_and(body: dict[str, Any], name: str) -> tuple[str, int | None]:
    """The members of a body: the holder, and perhaps a number."""
    unknown = sorted(body.keys() - {"holder", name})
    problems = [f"{other[:40]}: there is no such member" for other in unknown]
    holder, number = body.get("holder"), whole_of(body.get(name))
    if not isinstance(holder, str) or not holder:
        problems.append("holder: is needed, a text")
    if body.get(name) is not None and (number is None or not 0 <= number <= MAX_NUMBER):
        problems.append(f"{name}: a whole number")
    if problems:
        raise ConfigError(problems)
    return str(holder), number


def _whole(text: str, name: str) -> int:
    if text.isascii() and text.isdigit() and len(text) <= 16 and int(text) <= MAX_NUMBER:
        return int(text)
    raise ConfigError([f"{name}: a whole number (got {text[:40]!r})"])


def _in_query(request: web.Request, name: str) -> str:
    value = request.query.get(name, "")
    if not value:
        raise ConfigError([f"{name}: is needed, in the query"])
    return value
