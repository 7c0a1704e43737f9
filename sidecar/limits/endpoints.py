"""The endpoints of rate limits for programs, and those by which operators change the limits."""

from dataclasses import replace
from typing import Any

import structlog
from aiohttp import web

from sidecar.http.endpoint import OPERATORS, Endpoints, programs
from sidecar.http.idempotency_key import HEADER as IDEMPOTENCY_KEY
from sidecar.http.idempotency_key import read_idempotency_key
from sidecar.http.json_text import to_json
from sidecar.http.long_poll import LONG_POLLS, is_gone, read_wait
from sidecar.http.models import read, read_json
from sidecar.http.problem_kinds import STORE_UNAVAILABLE
from sidecar.http.problems import problem
from sidecar.kit.clock import iso, iso_us
from sidecar.kit.errors import InputError
from sidecar.limits import schemas
from sidecar.limits.model import Call, Decision
from sidecar.limits.recent_decisions import (
    COUNTS,
    KEY_MINUTES_KEPT,
    MINUTES_KEPT,
    sum_counts_by_minute,
    sum_refused_keys,
)
from sidecar.limits.service import LIMITS, Limit, get_retry_after_s, make_rate_headers
from sidecar.limits.settings import PERMIT_ID, UNLIMITED


def _find_limit(request: web.Request) -> Limit:
    return request.app[LIMITS].get(request.match_info["name"])


ENDPOINTS = Endpoints("limits", find=_find_limit, unknown=schemas.UNKNOWN_LIMIT)

_LIMIT_PATH = "/v1/limits/{name}"
_VALUE_PATH = _LIMIT_PATH + "/values/{key:.*}"
_COUNTS_PATH = _LIMIT_PATH + "/counts"
_READ_ACCESS = programs("limits", "read", role="viewer")
_CHANGE_ACCESS = programs("limits", role="operator")
_NOT_FOR_LISTS = f"{IDEMPOTENCY_KEY}: for one call, not for a list: give each call an id"
_RATE_HEADERS = {"RateLimit-Policy": "RateLimitPolicy", "RateLimit": "RateLimit"}

log = structlog.get_logger()


@ENDPOINTS.get("/v1/limits", _READ_ACCESS, replies={200: "The limits."})
async def list_limits(request: web.Request) -> schemas.LimitRules:
    """List all limits, as configured."""
    make_rule = schemas.LimitRule.model_construct
    rules = [make_rule(**_describe_rule(limit)) for limit in request.app[LIMITS]]
    return schemas.LimitRules.model_construct(limits=rules)


@ENDPOINTS.post(
    _LIMIT_PATH + "/acquire",
    _CHANGE_ACCESS,
    parameters=schemas.AcquireParameters,
    headers=schemas.AcquireHeaders,
    body=schemas.LimitCall | schemas.LimitCalls,
    is_body_optional=True,
    replies={
        200: (
            schemas.LimitDecision | list[schemas.LimitDecision],
            "The call may proceed, now or at `at`. For a list: the decision on each call.",
        )
    },
    reply_headers=_RATE_HEADERS,
    problems=(schemas.OVER_LIMIT,),
    problem_members={429: schemas.LimitDecision},
    bypasses_models=True,
)
async def acquire_limit(request: web.Request) -> web.Response:
    """Ask whether a call, or each call of a list, may proceed.

    A list has at most 1000 calls, and the response is 200 whatever the decisions are. If the
    limit's key has no fields, a call needs no body. The response to a single call that costs more
    than the limit ever grants is 422. If the limit is 0, `at` is null."""
    limit = _find_limit(request)
    hold_s = read_wait(request)
    body = await read_json(request) if (await request.read()).strip() else {}
    if isinstance(body, list):
        if hold_s:
            raise InputError(["wait: for one call, not for a list"])
        if IDEMPOTENCY_KEY in request.headers:
            raise InputError([_NOT_FOR_LISTS])
        return await _acquire_all(request, limit, body)
    call = _read_call(body, limit)
    if IDEMPOTENCY_KEY in request.headers:
        id_ = read_idempotency_key(
            request.headers, call.id or None, member="id", pattern=PERMIT_ID, hint=schemas.ID_HINT
        )
        call = replace(call, id=id_ or "")
    decision = await limit.acquire(call)
    if decision.permit:
        decision = await hold_response(request, limit, call, decision, hold_s)
    rate = make_rate_headers(limit, decision)
    if decision.is_allowed:
        return _make_response(_describe_decision(limit, call, decision), rate)
    return _make_refusal(limit, call, decision, rate)


async def _acquire_all(request: web.Request, limit: Limit, body: list[Any]) -> web.Response:
    if not body or len(body) > schemas.MAX_CALLS:
        raise InputError([f"a list has 1 to {schemas.MAX_CALLS} calls (got {len(body)})"])
    calls, problems = [], []
    for number, item in enumerate(body):
        try:
            calls.append(_read_call(item, limit))
        except InputError as error:
            problems += [f"{number}: {text}" for text in error.problems]
    if problems:
        raise InputError(problems[:20])
    decided = list(zip(calls, await limit.acquire_all(calls), strict=True))
    if is_gone(request):
        for call, decision in decided:
            _release_unless_retried(limit, call, decision)
    return _make_response([_describe_decision(limit, call, decision) for call, decision in decided])


async def hold_response(
    request: web.Request, limit: Limit, call: Call, decision: Decision, hold_s: float
) -> Decision:
    """Hold the response until the call may proceed, `hold_s` have passed, or the replica stops.
    Return the decision with the remaining wait. Release the permit if the client is gone."""
    is_connected = False
    try:
        if hold_s and decision.wait_s > 0:
            held_s = min(hold_s, decision.wait_s)
            left_s = await request.app[LONG_POLLS].hold(request, held_s)
            left_s += decision.wait_s - held_s
            decision = replace(decision, now_us=decision.at_us - round(left_s * 1_000_000))
        is_connected = not is_gone(request)
        return decision
    finally:
        if not is_connected:
            _release_unless_retried(limit, call, decision)


def _release_unless_retried(limit: Limit, call: Call, decision: Decision) -> None:
    """Release a permit, unless the call has an id, because its client may retry the request."""
    if decision.permit and not call.id:
        limit.start_release(call.key, decision.permit)


@ENDPOINTS.get(
    _LIMIT_PATH,
    _READ_ACCESS,
    parameters=schemas.LookParameters,
    replies={200: (schemas.LimitLook, "The limit, and the decision.")},
    reply_headers=_RATE_HEADERS,
    # The query parameters have the names of the fields in the limit's key.
    bypasses_models=True,
)
async def look_at_limit(request: web.Request) -> web.Response:
    """Show how a limit would decide on a call now.

    Nothing is counted. Send the fields of the key, or the whole key."""
    limit = _find_limit(request)
    query = dict(request.query)
    named = read(schemas.NamedCall, query if query.keys() == {"key"} else {"fields": query})
    call = Call(_get_key(named, limit))
    decision = await limit.store.peek(call.key)
    document = {**_describe_rule(limit), **_describe_decision(limit, call, decision)}
    return _make_response(document, make_rate_headers(limit, decision))


@ENDPOINTS.post(
    _LIMIT_PATH + "/release",
    _CHANGE_ACCESS,
    replies={200: "Whether there was anything to release."},
)
async def release_limit(
    request: web.Request, _: schemas.LimitAddress, body: schemas.ReleasePermit
) -> schemas.PermitReleased:
    """Release a permit.

    A permit of `concurrency` can be released until it expires, and the permit of a paced call until
    its time comes. Idempotent."""
    limit = _find_limit(request)
    released = await limit.release(_get_key(body, limit), body.permit)
    return schemas.PermitReleased(released=released)


@ENDPOINTS.get(
    _LIMIT_PATH + "/values",
    _READ_ACCESS,
    replies={200: "The configured limits, and those set at run time."},
)
async def list_values(request: web.Request, _: schemas.LimitAddress) -> schemas.KeyValues:
    """List the limits of individual keys: those configured, and those set at run time."""
    limit = _find_limit(request)
    return schemas.KeyValues(file=limit.settings.values, set=await limit.store.read_values())


@ENDPOINTS.put(_VALUE_PATH, OPERATORS, replies={200: "The key's new limit."})
async def set_value(
    request: web.Request, path: schemas.ValueAddress, body: schemas.SetValue
) -> schemas.KeyValue:
    """Set a key's limit.

    For operators. The limit applies to all replicas and survives a restart. Earlier decisions do
    not change."""
    limit, key = _find_limit_and_key(request, path)
    await limit.store.set_value(key, body.limit)
    log.info("limit_set", limit=limit.name, key=key, value=body.limit)
    return schemas.KeyValue(
        key=key, limit=body.limit, warning=limit.settings.find_warning(key) or None
    )


@ENDPOINTS.delete(_VALUE_PATH, OPERATORS, replies={200: "The key's new limit."})
async def unset_value(request: web.Request, path: schemas.ValueAddress) -> schemas.KeyValue:
    """Reset a key's limit to the configured value.

    Only operators may do this."""
    limit, key = _find_limit_and_key(request, path)
    await limit.store.set_value(key, None)
    log.info("limit_set", limit=limit.name, key=key, value=None)
    value = limit.settings.values.get(key, limit.settings.limit)
    return schemas.KeyValue(key=key, limit=UNLIMITED if value is None else value)


@ENDPOINTS.get(
    _COUNTS_PATH,
    _READ_ACCESS,
    replies={200: "Of the keys that were found, those with the least left."},
)
async def list_counts(request: web.Request, page: schemas.CountsPage) -> schemas.KeyCounts:
    """List the keys that have used some of their limit.

    Redis has no index of a limit's keys, so one request searches about 10,000 keys of all limits
    and rooms. If there are more to search, the response has `next`. Do not poll this endpoint."""
    limit = _find_limit(request)
    decisions, cursor = await limit.store.find_used_keys(page.after)
    counts = [
        schemas.KeyCount(**_describe_decision(limit, Call(key), peeked))
        for key, peeked in decisions
    ]
    counts.sort(key=lambda count: (count.remaining or 0) / (count.limit or 1))
    return schemas.KeyCounts(keys=counts[: page.limit], found=len(counts), next=cursor or None)


@ENDPOINTS.get(
    _LIMIT_PATH + "/recent",
    _READ_ACCESS,
    replies={200: "The minutes of the last three hours, and the keys of the last hour."},
)
async def list_recent(request: web.Request, _: schemas.LimitAddress) -> schemas.RecentHistory:
    """Count the decisions of the last hours, and name the keys that were refused most.

    Every five seconds, each replica writes what it has counted."""
    now_us, fields = await _find_limit(request).store.read_recent_decisions()
    last = now_us // 60_000_000
    counts = sum_counts_by_minute(fields)
    minutes = [
        schemas.MinuteDecisions(
            at=iso(minute * 60_000),
            **dict(zip(COUNTS, counts.get(minute, (0, 0, 0)), strict=True)),
        )
        for minute in range(last - MINUTES_KEPT + 1, last + 1)
    ]
    keys = [
        schemas.RefusedKey(key=key, refused=count)
        for key, count in sum_refused_keys(fields, last - KEY_MINUTES_KEPT + 1)
    ]
    return schemas.RecentHistory(minutes=minutes, refused_keys=keys)


@ENDPOINTS.delete(
    _COUNTS_PATH + "/{key:.*}", OPERATORS, replies={200: "Whether anything was counted."}
)
async def reset_count(request: web.Request, path: schemas.ValueAddress) -> schemas.KeyReset:
    """Reset what a key has used.

    For operators. The whole limit is available to the next call. Paced calls keep their times, and
    permits in use stay valid, so until these expire more calls may run than the limit allows."""
    limit, key = _find_limit_and_key(request, path)
    is_reset = await limit.store.reset_key(key)
    log.info("limit_reset", limit=limit.name, key=key, counted=is_reset)
    return schemas.KeyReset(key=key, reset=is_reset)


def _find_limit_and_key(request: web.Request, path: schemas.ValueAddress) -> tuple[Limit, str]:
    """Return the limit and key in a path. Raises InputError if a key with fields is missing."""
    limit = _find_limit(request)
    return limit, path.key or limit.settings.make_key({})


def _read_call(body: Any, limit: Limit) -> Call:
    """Return the call in a JSON body. Raises InputError with all problems."""
    match body:
        # Nearly all calls have only fields. Read these without the cost of a model.
        case {"fields": dict(fields), **others} if not others and all(
            type(value) is str for value in fields.values()
        ):
            return Call(limit.settings.make_key(fields))
        case dict():
            call = read(schemas.LimitCall, body)
            return Call(_get_key(call, limit), call.cost or 1, call.id or "")
    raise InputError(["a call is a JSON object"])


def _get_key(call: schemas.NamedCall, limit: Limit) -> str:
    return limit.settings.make_key(call.fields or {}) if call.key is None else call.key


def _describe_rule(limit: Limit) -> dict[str, Any]:
    settings = limit.settings
    return {
        "name": limit.name,
        **settings.model_dump(exclude={"values"}),
        "limit": None if settings.limit == UNLIMITED else settings.limit,
        "fields": list(settings.fields),
    }


def _describe_decision(limit: Limit, call: Call, decision: Decision) -> dict[str, Any]:
    settings = limit.settings
    has_lease = decision.permit and settings.algorithm == "concurrency"
    is_limited, is_allowed = decision.limit != UNLIMITED, decision.is_allowed
    is_never_granted = not is_allowed and not decision.at_us
    reset_us = max(0, decision.reset_us - decision.now_us)
    return {
        "allowed": is_allowed,
        "outcome": decision.outcome,
        "permit": decision.permit or None,
        "key": call.key,
        "limit": decision.limit if is_limited else None,
        "remaining": decision.remaining if is_limited else None,
        "wait_seconds": None if is_never_granted else decision.wait_s,
        "at": iso_us(decision.at_us) if decision.at_us else None,
        "reset_seconds": reset_us / 1_000_000 if is_limited else None,
        "expires_in_seconds": settings.lease if has_lease else None,
    }


def _make_refusal(
    limit: Limit, call: Call, decision: Decision, rate: dict[str, str]
) -> web.Response:
    kind, retry_s = schemas.OVER_LIMIT, get_retry_after_s(decision)
    detail = f"Nothing was counted. Ask again after {retry_s} s."
    if decision.now_us == 0:
        kind, retry_s = STORE_UNAVAILABLE, 1
        detail = "Redis is unavailable, and this limit refuses then (on_store_failure)."
    elif not decision.at_us:
        detail = f"The limit of {call.key or limit.name!r} is 0."
    members = _describe_decision(limit, call, decision)
    response = problem(kind, detail=detail, retry_after=retry_s, **members)
    response.headers.update(rate)
    return response


def _make_response(document: Any, rate: dict[str, str] | None = None) -> web.Response:
    return web.Response(
        body=to_json(document),
        content_type="application/json",
        headers={"Cache-Control": "no-store", **(rate or {})},
    )
