"""Limits: what may be called, and when."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from waitroom.core import Ask, Core, Field, Flow, Pause, backoff_s, log, make_id, retry_s, texts
from waitroom.errors import Refused, RejectedError, WaitroomError
from waitroom.model import DECISION, Permit
from waitroom.wire import Call, path

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_RELEASED = frozenset({"released"})


def make_ask(  # noqa: PLR0913
    core: Core,
    rule: str,
    fields: Mapping[str, Field],
    key: str | None,
    *,
    cost: int,
    name: str = "",
    is_kept: bool = False,
) -> Ask:
    """`name`: the caller's for this call. One is made where it may be sent twice, and for a permit
    that is kept."""
    call: dict[str, Any] = {"fields": texts(fields)} if key is None else {"key": key}
    if key is not None and fields:
        raise RejectedError(f"limit {rule}: give its key or its fields, not both")
    if cost != 1:
        call["cost"] = cost
    if name or core.is_repeating or is_kept:
        call["id"] = name or make_id()
    return Ask(rule, call, is_own=not name)


def acquire(  # noqa: PLR0913
    core: Core,
    /,
    rule: str,
    *,
    key: str | None = None,
    cost: int = 1,
    id: str = "",  # noqa: A002 - the API's word
    wait: bool = False,
    **fields: Field,
) -> Flow[Permit]:
    """Permission for one call, of the limit's `fields` or of a whole `key`. With `wait`, it comes
    when the call may go; else `wait_seconds` says when that is. The same `id` asked for again is
    the same call.

    Raises Refused.
    """
    ask = make_ask(core, rule, fields, key, cost=cost, name=id)
    return (yield from acquire_prepared(core, ask, wait=wait))


def look(core: Core, /, rule: str, *, key: str | None = None, **fields: Field) -> Flow[Permit]:
    """What a call would get now. Nothing is taken."""
    query = texts(fields) if key is None else {"key": key}
    call = Call("GET", path("limits", rule), query, members=DECISION)
    return Permit.read(rule, (yield from core.document(call)))


def release(core: Core, /, permit: Permit) -> Flow[bool]:
    """Gives back a moment that is yet to come, or a permit of a concurrency limit. Whether there
    was something to give back. Idempotent."""
    if not permit.permit:
        return False
    return bool((yield from core.document(giving_back(permit)))["released"])


def acquire_prepared(core: Core, ask: Ask, *, wait: bool) -> Flow[Permit]:
    permit = _permit_of(ask, (yield from core.sent(ask, _giving_back_unseen(ask))))
    if wait and permit.wait_seconds > 0:
        try:
            yield Pause(permit.wait_seconds)
        except BaseException:
            yield from core.quietly(giving_back(permit))
            raise
    return permit


def acquire_to_go(core: Core, ask: Ask, *, wait: bool) -> Flow[None]:
    """Permission to call now. Without `wait` a moment to come is given back, and is a refusal."""
    permit = yield from acquire_prepared(core, ask, wait=wait)
    if not wait and permit.wait_seconds > 0:
        yield from core.quietly(giving_back(permit))
        raise Refused(f"{_of(ask, permit.key)} has no moment before", permit.wait_seconds, {})


def acquire_one_of(core: Core, ask: Ask, *, wait: bool) -> Flow[Permit]:
    """A permit of a concurrency limit. There is no queue: who waits asks again and again."""
    tried = 0
    while True:
        try:
            return (yield from acquire_prepared(core, ask, wait=True))
        except Refused as refused:
            if not wait:
                raise
            pause_s = min(refused.retry_after, backoff_s(min(tried, 2)))
        yield Pause(pause_s)
        tried += 1


def keep(core: Core, ask: Ask, lease_s: float) -> Flow[None]:
    """Keeps a permit of a concurrency limit, until its driver stops."""
    while True:
        yield Pause(lease_s / 3)
        try:
            _permit_of(ask, (yield from core.ask_each(asking(ask))).document)
        except WaitroomError as error:
            log.warning("a permit of %s may be lost: %s", ask.rule, error)


def give_back(core: Core, permit: Permit) -> Flow[None]:
    try:
        yield from release(core, permit)
    except WaitroomError as error:
        log.warning("a permit of %s is not given back: %s", permit.rule, error)


def asking(ask: Ask) -> Call:
    return Call(
        "POST", path("limits", ask.rule, "acquire"), body=ask.call, members=DECISION,
        statuses=frozenset({429}), is_repeatable=ask.is_repeatable,
    )  # fmt: skip


def asking_all(asks: Sequence[Ask]) -> Call:
    """For calls of one limit together."""
    return Call(
        "POST", path("limits", asks[0].rule, "acquire"), body=[ask.call for ask in asks],
        members=DECISION, is_repeatable=all(ask.is_repeatable for ask in asks),
    )  # fmt: skip


def giving_back(permit: Permit) -> Call:
    body = {"key": permit.key, "permit": permit.permit}
    return Call("POST", path("limits", permit.rule, "release"), body=body, members=_RELEASED)


def fields_of_call(
    fields: Mapping[str, Field | Callable[..., Field]], args: Any, kwargs: Any
) -> dict[str, Field]:
    """Of a decorated function's call: what is a function is asked, with the same arguments."""
    return {
        name: value(*args, **kwargs) if callable(value) else value for name, value in fields.items()
    }


def _giving_back_unseen(ask: Ask) -> Call | None:
    """Of a call whose answer was lost. What has the caller's own name stays: they may ask again."""
    if not ask.is_own or "id" not in ask.call:
        return None
    named = {name: value for name, value in ask.call.items() if name in {"fields", "key"}}
    body = {**named, "permit": f"{ask.call.get('cost', 1)}~{ask.call['id']}"}
    return Call("POST", path("limits", ask.rule, "release"), body=body, members=_RELEASED)


def _permit_of(ask: Ask, document: dict[str, Any]) -> Permit:
    """Raises what stands for a call that may not go."""
    if document["allowed"]:
        return Permit.read(ask.rule, document)
    of = _of(ask, document["key"])
    if document["wait_seconds"] is None and document["limit"]:
        cost = ask.call.get("cost", 1)
        raise RejectedError(f"{of}: a cost of {cost} is more than {document['limit']}, its limit")
    raise Refused(f"{of} refuses the call", retry_s(document), document)


def _of(ask: Ask, key: str) -> str:
    return f"limit {ask.rule}" + (f" of {key}" if key else "")
