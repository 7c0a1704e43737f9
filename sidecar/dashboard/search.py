"""The search of the dashboard: one endpoint that finds rooms, targets, jobs, leases and visitors.

Names are in memory. Visitors and leases are in Redis, which has no index of parts of their ids, so
they are searched in steps. A response covers some steps, and the next response continues there.
"""

import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from functools import partial
from typing import Annotated, Literal, TypeAlias

from aiohttp import web
from pydantic import Field

from sidecar.history.lookups import HISTORY
from sidecar.http.endpoint import VIEWERS, Endpoints
from sidecar.http.models import PageReply, Parameters, Reply, matching, wanted
from sidecar.jobs.model import JobQuery
from sidecar.jobs.service import JOBS
from sidecar.kit.errors import DatabaseError, StoreError
from sidecar.leases.endpoints import list_owners
from sidecar.leases.holder_names import make_stored_name
from sidecar.leases.service import LEASES, TemplateLeases
from sidecar.limits.service import LIMITS
from sidecar.rooms.endpoints.visitors import find_state
from sidecar.rooms.service import ROOMS, WaitingRoom
from sidecar.rooms.store.lists import SEARCHED_SETS
from sidecar.visitors.tokens import is_visitor_id
from sidecar.visitors.visitor_number import read_number, visitor_number
from sidecar.webhooks.service import WEBHOOKS

#: The maximum cost of one response, and the cost of searching the leases of a template. Reading
#: about 1000 visitors costs 1.
MAX_COST, LEASE_COST = 500, 50
#: Seconds after which no further step begins, because the browser would not wait longer.
MAX_S = 3.0
#: The maximum number of hits of each kind in one response.
MAX_HITS = 8
#: The beginning of a job's id must have at least four characters.
_JOB_ID = re.compile("[A-Za-z0-9_-]{4,22}")

ENDPOINTS = Endpoints("administration")


class SearchParameters(Parameters):
    q: Annotated[
        str,
        Field(min_length=2, max_length=128, examples=["7K2Q-9XDM"]),
        wanted("2 to 128 characters"),
    ]
    """A part of a room's, template's, limit's, target's or webhook's name; the beginning of a job's
    id or of a resource's name; a holder's name or a fencing number; a visitor's number or id."""
    after: Annotated[str, *matching("([0-9]{1,7}-.{0,128})?", "the `next` of the page before")] = ""
    """The `next` of the previous page."""


class Hit(Reply):
    kind: Literal["room", "template", "limit", "target", "webhook", "job", "resource", "visitor"]
    """The kind of the hit."""
    name: str
    """The name, the id of a job, or the number of a visitor."""
    of: str = ""
    """A resource's template, a job's target or a visitor's room."""
    id: str = ""
    """A visitor's id."""
    state: str = ""
    """The state of a job or a visitor. `recorded`: a visitor who is only in the history."""


class Hits(PageReply):
    hits: list[Hit]
    """The hits. A page may be empty although more pages follow."""
    unavailable: list[Literal["redis", "database"]]
    """The stores that did not answer and were not searched."""


#: Searches a part of Redis from a cursor on. Returns the next cursor ("" at the end) and the hits.
Step: TypeAlias = Callable[[str], Awaitable[tuple[str, list[Hit]]]]


@ENDPOINTS.get("/admin/search", VIEWERS, replies={200: "A page of hits."})
async def search(request: web.Request, page: SearchParameters) -> Hits:
    """Search rooms, templates, limits, targets, webhooks, jobs, leases and visitors.

    One request does a limited amount of work, however many rooms there are. `next` is not null if
    there is more to search.
    """
    hits: dict[tuple[str, str, str], Hit] = {}
    unavailable: list[Literal["redis", "database"]] = []
    query, next_after = page.q.strip(), None
    if not page.after:
        _add(hits, _find_names(request, query))
        try:
            _add(hits, [hit async for hit in _find_in_database(request, query)])
        except DatabaseError:
            unavailable.append("database")
    try:
        found, next_after = await _search_redis([*_make_steps(request, query)], page.after)
        _add(hits, found)
    except StoreError:
        unavailable.append("redis")
    return Hits(hits=[*hits.values()], unavailable=unavailable, next=next_after)


def _add(hits: dict[tuple[str, str, str], Hit], found: Iterable[Hit]) -> None:
    hits.update({(hit.kind, hit.of, hit.id or hit.name): hit for hit in found})


def _find_names(request: web.Request, query: str) -> Iterator[Hit]:
    app, wanted_text = request.app, query.casefold()
    names: dict[Literal["room", "template", "limit", "target", "webhook"], list[str]] = {
        "room": [room.name for room in app[ROOMS]],
        "target": [target.name for target in app[JOBS].targets] if JOBS in app else [],
        "template": [template.name for template in app[LEASES]],
        "limit": [limit.name for limit in app[LIMITS]],
        "webhook": [webhook.name for webhook in app[WEBHOOKS]],
    }
    for kind, all_names in names.items():
        matching_names = sorted(name for name in all_names if wanted_text in name.casefold())
        # Names that begin with the text come first.
        matching_names.sort(key=lambda name: not name.casefold().startswith(wanted_text))
        yield from (Hit(kind=kind, name=name) for name in matching_names[:MAX_HITS])


async def _find_in_database(request: web.Request, query: str) -> AsyncIterator[Hit]:
    """Find jobs by the beginning of their ids (the latest 5,000), and visitors in the history."""
    if JOBS in request.app and _JOB_ID.fullmatch(query):
        query_ids = JobQuery(id=query, limit=MAX_HITS)
        jobs, _ = await request.app[JOBS].store.search.find_page(query_ids)
        for job in jobs:
            yield Hit(kind="job", name=job.id, of=job.target, state=job.state)
    number = visitor_number(query) if is_visitor_id(query) else read_number(query)
    if number and HISTORY in request.app:
        rooms = [room.name for room in request.app[ROOMS]]
        for room, visitor in await request.app[HISTORY].find_in_rooms(rooms, number):
            if visitor == query or not is_visitor_id(query):
                yield _make_visitor_hit(room, visitor, "recorded")


def _make_visitor_hit(room: str, visitor: str, state: str) -> Hit:
    return Hit(kind="visitor", name=visitor_number(visitor), of=room, id=visitor, state=state)


def _make_steps(request: web.Request, query: str) -> Iterator[tuple[int, Step]]:
    """Yield the steps of the search in Redis, each with its cost."""
    number = read_number(query)
    for room in request.app[ROOMS]:
        if number:
            yield from ((1, partial(_scan_room, room, name, number)) for name in SEARCHED_SETS)
        elif is_visitor_id(query):
            yield 1, partial(_find_in_room, room, query)
    owners = list_owners(request)
    for template in request.app[LEASES]:
        yield LEASE_COST, partial(_find_resources, template, query, owners)


async def _search_redis(steps: list[tuple[int, Step]], after: str) -> tuple[list[Hit], str | None]:
    """Run steps from `after` on, until they cost MAX_COST or find MAX_HITS hits. Return the hits,
    and the `after` of the next search, or None after the last step. Raises StoreError."""
    index, _, cursor = after.partition("-")
    hits: list[Hit] = []
    cost, number, until_s = 0, int(index or 0), time.monotonic() + MAX_S
    while number < len(steps):
        step_cost, step = steps[number]
        cost += step_cost
        if cost > MAX_COST or len(hits) >= MAX_HITS or time.monotonic() > until_s:
            return hits, f"{number}-{cursor}"
        cursor, found = await step(cursor)
        hits += found
        number += not cursor
    return hits, None


async def _scan_room(
    room: WaitingRoom, name: str, number: str, cursor: str
) -> tuple[str, list[Hit]]:
    start = int(cursor) if cursor.isdecimal() else 0
    next_cursor, ids = await room.store.lists.scan_number(name, number, start)
    hits = [hit for visitor in sorted(ids) for hit in (await _find_in_room(room, visitor, ""))[1]]
    return str(next_cursor or ""), hits


async def _find_in_room(room: WaitingRoom, visitor: str, _cursor: str) -> tuple[str, list[Hit]]:
    state = find_state(await room.store.lists.find(visitor))
    return "", [] if state == "unknown" else [_make_visitor_hit(room.name, visitor, state)]


async def _find_resources(
    template: TemplateLeases, query: str, owners: list[str], cursor: str
) -> tuple[str, list[Hit]]:
    names = [make_stored_name(query, owner) for owner in owners]
    found, next_name = await template.store.find(query, names, after=cursor, limit=MAX_HITS)
    hits = [Hit(kind="resource", name=resource.name, of=template.name) for resource in found]
    return next_name or "", hits
