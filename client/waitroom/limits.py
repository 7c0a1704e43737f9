"""Methods for limits. A program asks a limit for permission before each of its calls."""

import math
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import count
from typing import Any

from waitroom.core import Core, Wait, get_backoff_s, get_deadline, log, make_id
from waitroom.errors import (
    LeaseLost,
    Refused,
    RejectedError,
    TimeoutError,  # noqa: A004 - a subclass of the built-in one
    WaitroomError,
    get_retry_s,
)
from waitroom.model import DECISION_MEMBERS, Permit
from waitroom.wire import AcquireCall, Document, Request, Response, build_path

FieldValue = str | int


@dataclass(frozen=True, slots=True)
class HeldPermit(Permit):
    """A permit that this client holds, and renews, while a block runs."""

    #: A list with one value, which renewals replace: the end of the term by time.monotonic().
    _ends_at: list[float] = field(default_factory=lambda: [math.inf], repr=False, compare=False)

    @property
    def left_seconds(self) -> float:
        """Seconds until the permit ends unless it is renewed, by this machine's monotonic clock. 0
        if the permit has ended, infinite if it has no term."""
        return max(0.0, self._ends_at[0] - time.monotonic())

    def check(self) -> None:
        """Raise LeaseLost if the permit has ended by this machine's clock. No request is sent."""
        if not self.left_seconds:
            name = _describe_limit(self.rule, self.key)
            raise LeaseLost(f"the permit of {name} is over: others may have it by now")

    def extend(self, permit: Permit, sent_at: float) -> None:
        """Store a granted or renewed term. If the previous term ended before the request, the
        permit is lost. `sent_at` is time.monotonic() before the request."""
        if sent_at >= self._ends_at[0]:
            self.lose()
        elif permit.expires_in_seconds is not None:
            self._ends_at[0] = sent_at + permit.expires_in_seconds
        elif permit.outcome == "unlimited":  # an operator has removed the limit
            self._ends_at[0] = math.inf

    def lose(self) -> None:
        self._ends_at[0] = -math.inf


class LimitMethods:
    """Methods for limits, and `request` for endpoints without a method of their own."""

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
        wait: Wait = None,
        **fields: FieldValue,
    ) -> Permit:
        """Ask for permission for one call. Give the values of the limit's fields, or the whole
        `key`. With `wait`, return when the call may start, and ask again if the limit refuses.
        Without `wait`, return at once; the call must not start for `wait_seconds`. Requests with
        the same `id` count as one call.

        Raises TimeoutError, or Refused without `wait`.
        """
        call_id = id or self._core.make_repeat_id()
        parameters = _make_parameters(rule, key, cost, fields)
        call = AcquireCall(rule, parameters, call_id, has_generated_id=not id)
        if not wait:
            return (await _acquire(self._core, call))[0]
        return (await _acquire_in_time(self._core, call, wait))[0]

    async def look(self, /, rule: str, *, key: str | None = None, **fields: FieldValue) -> Permit:
        """Return the decision that a call would get now. No call is counted."""
        query = _to_strings(fields) if key is None else {"key": key}
        request = Request("GET", build_path("limits", rule), query, members=DECISION_MEMBERS)
        return Permit.from_document(rule, await self._core.call(request))

    async def release(self, permit: Permit) -> bool:
        """Release a permit, or the start time reserved for a call. Return False if there was
        nothing to release, for example because the permit has expired. Idempotent."""
        if not permit.permit:
            return False
        request = make_release_request(permit.rule, key=permit.key, permit=permit.permit)
        return (await self._core.call(request))["released"]

    @asynccontextmanager
    async def permit(
        self,
        /,
        rule: str,
        *,
        key: str | None = None,
        cost: int = 1,
        wait: Wait = None,
        **fields: FieldValue,
    ) -> AsyncGenerator["HeldPermit", None]:
        """Hold a permit of a concurrency limit while the block runs. With `wait`, retry until a
        permit is granted; there is no queue. This method can also be used as a decorator.

        Raises TimeoutError, or Refused without `wait`, and LeaseLost after a block during which the
        permit ended, unless the block itself raised.
        """
        call = AcquireCall(rule, _make_parameters(rule, key, cost, fields), make_id())
        granted, sent_at = await _acquire_in_time(self._core, call, wait)
        permit = HeldPermit(**asdict(granted))
        permit.extend(granted, sent_at)

        async def renew() -> None:
            try:
                response = await self._core.try_replicas(make_acquire_request(call))
                permit.extend(_read_permit(call, response.document), response.sent_at)
            except Refused:
                permit.lose()
            except WaitroomError as error:
                log.warning("a permit of %s may be lost: %s", rule, error)

        term_s = permit.permit and permit.expires_in_seconds
        renewal = self._core.run_repeatedly(renew, term_s / 3) if term_s else nullcontext()
        try:
            async with renewal:  # a started renewal ends before the permit is released
                yield permit
            permit.check()
        finally:
            try:
                await self.release(permit)
            except WaitroomError as error:
                log.warning("a permit of %s is not given back: %s", rule, error)


def make_acquirer(  # noqa: PLR0913
    core: Core, rule: str, *, key: str | None, cost: int, wait: Wait, fields: Mapping[str, Any]
) -> Callable[..., Coroutine[Any, Any, None]]:
    """Return a function that acquires permission for a call and takes the call's arguments. Those
    `fields` that are functions are called with these arguments. The returned function raises
    TimeoutError, or Refused without `wait`."""

    async def acquire(*args: Any, **kwargs: Any) -> None:
        values = {
            name: field(*args, **kwargs) if callable(field) else field
            for name, field in fields.items()
        }
        parameters = _make_parameters(rule, key, cost, values)
        await _acquire_in_time(core, AcquireCall(rule, parameters, core.make_repeat_id()), wait)

    return acquire


def _make_parameters(
    rule: str, key: str | None, cost: int, fields: Mapping[str, FieldValue]
) -> Document:
    """Return a call's parameters for the API. Raises RejectedError if it has a key and fields."""
    if key is not None and fields:
        raise RejectedError(f"limit {rule}: give its key or its fields, not both")
    parameters: Document = {"fields": _to_strings(fields)} if key is None else {"key": key}
    return parameters if cost == 1 else {**parameters, "cost": cost}


def make_acquire_request(call: AcquireCall) -> Request:
    """Return the request that acquires permission for one call. A refusal is not an error."""
    batch = make_batch_acquire_request([call])
    return replace(batch, body=call.body, statuses=frozenset({429}))


def make_batch_acquire_request(calls: Sequence[AcquireCall]) -> Request:
    """Return the request that acquires permission for several calls of one limit."""
    return Request(
        "POST",
        build_path("limits", calls[0].rule, "acquire"),
        body=[call.body for call in calls],
        members=DECISION_MEMBERS,
        is_repeatable=all(call.is_repeatable for call in calls),
    )


def make_release_request(rule: str, **body: Any) -> Request:
    """Return the request that releases a permit. `body` has `permit`, and `key` or `fields`."""
    members = frozenset({"released"})
    return Request("POST", build_path("limits", rule, "release"), body=body, members=members)


async def _acquire(core: Core, call: AcquireCall) -> tuple[Permit, float]:
    """Ask for permission once. Return the permit, which may have `wait_seconds`, and the
    time.monotonic() before the request that was answered."""
    undo = None
    if call.has_generated_id and call.call_id:
        # No caller knows the id, so nobody else can release the permit after a lost response.
        parameters = dict(call.parameters)
        permit_name = f"{parameters.pop('cost', 1)}~{call.call_id}"
        release = make_release_request(call.rule, **parameters, permit=permit_name)
        undo = partial(core.send_or_log, release)
    response: Response = await core.send_with_retries(call, undo)
    return _read_permit(call, response.document), response.sent_at


async def _acquire_in_time(core: Core, call: AcquireCall, wait: Wait) -> tuple[Permit, float]:
    """Wait until the call may start. Ask again if the limit refuses. Return the permit, and the
    time.monotonic() before the granted request. Raises TimeoutError, or Refused without `wait`."""
    deadline = get_deadline(wait)
    for attempt in count():
        try:
            permit, sent_at = await _acquire(core, call)
        except Refused as refused:
            left_s = deadline - time.monotonic()
            if not wait:
                raise
            if left_s <= 0:
                name = _describe_limit(call.rule, refused.document.get("key", ""))
                text = f"{name} has refused the call for {wait:g} s"
                raise TimeoutError(text, refused.document) from refused
            # A permit may be released at any moment, so do not wait until one expires.
            await core.pause(min(refused.retry_after, get_backoff_s(min(attempt, 2)), left_s))
            continue
        if permit.wait_seconds > 0 and time.monotonic() + permit.wait_seconds > deadline:
            await _release_or_log(core, permit)
            name = f"{_describe_limit(call.rule, permit.key)} has no moment"
            if not wait:
                raise Refused(f"{name} before", permit.wait_seconds, {})
            text = f"{name} within {wait:g} s, only in {permit.wait_seconds:g} s"
            raise TimeoutError(text, {"wait_seconds": permit.wait_seconds})
        if permit.wait_seconds > 0:
            try:
                await core.pause(permit.wait_seconds)
            except BaseException:
                await _release_or_log(core, permit)
                raise
        return permit, sent_at
    raise AssertionError  # the loop has returned or raised


async def _release_or_log(core: Core, permit: Permit) -> None:
    request = make_release_request(permit.rule, key=permit.key, permit=permit.permit)
    await core.send_or_log(request)


def _to_strings(fields: Mapping[str, FieldValue]) -> dict[str, str]:
    for name, value in fields.items():
        if not isinstance(value, str | int):
            raise RejectedError(f"field {name}: a text or a whole number (got {value!r})")
    return {name: str(value) for name, value in fields.items()}


def _read_permit(call: AcquireCall, document: Document) -> Permit:
    """Return a decision's permit. Raises Refused, or RejectedError if the cost is too high."""
    if document["allowed"]:
        return Permit.from_document(call.rule, document)
    name = _describe_limit(call.rule, document["key"])
    if document["wait_seconds"] is None and document["limit"]:
        cost = call.parameters.get("cost", 1)
        raise RejectedError(f"{name}: a cost of {cost} is more than {document['limit']}, its limit")
    raise Refused(f"{name} refuses the call", get_retry_s(document), document)


def _describe_limit(rule: str, key: str) -> str:
    return f"limit {rule}" + (f" of {key}" if key else "")
