"""Limits: what may be called, and when."""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from typing import Any

from waitroom.core import Core, backoff_s, log, make_id
from waitroom.errors import Refused, RejectedError, WaitroomError, retry_s
from waitroom.model import DECISION, Permit
from waitroom.wire import Ask, Call, Document, path

Field = str | int

_RELEASED = frozenset({"released"})


class Calls:
    """What a client does itself: any request, and those of limits."""

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
        """The document that the replica answers, for what has no method of its own. A POST is not
        repeated when it may have arrived."""
        is_repeatable = method.upper() != "POST"
        call = Call(method, path, dict(query or {}), body, is_repeatable=is_repeatable)
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
        """Permission for one call, of the limit's `fields` or of a whole `key`. With `wait`, it
        comes when the call may go; else `wait_seconds` says when that is. The same `id` asked for
        again is the same call.

        Raises Refused.
        """
        name = id or self._core.repeat_id()
        ask = Ask(rule, call_of(rule, key, cost, fields), name, is_own=not id)
        return await _acquire(self._core, ask, wait=wait)

    async def look(self, /, rule: str, *, key: str | None = None, **fields: Field) -> Permit:
        """What a call would get now. Nothing is taken."""
        query = _texts(fields) if key is None else {"key": key}
        call = Call("GET", path("limits", rule), query, members=DECISION)
        return Permit.read(rule, await self._core.document(call))

    async def release(self, permit: Permit) -> bool:
        """Gives back a moment that is yet to come, or a permit of a concurrency limit. Whether
        there was something to give back. Idempotent."""
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
        """Holds a permit of a concurrency limit: kept while the block runs, given back at its end.
        With `wait`, it asks again until there is one, in no order. Is a decorator too.

        Raises Refused.
        """
        ask = Ask(rule, call_of(rule, key, cost, fields), make_id())
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
    """Permission to call now. Without `wait` a moment to come is given back, and is a refusal."""
    permit = await _acquire(core, Ask(rule, call, core.repeat_id()), wait=wait)
    if not wait and permit.wait_seconds > 0:
        await core.quietly(giving_back(permit))
        raise Refused(f"{_of(rule, permit.key)} has no moment before", permit.wait_seconds, {})


def call_of(rule: str, key: str | None, cost: int, fields: Mapping[str, Field]) -> Document:
    if key is not None and fields:
        raise RejectedError(f"limit {rule}: give its key or its fields, not both")
    call: Document = {"fields": _texts(fields)} if key is None else {"key": key}
    return call if cost == 1 else {**call, "cost": cost}


def asking(ask: Ask) -> Call:
    return Call(
        "POST",
        path("limits", ask.rule, "acquire"),
        body=ask.body,
        members=DECISION,
        statuses=frozenset({429}),
        is_repeatable=ask.is_repeatable,
    )


def asking_all(asks: Sequence[Ask]) -> Call:
    """For calls of one limit together."""
    return Call(
        "POST",
        path("limits", asks[0].rule, "acquire"),
        body=[ask.body for ask in asks],
        members=DECISION,
        is_repeatable=all(ask.is_repeatable for ask in asks),
    )


def giving_back(permit: Permit) -> Call:
    body = {"key": permit.key, "permit": permit.permit}
    return Call("POST", path("limits", permit.rule, "release"), body=body, members=_RELEASED)


def fields_of_call(
    fields: Mapping[str, Field | Callable[..., Field]], args: Any, kwargs: Any
) -> dict[str, Field]:
    """Of a decorated function's call: a field that is a function gets the same arguments."""
    return {
        name: value(*args, **kwargs) if callable(value) else value for name, value in fields.items()
    }


async def _acquire(core: Core, ask: Ask, *, wait: bool) -> Permit:
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


async def _acquire_one_of(core: Core, ask: Ask, *, wait: bool) -> Permit:
    """A permit of a concurrency limit. There is no queue: a caller who waits asks again."""
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


def _giving_back_unseen(ask: Ask) -> Call | None:
    """Of a call whose answer was lost. What has the caller's own name stays: they may ask again."""
    if not ask.is_own or not ask.name:
        return None
    named = {name: value for name, value in ask.call.items() if name in {"fields", "key"}}
    body = {**named, "permit": f"{ask.call.get('cost', 1)}~{ask.name}"}
    return Call("POST", path("limits", ask.rule, "release"), body=body, members=_RELEASED)


def _permit_of(ask: Ask, document: Document) -> Permit:
    """Raises Refused, or RejectedError for a cost that is never granted."""
    if document["allowed"]:
        return Permit.read(ask.rule, document)
    of = _of(ask.rule, document["key"])
    if document["wait_seconds"] is None and document["limit"]:
        cost = ask.call.get("cost", 1)
        raise RejectedError(f"{of}: a cost of {cost} is more than {document['limit']}, its limit")
    raise Refused(f"{of} refuses the call", retry_s(document), document)


def _of(rule: str, key: str) -> str:
    return f"limit {rule}" + (f" of {key}" if key else "")
