"""The service API's doors to rate limits."""

from __future__ import annotations

from typing import Any

from sidecar.kit.http.long_poll import MAX_WAIT_S
from sidecar.kit.http.openapi import (
    OPERATORS,
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
from sidecar.kit.http.settings_schema import as_told
from sidecar.limits.endpoints import MAX_CALLS, MAX_PERMIT
from sidecar.limits.model import Outcome
from sidecar.limits.settings import MAX_COST, MAX_KEY_LENGTH, MAX_LIMIT, LimitSettings

_LIMIT = "/v1/limits/{name}"
_VALUE = _LIMIT + "/values/{key}"
_KEY = text("As a call is told it, in place of fields.", pattern=f"^[!-~]{{0,{MAX_KEY_LENGTH}}}$")
_FIELDS = shape("LimitFields")
_HEADERS = {
    "Cache-Control": ref("headers", "NoStore"),
    "RateLimit-Policy": ref("headers", "RateLimitPolicy"),
    "RateLimit": ref("headers", "RateLimit"),
}
_SHOWN = {
    "allowed": True, "outcome": "paced", "permit": "1~~7ae318c2934d.2", "key": "refund:wx",
    "limit": 1, "remaining": 0, "wait_seconds": 2.75, "at": "2026-11-27T18:00:06.000000+00:00",
    "reset_seconds": 3.75, "expires_in_seconds": None,
}  # fmt: skip
_REFUSED = {
    "type": "about:blank", "title": "Over the limit", "status": 429,
    "detail": "Nothing was counted. Ask again after 1 s.", "retry_after": 1, **_SHOWN,
    "allowed": False, "outcome": "refused", "permit": None, "wait_seconds": 0.42,
}  # fmt: skip


def schemas() -> Json:
    seconds: Json = {"type": "number", "minimum": 0}
    decision = {
        "allowed": {"type": "boolean", "description": "Whether it may go, at its moment."},
        "outcome": words(*Outcome, description="admitted_alone, refused_alone: the store did not "
                         "answer, and the limit says what then."),
        "permit": or_null(text("Gives it back. null: there is nothing to give back.")),
        "key": text("The call's key, to name it as a whole."),
        "limit": or_null(whole("Of that key. null: it has none, or nobody knows.")),
        "remaining": or_null(whole("What a call that came now could cost.")),
        "wait_seconds": or_null({**seconds, "description": "Until it may go, or may be asked for "
                                 "again. null: there is no such moment, or nobody knows."}),
        "at": or_null(moment("The same moment, by the store's clock.")),
        "reset_seconds": or_null({**seconds, "description": "Until all of the limit is free."}),
        "expires_in_seconds": or_null({**seconds, "description": "Of concurrency: until this "
                                       "permit ends by itself. null: it was given none."}),
    }  # fmt: skip
    rule = {
        "name": text(pattern=ROOM), **as_told(LimitSettings),
        "fields": rows(text(), "What a call names, in the key's order."),
    }  # fmt: skip
    del rule["values"]
    rule["key"] = text("What calls are told apart by, with the fields in braces.")
    rule["limit"]["description"] = "Of a key without a value of its own. null: none."
    return {
        "Decision": thing(decision, description="What a call was told."),
        "LimitRule": thing(rule, description="A limit as the file has it; durations in seconds."),
        "LimitFields": {
            "type": "object", "additionalProperties": text(minLength=1, maxLength=MAX_KEY_LENGTH),
            "description": "Those that the limit's key is made of.",
        },
        "LimitCall": {"anyOf": [_call("fields"), _call("key")]},
    }  # fmt: skip


def _call(named: str) -> Json:
    """One that is named by its fields, or by its key. What is null is as if it was not there."""
    given = {"fields": _FIELDS, "key": _KEY}
    other: Json = {"type": "null"}
    made = {
        "fields": other, "key": other, named: given[named],
        "cost": or_null(whole("1, if not said.", minimum=1, maximum=MAX_COST)),
        "id": or_null(text("The caller's own name for it: asked for again, it is the same call.",
                           pattern="^[A-Za-z0-9._:@+-]{1,64}$")),
    }  # fmt: skip
    if named == "fields":
        made["fields"] = or_null(_FIELDS)
        optional = tuple(made)
    else:
        optional = tuple(name for name in made if name != "key")
    return {**thing(made, optional=optional), "additionalProperties": False}


def _ask(name: str, summary: str, answer: Json, *refused: str, **more: Any) -> Json:
    return {
        "operationId": name,
        "tags": ["limits"],
        "summary": summary,
        "security": SERVICE,
        **more,
        "responses": {
            "200": answer,
            **refusals("401", "403", *refused, unknown="UnknownLimit", off="ServiceOff"),
        },
    }


def paths() -> Json:
    return {**_rules(), **_calls(), **_values()}


def _rules() -> Json:
    query = [
        {"name": "fields", "in": "query", "style": "form", "explode": True, "schema": _FIELDS,
         "description": "Each field of the key by its name, as in `?biz=refund&channel=wx`.",
         "example": {"biz": "refund", "channel": "wx"}},
        {"name": "key", "in": "query", "schema": _KEY, "description": "The whole key, instead."},
    ]  # fmt: skip
    both = {"allOf": [shape("LimitRule"), shape("Decision")]}
    return {
        "/v1/limits": {
            "get": _ask("listLimits", "All limits, as the file has them",
                        reply("The limits.", thing({"limits": rows(shape("LimitRule"))}))),
        },
        _LIMIT: {
            "parameters": parameters("LimitName"),
            "get": _ask(
                "lookAtLimit", "What a call would be told now",
                reply("The rule; and what a call of cost 1 would be told: granted, paced or "
                      "refused. `key` and `limit` are the call's.", both, headers=_HEADERS),
                "404", "422", "503",
                description="Nothing is taken. Say the fields, or the key.", parameters=query,
            ),
        },
    }  # fmt: skip


def _calls() -> Json:
    refused = {"allOf": [shape("Problem"), shape("Decision")]}
    over = {
        "description": "Over the limit, or beyond `max_wait`; nothing was counted. Where the limit "
        "is 0, no moment is told.",
        "headers": {**_HEADERS, "Retry-After": ref("headers", "RetryAfter")},
        "content": {"application/problem+json": {"schema": refused, "example": _REFUSED}},
    }
    away = {
        "description": "The store does not answer, and the limit refuses then "
        "(`on_store_failure`).",
        "headers": {"Cache-Control": _HEADERS["Cache-Control"],
                    "Retry-After": ref("headers", "RetryAfter")},
        "content": {"application/problem+json": {"schema": refused}},
    }  # fmt: skip
    many = {**rows(shape("LimitCall")), "minItems": 1, "maxItems": MAX_CALLS}
    one_or_many = {"anyOf": [shape("Decision"), rows(shape("Decision"), "In the list's order.")]}
    wait = {
        "name": "wait", "in": "query", "schema": whole(maximum=MAX_WAIT_S, default=0),
        "description": "The answer comes when the call may go, so many seconds later at most, with "
        "the rest in `wait_seconds`. A client that goes away before gives the moment back, unless "
        "the call has an id. A replica that stops answers at once. Not with a list.",
    }  # fmt: skip
    hold = {
        "name": "hold", "in": "query", "schema": {"type": "boolean", "default": False},
        "deprecated": True, "description": "As `wait`, however long it takes.",
    }  # fmt: skip
    acquire = _ask(
        "acquireLimit", "May this call go?",
        reply("It may, at its moment; of a list, what each call is told.", one_or_many,
              example=_SHOWN, headers=_HEADERS),
        "400", "404", "413", "422",
        description=f"Or a list of calls, {MAX_CALLS} at most: it is answered with 200 whatever "
        "they are told. Without a body: a call of a limit whose key has no fields. A single call "
        "that costs more than could ever go is a 422.",
        parameters=[wait, hold],
        requestBody=body({"anyOf": [shape("LimitCall"), many]}, {
            "by its fields": {"fields": {"biz": "refund", "channel": "wx"}},
            "with an id": {"key": "refund:wx", "cost": 2, "id": "order-4711"},
            "a list": [{"key": "refund:wx"}, {"key": "pay:wx", "cost": 3}],
        }) | {"required": False},
    )  # fmt: skip
    acquire["responses"] |= {"429": over, "503": away}
    permit = text("As the call was told it.", minLength=1, maxLength=MAX_PERMIT,
                  pattern="^[\\x00-\\x7f]*$")  # fmt: skip
    by_fields = thing({"permit": permit, "fields": or_null(_FIELDS), "key": {"type": "null"}},
                      optional=("fields", "key"))  # fmt: skip
    by_key = thing({"permit": permit, "key": _KEY, "fields": {"type": "null"}},
                   optional=("fields",))  # fmt: skip
    closed = {"additionalProperties": False}
    asked = {"anyOf": [{**by_fields, **closed}, {**by_key, **closed}]}
    release = _ask(
        "releaseLimit", "Give back what was not used",
        reply("Whether there was anything to give back.", thing({"released": {"type": "boolean"}}),
              example={"released": True}),
        "400", "404", "413", "422", "503",
        description="Of concurrency, a permit that is not over; else a moment that is yet to come. "
        "Twice equals once.",
        requestBody=body(asked, {
            "a permit": {"key": "refund:wx", "permit": "1~~7ae318c2934d.2"},
        }),
    )  # fmt: skip
    return {
        _LIMIT + "/acquire": {"parameters": parameters("LimitName"), "post": acquire},
        _LIMIT + "/release": {"parameters": parameters("LimitName"), "post": release},
    }


def _values() -> Json:
    value = {"type": "integer", "minimum": -1, "maximum": MAX_LIMIT, "description": "-1: no limit."}
    by_key = {"type": "object", "additionalProperties": value}
    now = reply("The key's limit from the next call on.", thing({
        "key": text(), "limit": value,
        "warning": text("There where no call that names its fields can have the key."),
    }, optional=("warning",)),
                example={"key": "refund:wx", "limit": 2})  # fmt: skip
    asked = {**thing({"limit": value}), "additionalProperties": False}
    return {
        _LIMIT + "/values": {
            "parameters": parameters("LimitName"),
            "get": _ask(
                "listValues", "Limits of single keys",
                reply("Those that the file has, and those that were set since, which go before.",
                      thing({"file": by_key, "set": by_key}),
                      example={"file": {"refund:wx": 1}, "set": {"refund:wx": 2}}),
                "404", "503",
            ),
        },
        _VALUE: {
            "parameters": parameters("LimitName", "LimitKey"),
            "put": _ask("setValue", "Set a key's limit", now, "400", "404", "413", "422", "503",
                        description="For operators. It stays in the store, for all replicas. "
                        "What was promised before is kept.", security=OPERATORS,
                        requestBody=body(asked, {"a limit": {"limit": 2}, "none": {"limit": -1}})),
            "delete": _ask("unsetValue", "Go back to what the file says of a key", now,
                           "404", "422", "503", description="For operators.",
                           security=OPERATORS),
        },
    }  # fmt: skip
