"""Rate limits for programs: ask for leave to call, look, give back, change a key's limit."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import structlog
from aiohttp import web

from sidecar.base.clock import iso
from sidecar.base.errors import ConfigError
from sidecar.base.limits import MAX_COST, MAX_LIMIT, UNLIMITED, Ask, Decision
from sidecar.core.limits import check, headers, retry_after_s
from sidecar.web.asked import json_of, object_of
from sidecar.web.held import held
from sidecar.web.keys import LIMITS
from sidecar.web.problems import problem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sidecar.core.limits import Limit

#: Calls in one request, at most.
MAX_CALLS = 1_000
_NO_STORE = {"Cache-Control": "no-store"}

log = structlog.get_logger()


async def list_limits(request: web.Request) -> web.Response:
    """The rules, as the file has them."""
    return _json({"limits": [_rule(limit) for limit in request.app[LIMITS]]})


async def acquire(request: web.Request) -> web.Response:
    """Leave for one call, or for a list of them. `?hold=true`: the answer to one call that has to
    wait comes when it may go; whoever goes away before gives its moment back."""
    limit = _limit_of(request)
    body = await json_of(request)
    if isinstance(body, list):
        if not body or len(body) > MAX_CALLS:
            raise ConfigError([f"a list has 1 to {MAX_CALLS} calls (got {len(body)})"])
        asks = _asks(body, limit)
        decisions = await limit.acquire_all(asks)
        told = [_told(ask, decision) for ask, decision in zip(asks, decisions, strict=True)]
        return _json(told)
    ask = _ask(body, limit)
    is_held = _flag(request, "hold")
    decision = await limit.acquire(ask)
    if is_held and decision.is_allowed and decision.wait_s > 0:
        await _hold(request, limit, ask, decision)
    said = headers(limit, decision)
    if decision.is_allowed:
        return _json(_told(ask, decision), said)
    return _refusal(limit, ask, decision, said)


async def look(request: web.Request) -> web.Response:
    """What a call would be told now; nothing is taken. The key, or its fields, are in the
    query."""
    limit = _limit_of(request)
    ask = Ask(_key_of(dict(request.query), limit))
    check(ask)
    decision = await limit.store.look(ask.key)
    return _json({**_rule(limit), **_told(ask, decision)}, headers(limit, decision))


async def release(request: web.Request) -> web.Response:
    """Gives a permit back: of a concurrency limit at any time, else while its moment is yet to
    come. Twice equals once."""
    limit = _limit_of(request)
    body = await object_of(request)
    permit = body.pop("permit", None)
    if not isinstance(permit, str) or not permit:
        raise ConfigError(["permit: is needed, as the call was told it"])
    ask = _ask(body, limit)
    return _json({"released": await limit.release(ask.key, permit)})


async def list_values(request: web.Request) -> web.Response:
    """Limits of single keys: those of the file, and those that were set since."""
    limit = _limit_of(request)
    return _json({"file": limit.settings.values, "set": await limit.store.values()})


async def set_value(request: web.Request) -> web.Response:
    """A key's limit from the next call on."""
    limit, key = _limit_of(request), _value_key_of(request)
    body = await object_of(request)
    value = body.pop("limit", None)
    problems = [f"{name}: there is no such member" for name in body]
    if type(value) is not int or not UNLIMITED <= value <= MAX_LIMIT:
        problems.append(f"limit: a whole number from 0 to {MAX_LIMIT}, or -1 for no limit")
    if problems:
        raise ConfigError(problems)
    await limit.store.set_value(key, value)
    log.info("limit_set", limit=limit.name, key=key, value=value)
    return _json({"key": key, "limit": value})


async def delete_value(request: web.Request) -> web.Response:
    """Back to what the file says."""
    limit, key = _limit_of(request), _value_key_of(request)
    await limit.store.set_value(key, None)
    log.info("limit_set", limit=limit.name, key=key, value=None)
    value = limit.settings.values.get(key, limit.settings.limit)
    return _json({"key": key, "limit": None if value == UNLIMITED else value})


async def _hold(request: web.Request, limit: Limit, ask: Ask, decision: Decision) -> None:
    try:
        is_there = await held(request, decision.wait_s)
    except asyncio.CancelledError:
        is_there = False
        raise
    finally:
        # What has the caller's own name stays: they may be back for it.
        if not is_there and not ask.id:
            limit.give_back(ask.key, decision.permit)


def _limit_of(request: web.Request) -> Limit:
    return request.app[LIMITS].get(request.match_info["name"])


def _value_key_of(request: web.Request) -> str:
    ask = Ask(request.match_info["key"])
    check(ask)
    return ask.key


def _flag(request: web.Request, name: str) -> bool:
    value = request.query.get(name, "false").lower()
    if value not in {"true", "false", "1", "0"}:
        raise ConfigError([f"{name}: true or false (got {value[:40]!r})"])
    return value in {"true", "1"}


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
    problems = [f"{name[:40]}: there is no such member" for name in body.keys() - _MEMBERS]
    cost, id_, key = body.get("cost", 1), body.get("id") or "", ""
    if type(cost) is not int:
        problems.append(f"cost: a whole number from 1 to {MAX_COST}")
    if not isinstance(id_, str):
        problems.append("id: a text")
    try:
        key = _key_of(body, limit) if "key" in body else _key_of_fields(body.get("fields"), limit)
    except ConfigError as error:
        problems += error.problems
    if problems:
        raise ConfigError(problems)
    ask = Ask(key, cost, id_)
    check(ask)
    return ask


_MEMBERS = {"fields", "key", "cost", "id"}


def _key_of_fields(fields: Any, limit: Limit) -> str:
    if fields is None:
        fields = {}
    if not isinstance(fields, dict) or not all(isinstance(value, str) for value in fields.values()):
        raise ConfigError(["fields: an object of texts"])
    return limit.settings.key_of(fields)


def _key_of(named: Mapping[str, Any], limit: Limit) -> str:
    """A whole key, as it was told or as key_of makes it; or its fields."""
    if "key" not in named:
        return limit.settings.key_of(named)
    key = named["key"]
    if not isinstance(key, str) or "fields" in named:
        raise ConfigError(["key: a text, in place of fields"])
    return key


def _rule(limit: Limit) -> dict[str, Any]:
    settings = limit.settings
    return {
        "name": limit.name,
        **settings.model_dump(exclude={"values"}),
        "fields": list(settings.fields),
    }


def _told(ask: Ask, decision: Decision) -> dict[str, Any]:
    is_limited = decision.limit != UNLIMITED
    is_never = not decision.is_allowed and not decision.at_us
    reset_us = max(0, decision.reset_us - decision.now_us)
    return {
        "allowed": decision.is_allowed,
        "outcome": decision.outcome,
        "permit": decision.permit or None,
        "key": ask.key,
        "limit": decision.limit if is_limited else None,
        "remaining": decision.remaining if is_limited else None,
        "wait_seconds": None if is_never else decision.wait_s,
        "at": iso(decision.at_us // 1000) if decision.at_us else None,
        "reset_seconds": reset_us / 1_000_000 if is_limited else None,
    }


def _refusal(limit: Limit, ask: Ask, decision: Decision, said: dict[str, str]) -> web.Response:
    told = _told(ask, decision)
    if decision.now_us == 0:
        detail = "The store does not answer, and this limit refuses then (on_store_failure)."
        response = problem(503, "The store does not answer", detail=detail, retry_after=1, **told)
    elif not decision.at_us:
        detail = f"The limit of {ask.key or limit.name!r} is 0."
        response = problem(429, "Over the limit", detail=detail, retry_after=60, **told)
    else:
        retry_s = retry_after_s(decision)
        detail = f"Nothing was counted. Ask again after {retry_s} s."
        response = problem(429, "Over the limit", detail=detail, retry_after=retry_s, **told)
    response.headers.update(said)
    return response


def _json(document: Any, said: dict[str, str] | None = None) -> web.Response:
    return web.Response(
        body=json.dumps(document).encode(),
        content_type="application/json",
        headers={**_NO_STORE, **(said or {})},
    )
