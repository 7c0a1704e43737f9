"""Limits: calls that ask for permission."""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

from waitroom.core import Core, backoff_s, log, make_id
from waitroom.errors import Refused, RejectedError, WaitroomError, retry_s
from waitroom.model import DECISION, Permit
from waitroom.wire import Document, LimitCall, Request, path

Field = str | int

_RELEASED = frozenset({"released"})


class LimitMethods:
    """The client's own methods: any request, and those of limits."""

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
        """Send a request that has no method of its own. Return the response's document. A POST is
        not repeated when it may have arrived."""
        is_repeatable = method.upper() != "POST"
        call = Request(method, path, dict(query or {}), body, is_repeatable=is_repeatable)
        return await self._core.document(call)

    async def acquire(
        self,
        /,
        rule: str,
        *,
        key: str | None = None,
        cost: int = 1,
        id: str = "",  # noqa: A002 - the API's word
        wait: bool = False,
        **fields: Field,
    ) -> Permit:
        """Ask for permission for one call, named by the limit's `fields` or a whole `key`. With
        `wait`, return when the call may go; otherwise `wait_seconds` says when that is. A second
        request with the same `id` is the same call.

        Raises Refused.
        """
        name = id or self._core.repeat_id()
        ask = LimitCall(rule, call_of(rule, key, cost, fields), name, is_own=not id)
        return await _acquire(self._core, ask, wait=wait)

    async def look(self, /, rule: str, *, key: str | None = None, **fields: Field) -> Permit:
        """Return the decision on a call that came now, without counting it."""
        query = _texts(fields) if key is None else {"key": key}
        call = Request("GET", path("limits", rule), query, members=DECISION)
        return Permit.read(rule, await self._core.document(call))

    async def release(self, permit: Permit) -> bool:
        """Give back a moment in the future, or a permit of a concurrency limit. Return False if
        there was nothing to give back. Idempotent."""
        if not permit.permit:
            return False
        return (await self._core.document(giving_back(permit)))["released"]

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
        there is one, in no order. Is a decorator too.

        Raises Refused.
        """
        ask = LimitCall(rule, call_of(rule, key, cost, fields), make_id())
        permit = await _acquire_one_of(self._core, ask, wait=wait)

        async def keep() -> None:
            try:
                _permit_of(ask, (await self._core.ask_each(asking(ask))).document)
            except WaitroomError as error:
                log.warning("a permit of %s may be lost: %s", rule, error)

        is_kept = permit.permit and permit.expires_in_seconds
        keeping = self._core.repeating(keep, is_kept / 3) if is_kept else nullcontext()
        try:
            async with keeping:  # its last renewal ends before the permit is given back
                yield permit
        finally:
            try:
                await self.release(permit)
            except WaitroomError as error:
                log.warning("a permit of %s is not given back: %s", rule, error)


async def pass_one(core: Core, rule: str, call: Document, *, wait: bool) -> None:
    """Ask for permission to call now. Without `wait`, give back a moment in the future, and raise
    Refused."""
    permit = await _acquire(core, LimitCall(rule, call, core.repeat_id()), wait=wait)
    if not wait and permit.wait_seconds > 0:
        await core.quietly(giving_back(permit))
        raise Refused(f"{_of(rule, permit.key)} has no moment before", permit.wait_seconds, {})


def call_of(rule: str, key: str | None, cost: int, fields: Mapping[str, Field]) -> Document:
    if key is not None and fields:
        raise RejectedError(f"limit {rule}: give its key or its fields, not both")
    call: Document = {"fields": _texts(fields)} if key is None else {"key": key}
    return call if cost == 1 else {**call, "cost": cost}


def asking(ask: LimitCall) -> Request:
    return replace(asking_all([ask]), body=ask.body, statuses=frozenset({429}))


def asking_all(asks: Sequence[LimitCall]) -> Request:
    """Make the request of several calls of one limit."""
    return Request(
        "POST",
        path("limits", asks[0].rule, "acquire"),
        body=[ask.body for ask in asks],
        members=DECISION,
        is_repeatable=all(ask.is_repeatable for ask in asks),
    )


def giving_back(permit: Permit) -> Request:
    return _release(permit.rule, {"key": permit.key, "permit": permit.permit})


def _release(rule: str, body: Document) -> Request:
    return Request("POST", path("limits", rule, "release"), body=body, members=_RELEASED)


def evaluate(
    fields: Mapping[str, Field | Callable[..., Field]], args: Any, kwargs: Any
) -> dict[str, Field]:
    """Return a decorated function's fields: each may be a function of the same arguments."""
    return {
        name: value(*args, **kwargs) if callable(value) else value for name, value in fields.items()
    }


async def _acquire(core: Core, ask: LimitCall, *, wait: bool) -> Permit:
    unseen = _giving_back_unseen(ask)
    undo = None if unseen is None else partial(core.quietly, unseen)
    permit = _permit_of(ask, await core.sent(ask, undo))
    if wait and permit.wait_seconds > 0:
        try:
            await core.pause(permit.wait_seconds)
        except BaseException:
            await core.quietly(giving_back(permit))
            raise
    return permit


async def _acquire_one_of(core: Core, ask: LimitCall, *, wait: bool) -> Permit:
    """Acquire a permit of a concurrency limit. There is no queue: a caller who waits asks again."""
    tried = 0
    while True:
        try:
            return await _acquire(core, ask, wait=True)
        except Refused as refused:
            if not wait:
                raise
            pause_s = min(refused.retry_after, backoff_s(min(tried, 2)))
        await core.pause(pause_s)
        tried += 1


def _texts(fields: Mapping[str, Field]) -> dict[str, str]:
    for name, value in fields.items():
        if not isinstance(value, str | int):
            raise RejectedError(f"field {name}: a text or a whole number (got {value!r})")
    return {name: str(value) for name, value in fields.items()}


def _giving_back_unseen(ask: LimitCall) -> Request | None:
    """Make the request that gives back the permit of a call whose response was lost; None for a
    call with the caller's own id, who may ask again."""
    if not ask.is_own or not ask.name:
        return None
    named = {name: value for name, value in ask.call.items() if name in {"fields", "key"}}
    return _release(ask.rule, {**named, "permit": f"{ask.call.get('cost', 1)}~{ask.name}"})


def _permit_of(ask: LimitCall, document: Document) -> Permit:
    """Read a decision. Raises Refused, or RejectedError for a cost that is never granted."""
    if document["allowed"]:
        return Permit.read(ask.rule, document)
    of = _of(ask.rule, document["key"])
    if document["wait_seconds"] is None and document["limit"]:
        cost = ask.call.get("cost", 1)
        raise RejectedError(f"{of}: a cost of {cost} is more than {document['limit']}, its limit")
    raise Refused(f"{of} refuses the call", retry_s(document), document)


def _of(rule: str, key: str) -> str:
    return f"limit {rule}" + (f" of {key}" if key else "")
