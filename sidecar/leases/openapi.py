"""The service API's doors to leases."""

from __future__ import annotations

from typing import Any

from sidecar.kit.http.openapi import (
    ROOM,
    SERVICE,
    Json,
    body,
    moment,
    or_null,
    parameters,
    ref,
    refusals,
    reply,
    rows,
    shape,
    text,
    thing,
    whole,
    words,
)
from sidecar.kit.http.request_parameters import LIST_LIMIT
from sidecar.kit.http.settings_schema import as_told
from sidecar.leases.endpoints import MAX_NUMBER
from sidecar.leases.settings import HOLDER, RESOURCE, LeaseSettings

#: As JSON Schema writes it.
NAME_OF_RESOURCE = "^" + RESOURCE.pattern.replace(r"\Z", "$")


_TEMPLATE = "/v1/leases/{template}"
_LEASE = _TEMPLATE + "/{resource}"
_HOLDER = text("Who: a program, a visitor, an order.",
               pattern="^" + HOLDER.pattern.replace(r"\Z", "$"))  # fmt: skip
_FENCE = whole("As the lease was told it.", maximum=MAX_NUMBER)
_NO_STORE = {"Cache-Control": ref("headers", "NoStore")}
_HELD = {
    "state": "granted", "template": "seat", "resource": "17", "holder": "order-4711",
    "fence": 1795802400000000, "granted_at": "2026-11-27T18:00:00.000+00:00",
    "expires_at": "2026-11-27T18:01:00.000+00:00", "expires_in_seconds": 60.0, "position": None,
    "ahead": None, "waiting": None, "wait_seconds": None, "order": None,
    "refresh_after_seconds": None, "updated_at": "2026-11-27T18:00:00.000+00:00",
}  # fmt: skip
_WAITS = {
    **_HELD, "state": "waiting", "holder": "order-4712", "fence": None, "granted_at": None,
    "expires_at": None, "expires_in_seconds": None, "position": 1, "ahead": 0, "waiting": 1,
    "wait_seconds": 60.0, "order": 1795802400120000, "refresh_after_seconds": 2.0,
}  # fmt: skip


def schemas() -> Json:
    seconds: Json = {"type": "number", "minimum": 0}
    lease = {
        "state": words("granted", "waiting", "gone", "full", description="gone: has neither the "
                       "lease nor a place; full: the line is."),
        "template": text(), "resource": text(), "holder": text(),
        "fence": or_null(whole("The fencing number: of a later lease it is greater. Give it to "
                               "what you change, which refuses a smaller one.")),
        "granted_at": or_null(moment()),
        "expires_at": or_null(moment("By the store's clock.")),
        "expires_in_seconds": or_null(seconds),
        "position": or_null(whole("In line, from 1 on. null also while a store that was emptied "
                                  "is filled again.", minimum=1)),
        "ahead": or_null(whole()),
        "waiting": or_null(whole("How many wait for this resource. null for who holds it.")),
        "wait_seconds": or_null({**seconds, "description": "Expected. null: not known."}),
        "order": or_null(whole("The place's own number: say it when you take the resource again, "
                               "should the store be emptied.")),
        "refresh_after_seconds": or_null({**seconds, "description": "When to ask again: whoever "
                                          "waits and does not has left. null: no need to."}),
        "updated_at": moment(),
    }  # fmt: skip
    holder = {
        "holder": text(),
        "owner": or_null(text("The token that the holder came with. null: a browser.")),
        "fence": or_null(whole("null: it is their turn, and they have not come yet.")),
        "granted_at": or_null(moment()),
        "expires_at": moment(),
    }
    template = {
        "name": text(pattern=ROOM), **as_told(LeaseSettings),
        "in_use": whole("How many resources are held or waited for."),
    }  # fmt: skip
    resource = {"resource": text(), "holders": rows(thing(holder)), "waiting": whole()}
    return {
        "Lease": thing(lease, description="Where a holder stands at one resource."),
        "LeaseTemplate": thing(template, description="As the file has it; durations in seconds."),
        "LeasedResource": thing(resource, description="The first whose lease ends comes first."),
    }


def _ask(name: str, summary: str, answer: Json, *refused: str, **more: Any) -> Json:
    made = refusals("401", "403", "503", *refused, unknown="UnknownLease", off="ServiceOff")
    if "409" in made:
        made["409"] = ref("responses", "LeaseOver")
    return {
        "operationId": name,
        "tags": ["leases"],
        "summary": summary,
        **more,
        "responses": {"200": answer, **made},
        "security": SERVICE,
    }


def _in_query(name: str, schema: Json, description: str = "", *, required: bool = False) -> Json:
    about = {"description": description} if description else {}
    return {"name": name, "in": "query", "required": required, "schema": schema, **about}


def paths() -> Json:
    page = {
        "template": text(),
        "resources": rows(shape("LeasedResource")),
        "next": or_null(text("The `after` of the next page. null: this is the last.")),
        "count": whole("Of all pages together."),
    }
    return {
        "/v1/leases": {
            "get": _ask("listTemplates", "All templates, as the file has them",
                        reply("The templates.", thing({"leases": rows(shape("LeaseTemplate"))}))),
        },
        _TEMPLATE: {
            "parameters": parameters("Template"),
            "get": _ask(
                "listResources", "Who holds what",
                reply("A page, by the resource's name.", thing(page), headers=_NO_STORE),
                "404", "422",
                description="Only what is held or waited for: nothing else is kept.",
                parameters=[
                    _in_query("after", {"anyOf": [text(pattern=NAME_OF_RESOURCE), {"const": ""}]},
                              "The resource behind which the page begins."),
                    _in_query("limit", whole(minimum=1, maximum=LIST_LIMIT, default=100)),
                ],
            ),
        },
        _LEASE: {"parameters": parameters("Template", "Resource"), **_of_holder()},
    }  # fmt: skip


def _of_holder() -> Json:
    holder = _in_query("holder", _HOLDER, required=True)
    number = or_null(whole("Of a place before, should the store have been emptied since.",
                           maximum=MAX_NUMBER))  # fmt: skip
    taken = {**thing({"holder": _HOLDER, "order": number}, optional=("order",)),
             "additionalProperties": False}  # fmt: skip
    renewed = {**thing({"holder": _HOLDER, "fence": _FENCE}), "additionalProperties": False}
    held = reply("The holder has it.", shape("Lease"), example=_HELD, headers=_NO_STORE)
    take = _ask(
        "takeLease", "Take a resource, or queue for it", held, "400", "404", "413", "422",
        description="Whoever has the lease or a place keeps it: asking twice equals once. Whoever "
        "waits asks again with GET after `refresh_after_seconds`.",
        requestBody=body(taken, {"a holder": {"holder": "order-4711"},
                                 "a place of before": {"holder": "order-4712",
                                                       "order": 1795802400120000}}),
    )  # fmt: skip
    take["responses"]["202"] = reply("They wait.", shape("Lease"), example=_WAITS,
                                     headers=_NO_STORE)  # fmt: skip
    take["responses"]["429"] = {
        "description": "The line is full (`max_waiting`).",
        "headers": {**_NO_STORE, "Retry-After": ref("headers", "RetryAfter")},
        "content": {
            "application/problem+json": {"schema": {"allOf": [shape("Problem"), shape("Lease")]}}
        },
    }
    return {
        "get": _ask(
            "findLease", "Where a holder stands",
            reply("Granted, waiting or gone.", shape("Lease"), example=_WAITS, headers=_NO_STORE),
            "404", "422",
            description="The heartbeat of whoever waits: it takes the lease when it is their turn.",
            parameters=[holder],
        ),
        "post": take,
        "put": _ask(
            "renewLease", "Begin the term anew", held, "400", "404", "409", "413", "422",
            description="409 also where the template is not renewable or `max_term` is reached: "
            "the lease ends when it said.",
            requestBody=body(renewed, {"a lease": {"holder": "order-4711",
                                                   "fence": 1795802400000000}}),
        ),
        "delete": _ask(
            "releaseLease", "Give it up",
            reply("Whether there was anything to give up.",
                  thing({"released": {"type": "boolean"}}), example={"released": True},
                  headers=_NO_STORE),
            "404", "409", "422",
            description="The lease, the turn or the place in line; the next has it at once. Twice "
            "equals once. With a fencing number only that lease: 409 where the holder has a newer "
            "one. Holders are those of the token that asks; the `admin_token` releases anybody's.",
            parameters=[
                holder, _in_query("fence", _FENCE, "Of that lease alone."),
                _in_query("owner", text(pattern=f"^({ROOM.strip('^$')})?$"),
                          "For operators: of this token's holder alone, or of a browser (empty)."),
            ],
        ),
    }  # fmt: skip
