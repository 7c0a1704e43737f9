"""Rate limits for programs: acquire, look, give back, change a key's limit."""

from dataclasses import replace
from typing import Any

import structlog
from aiohttp import web

from sidecar.http.endpoint import OPERATORS, Endpoints, programs
from sidecar.http.json_text import to_json
from sidecar.http.long_poll import LONG_POLLS, is_gone, wait_of
from sidecar.http.models import json_of, unknown_member, whole_of
from sidecar.http.problem_kinds import STORE_UNAVAILABLE
from sidecar.http.problems import problem
from sidecar.kit.clock import iso_us
from sidecar.kit.errors import ConfigError
from sidecar.limits import schemas
from sidecar.limits.app_keys import LIMITS
from sidecar.limits.model import Ask, Decision
from sidecar.limits.service import Limit, check, headers, retry_after_s
from sidecar.limits.settings import MAX_COST, UNLIMITED


def _limit_of(request: web.Request) -> Limit:
    return request.app[LIMITS].get(request.match_info["name"])


ENDPOINTS = Endpoints("limits", find=_limit_of)

_LIMIT = "/v1/limits/{name}"
_VALUE = _LIMIT + "/values/{key:.*}"
_COUNTS = _LIMIT + "/counts"
_READS = programs("limits", "read", role="viewer")
_CHANGES = programs("limits", role="operator")
_RATE = {"RateLimit-Policy": "RateLimitPolicy", "RateLimit": "RateLimit"}
_MEMBERS = frozenset({"fields", "key", "cost", "id"})
_FIELDS = {"fields"}
_NO_STORE = {"Cache-Control": "no-store"}

log = structlog.get_logger()


@ENDPOINTS.get("/v1/limits", _READS, replies={200: "The limits."})
async def list_limits(request: web.Request) -> schemas.LimitRules:
    """List all limits, as configured."""
    rules = [schemas.LimitRule.model_construct(**_rule(limit)) for limit in request.app[LIMITS]]
    return schemas.LimitRules.model_construct(limits=rules)


@ENDPOINTS.post(
    _LIMIT + "/acquire",
    _CHANGES,
    parameters=schemas.AcquireParameters,
    body=schemas.LimitCall | schemas.LimitCalls,
    is_body_optional=True,
    replies={
        200: (
            schemas.Decision | list[schemas.Decision],
            "It may, at its moment; of a list the decision on each call, in the list's order.",
        )
    },
    reply_headers=_RATE,
    problems=(schemas.UNKNOWN_LIMIT, schemas.OVER_LIMIT),
    problem_members={429: schemas.Decision},
    is_hand_made=True,
)
async def acquire_limit(request: web.Request) -> web.Response:
    """May this call go?

    Or a list of calls, 1000 at most: the response is 200 whatever the decisions are. Without a
    body: a call of a limit whose key has no fields. A single call that costs more than could ever
    go is a 422. Where the limit is 0, `at` is null.
    """
    limit = _limit_of(request)
    hold_s = wait_of(request)
    # Of a limit whose key has no fields there is nothing to say.
    body = await json_of(request) if (await request.read()).strip() else {}
    if isinstance(body, list):
        if hold_s:
            raise ConfigError(["wait: for one call, not for a list"])
        return await _acquire_all(request, limit, body)
    ask = _ask(body, limit)
    decision = await limit.acquire(ask)
    if decision.permit:
        decision = await hold(request, limit, ask, decision, hold_s)
    rate = headers(limit, decision)
    if decision.is_allowed:
        return _json(_members(limit, ask, decision), rate)
    return _refusal(limit, ask, decision, rate)


async def _acquire_all(request: web.Request, limit: Limit, body: list[Any]) -> web.Response:
    if not body or len(body) > schemas.MAX_CALLS:
        raise ConfigError([f"a list has 1 to {schemas.MAX_CALLS} calls (got {len(body)})"])
    asks = _asks(body, limit)
    decided = list(zip(asks, await limit.acquire_all(asks), strict=True))
    if is_gone(request):
        for ask, decision in decided:
            _give_back(limit, ask, decision)
    return _json([_members(limit, ask, decision) for ask, decision in decided])


async def hold(
    request: web.Request, limit: Limit, ask: Ask, decision: Decision, hold_s: float
) -> Decision:
    """The decision as it is sent: when the call may go, `hold_s` later at most, or when the replica
    stops. A client that has gone away by then gives the permit back."""
    is_here = False
    try:
        if hold_s and decision.wait_s > 0:
            held_s = min(hold_s, decision.wait_s)
            left_s = await request.app[LONG_POLLS].hold(request, held_s)
            left_s += decision.wait_s - held_s
            decision = replace(decision, now_us=decision.at_us - round(left_s * 1_000_000))
        is_here = not is_gone(request)
        return decision
    finally:
        if not is_here:
            _give_back(limit, ask, decision)


def _give_back(limit: Limit, ask: Ask, decision: Decision) -> None:
    """What has the caller's own name stays: they may be back for it."""
    if decision.permit and not ask.id:
        limit.give_back(ask.key, decision.permit)


@ENDPOINTS.get(
    _LIMIT,
    _READS,
    parameters=schemas.LookParameters,
    replies={200: (schemas.LimitLook, "The rule, and the decision.")},
    reply_headers=_RATE,
    problems=(schemas.UNKNOWN_LIMIT,),
    # Fields are called as the limit's key says.
    is_hand_made=True,
)
async def look_at_limit(request: web.Request) -> web.Response:
    """Show how a limit would decide now.

    Nothing is counted. Send the fields of the key, or the whole key.
    """
    limit = _limit_of(request)
    named = dict(request.query)
    ask = Ask(named["key"] if named.keys() == {"key"} else limit.settings.key_of(named))
    check(ask)
    decision = await limit.store.look(ask.key)
    return _json({**_rule(limit), **_members(limit, ask, decision)}, headers(limit, decision))


@ENDPOINTS.post(
    _LIMIT + "/release",
    _CHANGES,
    replies={200: "Whether there was anything to give back."},
    problems=(schemas.UNKNOWN_LIMIT,),
)
async def release_limit(
    request: web.Request, _: schemas.LimitAddress, body: schemas.ReleasePermit
) -> schemas.PermitReleased:
    """Give back a permit, or a moment in the future.

    A permit of `concurrency` can be released until it ends. Other limits take back moments that
    have not come yet. Idempotent.
    """
    limit = _limit_of(request)
    ask = _ask(body.model_dump(include={"fields", "key"}, exclude_none=True), limit)
    return schemas.PermitReleased(released=await limit.release(ask.key, body.permit))


@ENDPOINTS.get(
    _LIMIT + "/values",
    _READS,
    replies={200: "Those of the file, and those that were set."},
    problems=(schemas.UNKNOWN_LIMIT,),
)
async def list_values(request: web.Request, _: schemas.LimitAddress) -> schemas.KeyValues:
    """List the limits of single keys."""
    limit = _limit_of(request)
    return schemas.KeyValues(file=limit.settings.values, set=await limit.store.values())


@ENDPOINTS.put(
    _VALUE,
    OPERATORS,
    replies={200: "The key's limit from the next call on."},
    problems=(schemas.UNKNOWN_LIMIT,),
)
async def set_value(
    request: web.Request, at: schemas.ValueAddress, body: schemas.SetValue
) -> schemas.KeyValue:
    """Set a key's limit.

    For operators. It holds for all replicas and survives a restart. Decisions already given stay.
    """
    limit, key = _valued(request, at)
    await limit.store.set_value(key, body.limit)
    log.info("limit_set", limit=limit.name, key=key, value=body.limit)
    return schemas.KeyValue(
        key=key, limit=body.limit, warning=limit.settings.warning_of(key) or None
    )


@ENDPOINTS.delete(
    _VALUE,
    OPERATORS,
    replies={200: "The key's limit from the next call on."},
    problems=(schemas.UNKNOWN_LIMIT,),
)
async def unset_value(request: web.Request, at: schemas.ValueAddress) -> schemas.KeyValue:
    """Reset a key's limit to the configured value.

    For operators.
    """
    limit, key = _valued(request, at)
    await limit.store.set_value(key, None)
    log.info("limit_set", limit=limit.name, key=key, value=None)
    value = limit.settings.values.get(key, limit.settings.limit)
    return schemas.KeyValue(key=key, limit=UNLIMITED if value is None else value)


@ENDPOINTS.get(
    _COUNTS,
    _READS,
    replies={200: "The keys with the least left, of those that were found."},
    problems=(schemas.UNKNOWN_LIMIT,),
)
async def list_counts(request: web.Request, page: schemas.CountsPage) -> schemas.KeyCounts:
    """List keys of which something is counted.

    Redis keeps no list of them. One request looks at some 10 000 keys of Redis, of all limits and
    rooms, and `next` says that there are more to look at. Do not poll it.
    """
    limit = _limit_of(request)
    found, following = await limit.store.used(page.after)
    counts = [_count(key, decision) for key, decision in found]
    counts.sort(key=lambda each: (each.remaining or 0) / (each.limit or 1))
    return schemas.KeyCounts(keys=counts[: page.limit], found=len(counts), next=following or None)


@ENDPOINTS.delete(
    _COUNTS + "/{key:.*}",
    OPERATORS,
    replies={200: "Whether anything was counted."},
    problems=(schemas.UNKNOWN_LIMIT,),
)
async def reset_count(request: web.Request, at: schemas.ValueAddress) -> schemas.KeyReset:
    """Forget what a key has used.

    For operators. The next call finds the whole limit free. Calls that were paced keep their
    moments, and permits that are in use go on: more run than the limit says until they end.
    """
    limit, key = _valued(request, at)
    is_reset = await limit.store.forget(key)
    log.info("limit_reset", limit=limit.name, key=key, counted=is_reset)
    return schemas.KeyReset(key=key, reset=is_reset)


def _valued(request: web.Request, at: schemas.ValueAddress) -> tuple[Limit, str]:
    """A limit and one of its keys, which is empty for a limit that needs no fields."""
    limit = _limit_of(request)
    key = at.key or limit.settings.key_of({})
    check(Ask(key))
    return limit, key


def _asks(body: list[Any], limit: Limit) -> list[Ask]:
    asks, problems = [], []
    for number, call in enumerate(body):
        try:
            asks.append(_ask(call, limit))
        except ConfigError as error:
            problems += [f"{number}: {text}" for text in error.problems]
    if problems:
        raise ConfigError(problems[:20])
    return asks


def _ask(body: Any, limit: Limit) -> Ask:
    """Raises ConfigError naming all that is wrong with it."""
    if not isinstance(body, dict):
        raise ConfigError(["a call is a JSON object"])
    if body.keys() == _FIELDS and isinstance(fields := body["fields"], dict) and _are_texts(fields):
        return Ask(limit.settings.key_of(fields))  # as nearly all are
    problems, key = [unknown_member(name) for name in sorted(body.keys() - _MEMBERS)], ""
    given = {name: value for name, value in body.items() if value is not None}
    cost, id_ = whole_of(given.get("cost", 1)), given.get("id")
    if cost is None:
        problems.append(f"cost: a whole number from 1 to {MAX_COST}")
    if id_ is not None and not (isinstance(id_, str) and id_):
        problems.append("id: a text")
    try:
        key = _key(given, limit)
    except ConfigError as error:
        problems += error.problems
    if problems or cost is None:
        raise ConfigError(problems)
    ask = Ask(key, cost, id_ or "")
    check(ask)
    return ask


def _are_texts(fields: dict[str, Any]) -> bool:
    return all(type(value) is str for value in fields.values())


def _key(given: dict[str, Any], limit: Limit) -> str:
    """The whole key that was given; or the one that its fields make."""
    key, fields = given.get("key"), given.get("fields", {})
    if key is not None:
        if not isinstance(key, str) or "fields" in given:
            raise ConfigError(["key: a text, in place of fields"])
        return key
    if not isinstance(fields, dict) or not _are_texts(fields):
        raise ConfigError(["fields: an object of texts"])
    return limit.settings.key_of(fields)


def _rule(limit: Limit) -> dict[str, Any]:
    settings = limit.settings
    return {
        "name": limit.name,
        **settings.model_dump(exclude={"values"}),
        "limit": None if settings.limit == UNLIMITED else settings.limit,
        "fields": list(settings.fields),
    }


def _count(key: str, decision: Decision) -> schemas.KeyCount:
    is_limited = decision.limit != UNLIMITED
    reset_us = max(0, decision.reset_us - decision.now_us)
    return schemas.KeyCount(
        key=key,
        limit=decision.limit if is_limited else None,
        remaining=decision.remaining if is_limited else None,
        wait_seconds=decision.wait_s if decision.at_us else None,
        reset_seconds=reset_us / 1_000_000 if is_limited else None,
    )


def _members(limit: Limit, ask: Ask, decision: Decision) -> dict[str, Any]:
    settings = limit.settings
    holds = decision.permit and settings.algorithm == "concurrency"
    is_limited, is_allowed = decision.limit != UNLIMITED, decision.is_allowed
    is_never = not is_allowed and not decision.at_us
    reset_us = max(0, decision.reset_us - decision.now_us)
    return {
        "allowed": is_allowed,
        "outcome": decision.outcome,
        "permit": decision.permit or None,
        "key": ask.key,
        "limit": decision.limit if is_limited else None,
        "remaining": decision.remaining if is_limited else None,
        "wait_seconds": None if is_never else decision.wait_s,
        "at": iso_us(decision.at_us) if decision.at_us else None,
        "reset_seconds": reset_us / 1_000_000 if is_limited else None,
        "expires_in_seconds": settings.lease if holds else None,
    }


def _refusal(limit: Limit, ask: Ask, decision: Decision, rate: dict[str, str]) -> web.Response:
    kind, retry_s = schemas.OVER_LIMIT, retry_after_s(decision)
    detail = f"Nothing was counted. Ask again after {retry_s} s."
    if decision.now_us == 0:
        kind, retry_s = STORE_UNAVAILABLE, 1
        detail = "Redis is unavailable, and this limit refuses then (on_store_failure)."
    elif not decision.at_us:
        detail = f"The limit of {ask.key or limit.name!r} is 0."
    response = problem(kind, detail=detail, retry_after=retry_s, **_members(limit, ask, decision))
    response.headers.update(rate)
    return response


def _json(document: Any, rate: dict[str, str] | None = None) -> web.Response:
    return web.Response(
        body=to_json(document),
        content_type="application/json",
        headers={**_NO_STORE, **(rate or {})},
    )
