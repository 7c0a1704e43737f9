"""Limits: ask permission for a call."""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

from waitroom.core import Core, backoff_s, log, make_id
from waitroom.errors import Refused, RejectedError, WaitroomError, retry_s
from waitroom.model import DECISION, Permit
from waitroom.wire import AcquireCall, Document, Request, path

Field = str | int

_RELEASED = frozenset({"released"})


class LimitMethods:
    """The client's methods for limits, and for requests without a method of their own."""

    def __init__(self, core: Core) -> None:
        self._core = core

    async def request(
        self,
        /,
        method: str,
        path: str,
        body: object = None,
        *,
        query: Mapping[str, str] | None = None,
    ) -> Any:
        """Send any request to the API. Return the response's document. A POST is not repeated if a
        replica may have acted on it."""
        is_repeatable = method.upper() != "POST"
        request = Request(method, path, dict(query or {}), body, is_repeatable=is_repeatable)
        return await self._core.call(request)

    async def acquire(
        self,
        /,
        rule: str,
        *,
        key: str | None = None,
        cost: int = 1,
        id: str = "",  # noqa: A002 - the API's name
        wait: bool = False,
        **fields: Field,
    ) -> Permit:
        """Ask permission for one call, given the values of the limit's fields, or the whole `key`.
        With `wait`, return when the call may start; without, see `wait_seconds` of the permit.
        Requests with the same `id` count as one call.

        Raises Refused.
        """
        name = id or self._core.make_repeat_id()
        call = AcquireCall(rule, call_body(rule, key, cost, fields), name, has_generated_id=not id)
        return await _acquire(self._core, call, wait=wait)

    async def look(self, /, rule: str, *, key: str | None = None, **fields: Field) -> Permit:
        """Return the decision that a call would get now, without counting one."""
        query = _to_strings(fields) if key is None else {"key": key}
        request = Request("GET", path("limits", rule), query, members=DECISION)
        return Permit.read(rule, await self._core.call(request))

    async def release(self, permit: Permit) -> bool:
        """Release a permit or a reserved time. Return False if there was none. Idempotent."""
        if not permit.permit:
            return False
        return (await self._core.call(release_request(permit)))["released"]

    @asynccontextmanager
    async def permit(
        self,
        /,
        rule: str,
        *,
        key: str | None = None,
        cost: int = 1,
        wait: bool = False,
        **fields: Field,
    ) -> AsyncGenerator[Permit, None]:
        """Hold a permit of a concurrency limit while the block runs. With `wait`, ask again until
        one is granted; clients that wait are not queued. Also works as a decorator.

        Raises Refused.
        """
        call = AcquireCall(rule, call_body(rule, key, cost, fields), make_id())
        permit = await _acquire_concurrency_permit(self._core, call, wait=wait)

        async def renew() -> None:
            try:
                response = await self._core.try_replicas(acquire_request(call))
                _read_permit(call, response.document)
            except WaitroomError as error:
                log.warning("a permit of %s may be lost: %s", rule, error)

        term_s = permit.permit and permit.expires_in_seconds
        renewing = self._core.run_repeatedly(renew, term_s / 3) if term_s else nullcontext()
        try:
            async with renewing:  # a started renewal ends before the permit is released
                yield permit
        finally:
            try:
                await self.release(permit)
            except WaitroomError as error:
                log.warning("a permit of %s is not given back: %s", rule, error)


async def acquire_one(core: Core, rule: str, body: Document, *, wait: bool) -> None:
    """Acquire permission for one call. Raises Refused, without `wait` also if there is a wait."""
    permit = await _acquire(core, AcquireCall(rule, body, core.make_repeat_id()), wait=wait)
    if not wait and permit.wait_seconds > 0:
        await core.send_or_log(release_request(permit))
        name = _limit_name(rule, permit.key)
        raise Refused(f"{name} has no moment before", permit.wait_seconds, {})


def call_body(rule: str, key: str | None, cost: int, fields: Mapping[str, Field]) -> Document:
    if key is not None and fields:
        raise RejectedError(f"limit {rule}: give its key or its fields, not both")
    body: Document = {"fields": _to_strings(fields)} if key is None else {"key": key}
    return body if cost == 1 else {**body, "cost": cost}


def acquire_request(call: AcquireCall) -> Request:
    return replace(batch_acquire_request([call]), body=call.body, statuses=frozenset({429}))


def batch_acquire_request(calls: Sequence[AcquireCall]) -> Request:
    """Return the request that acquires permission for several calls of one limit."""
    return Request(
        "POST",
        path("limits", calls[0].rule, "acquire"),
        body=[call.body for call in calls],
        members=DECISION,
        is_repeatable=all(call.is_repeatable for call in calls),
    )


def release_request(permit: Permit) -> Request:
    return _release_request(permit.rule, {"key": permit.key, "permit": permit.permit})


def _release_request(rule: str, body: Document) -> Request:
    return Request("POST", path("limits", rule, "release"), body=body, members=_RELEASED)


def evaluate(
    fields: Mapping[str, Field | Callable[..., Field]], args: Any, kwargs: Any
) -> dict[str, Field]:
    """Return the fields of a decorated function's call. Evaluate those given as functions."""
    return {
        name: value(*args, **kwargs) if callable(value) else value for name, value in fields.items()
    }


async def _acquire(core: Core, call: AcquireCall, *, wait: bool) -> Permit:
    release = _lost_permit_release_request(call)
    undo = None if release is None else partial(core.send_or_log, release)
    permit = _read_permit(call, await core.send_with_retries(call, undo))
    if wait and permit.wait_seconds > 0:
        try:
            await core.pause(permit.wait_seconds)
        except BaseException:
            await core.send_or_log(release_request(permit))
            raise
    return permit


async def _acquire_concurrency_permit(core: Core, call: AcquireCall, *, wait: bool) -> Permit:
    """Acquire a permit of a concurrency limit. It has no queue, so with `wait`, ask repeatedly."""
    attempt = 0
    while True:
        try:
            return await _acquire(core, call, wait=True)
        except Refused as refused:
            if not wait:
                raise
            pause_s = min(refused.retry_after, backoff_s(min(attempt, 2)))
        await core.pause(pause_s)
        attempt += 1


def _to_strings(fields: Mapping[str, Field]) -> dict[str, str]:
    for name, value in fields.items():
        if not isinstance(value, str | int):
            raise RejectedError(f"field {name}: a text or a whole number (got {value!r})")
    return {name: str(value) for name, value in fields.items()}


def _lost_permit_release_request(call: AcquireCall) -> Request | None:
    """Return the request that releases the permit of a call whose response was lost. None if the
    call has no id, or has one from the caller, who may then repeat the call."""
    if not call.has_generated_id or not call.call_id:
        return None
    key = {name: value for name, value in call.parameters.items() if name in {"fields", "key"}}
    permit = f"{call.parameters.get('cost', 1)}~{call.call_id}"
    return _release_request(call.rule, {**key, "permit": permit})


def _read_permit(call: AcquireCall, document: Document) -> Permit:
    """Return the permit of a decision. Raises Refused, or RejectedError if the cost is too high."""
    if document["allowed"]:
        return Permit.read(call.rule, document)
    name = _limit_name(call.rule, document["key"])
    if document["wait_seconds"] is None and document["limit"]:
        cost = call.parameters.get("cost", 1)
        raise RejectedError(f"{name}: a cost of {cost} is more than {document['limit']}, its limit")
    raise Refused(f"{name} refuses the call", retry_s(document), document)


def _limit_name(rule: str, key: str) -> str:
    return f"limit {rule}" + (f" of {key}" if key else "")
