"""What a client does, step by step, without doing it: a flow yields requests and pauses, and is
sent the answers. So the same lines serve threads and tasks.

Whoever drives a flow throws into it what a step raised, KeyboardInterrupt and CancelledError
included; the flow may then yield what is left to do, such as giving back a moment.
"""

from __future__ import annotations

import logging
import math
import secrets
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from sidecar.client.answers import DECISION, Held, Permit
from sidecar.client.errors import (
    DEFAULT_RETRY_S,
    AwayError,
    LeaseLost,
    Queued,
    Refused,
    RejectedError,
)
from sidecar.client.wire import Answer, Call, path
from sidecar.kit.errors import WaitroomError
from sidecar.kit.retry import Backoff

log = logging.getLogger("sidecar.client")

BACKOFF = Backoff(0.1, 5.0, factor=4, jitter=0.5)
#: Where a reply says nothing of when to ask again.
DEFAULT_REFRESH_S = 1.0

_LEASE = frozenset({"state", "fence", "order", "refresh_after_seconds", "expires_in_seconds"})
_RELEASED = frozenset({"released"})

Field = str | int


@dataclass(frozen=True, slots=True)
class Ask:
    """One call of a limit; may be sent together with others. Its answer is its document."""

    rule: str
    call: dict[str, Any]
    #: Whether its id was made here, so that nobody else knows of its permit.
    is_own: bool = True


@dataclass(frozen=True, slots=True)
class Pause:
    seconds: float


Step = Call | Ask | Pause
T = TypeVar("T")
Flow = Generator[Step, Any, T]


class Flows:
    """`retries`: how often a step is tried again while no replica answers."""

    def __init__(self, retries: int) -> None:
        self._retries = retries

    def sent(self, step: Call | Ask, undo: Call | None = None) -> Flow[Any]:
        """`undo`: what is sent where a try had no answer, and no other try has one."""
        is_unknown = False
        for tried in range(self._retries + 1):
            try:
                return (yield step)
            except AwayError as error:
                log.debug("try %d: %s", tried + 1, error)
                is_unknown = is_unknown or error.is_sent
                if tried == self._retries:
                    if undo and is_unknown:
                        yield from self.quietly(undo)
                    raise
            try:
                yield Pause(BACKOFF.delay_s(tried + 1))
            except BaseException:
                if undo and is_unknown:
                    yield from self.quietly(undo)
                raise
        raise AssertionError  # the last try has returned or raised

    def quietly(self, call: Call) -> Flow[None]:
        """Sent once, to tidy up: what fails ends by itself in time."""
        try:
            yield call
        except WaitroomError as error:
            log.warning("not tidied up: %s", error)

    def ask(  # noqa: PLR0913
        self,
        rule: str,
        fields: Mapping[str, Field],
        key: str | None,
        *,
        cost: int,
        name: str = "",
        is_kept: bool = False,
    ) -> Ask:
        """`name`: the caller's for this call. One is made where it may be sent twice, and for a
        permit that is kept."""
        call: dict[str, Any] = {"fields": _texts(fields)} if key is None else {"key": key}
        if key is not None and fields:
            raise RejectedError(f"limit {rule}: give its key or its fields, not both")
        if cost != 1:
            call["cost"] = cost
        if name or self._retries or is_kept:
            call["id"] = name or make_id()
        return Ask(rule, call, is_own=not name)

    def acquire(self, ask: Ask, *, wait: bool) -> Flow[Permit]:
        permit = _permit_of(ask, (yield from self.sent(ask, _giving_back_unseen(ask))))
        if wait and permit.wait_seconds > 0:
            try:
                yield Pause(permit.wait_seconds)
            except BaseException:
                yield from self.quietly(giving_back(permit))
                raise
        return permit

    def acquire_to_go(self, ask: Ask, *, wait: bool) -> Flow[None]:
        """Leave to call now. Without `wait` a moment to come is given back, and is a refusal."""
        permit = yield from self.acquire(ask, wait=wait)
        if not wait and permit.wait_seconds > 0:
            yield from self.quietly(giving_back(permit))
            raise Refused(f"{_of(ask, permit.key)} has no moment before", permit.wait_seconds, {})

    def acquire_one_of(self, ask: Ask, *, wait: bool) -> Flow[Permit]:
        """A permit of a concurrency limit. There is no line: who waits asks again and again."""
        refusals = 0
        while True:
            try:
                return (yield from self.acquire(ask, wait=True))
            except Refused as refused:
                if not wait:
                    raise
                retry_s = refused.retry_after
            refusals = min(refusals + 1, 3)
            yield Pause(min(retry_s, BACKOFF.delay_s(refusals)))

    def look(self, rule: str, fields: Mapping[str, Field], key: str | None) -> Flow[Permit]:
        query = _texts(fields) if key is None else {"key": key}
        answer = yield from self.sent(Call("GET", path("limits", rule), query, members=DECISION))
        return Permit.read(rule, answer.document)

    def release(self, permit: Permit) -> Flow[bool]:
        if not permit.permit:
            return False
        answer = yield from self.sent(giving_back(permit))
        return bool(answer.document["released"])

    def keep(self, ask: Ask, lease_s: float) -> Flow[None]:
        """Keeps a permit of a concurrency limit, until whoever drives it stops."""
        call = asking(ask.rule, ask.call)
        while True:
            yield Pause(lease_s / 3)
            try:
                _permit_of(ask, (yield call).document)
            except WaitroomError as error:
                log.warning("a permit of %s may be lost: %s", ask.rule, error)

    def take(self, lease: Held, wait: float | None) -> Flow[None]:
        """Takes the lease, or waits in line for it; leaves the line when that does not end so."""
        ends = math.inf if wait is None else time.monotonic() + wait
        look = Call("GET", _path_of(lease), {"holder": lease.holder}, members=_LEASE)
        try:
            told = yield from self._join(lease)
            while told["state"] != "granted":
                left_s = ends - time.monotonic()
                if left_s <= 0:
                    raise Queued(f"lease {lease} is held by somebody else", told)  # noqa: TRY301
                refresh_s = told["refresh_after_seconds"]
                yield Pause(min(left_s, DEFAULT_REFRESH_S if refresh_s is None else refresh_s))
                asked_at, order = time.monotonic(), told["order"]
                told = (yield from self.sent(look)).document
                if told["state"] == "granted":
                    lease.granted(told, asked_at)
                elif told["state"] == "gone":
                    told = yield from self._join(lease, order)
        except (Refused, RejectedError):
            raise  # it is not even in line
        except BaseException:
            yield from self.quietly(Call("DELETE", _path_of(lease), {"holder": lease.holder}))
            raise

    def _join(self, lease: Held, order: int | None = None) -> Flow[dict[str, Any]]:
        body: dict[str, Any] = {"holder": lease.holder}
        if order is not None:
            body["order"] = order
        asked_at = time.monotonic()
        answer: Answer = yield from self.sent(
            Call("POST", _path_of(lease), body=body, members=_LEASE)
        )
        told: dict[str, Any] = answer.document
        if answer.status == 429:
            raise Refused(f"the line for {lease} is full", _retry_s(told), told)
        if told["state"] == "granted":
            lease.granted(told, asked_at)
        return told

    def renew(self, lease: Held) -> Flow[None]:
        asked_at = time.monotonic()
        body = {"holder": lease.holder, "fence": lease.fence}
        answer = yield from self.sent(Call("PUT", _path_of(lease), body=body, members=_LEASE))
        if answer.status == 200:
            lease.granted(answer.document, asked_at)
            return
        # Not renewed, and either over or not.
        detail = answer.document.get("detail", "")
        look = Call("GET", _path_of(lease), {"holder": lease.holder}, members=_LEASE)
        if (yield from self.sent(look)).document["fence"] == lease.fence:
            raise RejectedError(f"lease {lease} is not renewed: {detail}", status=409)
        raise LeaseLost(f"lease {lease} is over: {detail}")

    def give_up(self, lease: Held) -> Flow[None]:
        """Ends the lease early. Where that fails, its term ends it; where that was over before,
        it says so."""
        if not lease.left_seconds:
            log.warning("lease %s was over before its block", lease)
        query = {"holder": lease.holder, "fence": str(lease.fence)}
        try:
            yield from self.sent(Call("DELETE", _path_of(lease), query))
        except WaitroomError as error:
            log.warning("lease %s is not given up before its term: %s", lease, error)

    def give_back(self, permit: Permit) -> Flow[None]:
        """The same for a permit."""
        try:
            yield from self.release(permit)
        except WaitroomError as error:
            log.warning("a permit of %s is not given back: %s", permit.rule, error)


def make_id() -> str:
    """A name that nobody else has: of a call, or of a holder."""
    return secrets.token_hex(12)


def asking(rule: str, body: object) -> Call:
    """For one call, or for a list of them."""
    return Call("POST", path("limits", rule, "acquire"), body=body, members=DECISION)


def giving_back(permit: Permit) -> Call:
    body = {"key": permit.key, "permit": permit.permit}
    return Call("POST", path("limits", permit.rule, "release"), body=body, members=_RELEASED)


def _giving_back_unseen(ask: Ask) -> Call | None:
    """Of a call whose answer was lost. What has the caller's own name stays: they may ask again."""
    if not ask.is_own or "id" not in ask.call:
        return None
    named = {name: value for name, value in ask.call.items() if name in {"fields", "key"}}
    body = {**named, "permit": f"{ask.call.get('cost', 1)}~{ask.call['id']}"}
    return Call("POST", path("limits", ask.rule, "release"), body=body, members=_RELEASED)


def fields_of_call(
    fields: Mapping[str, Field | Callable[..., Field]], args: Any, kwargs: Any
) -> dict[str, Field]:
    """Of a decorated function's call: what is a function is asked, with the same arguments."""
    return {
        name: value(*args, **kwargs) if callable(value) else value for name, value in fields.items()
    }


def _permit_of(ask: Ask, document: dict[str, Any]) -> Permit:
    """Raises what stands for a call that may not go."""
    if document["allowed"]:
        return Permit.read(ask.rule, document)
    of = _of(ask, document["key"])
    if document["wait_seconds"] is None and document["limit"]:
        cost = ask.call.get("cost", 1)
        raise RejectedError(f"{of}: a cost of {cost} is more than {document['limit']}, its limit")
    raise Refused(f"{of} refuses the call", _retry_s(document), document)


def _of(ask: Ask, key: str) -> str:
    return f"limit {ask.rule}" + (f" of {key}" if key else "")


def _retry_s(document: dict[str, Any]) -> float:
    said = document.get("wait_seconds") or document.get("retry_after")
    return DEFAULT_RETRY_S if said is None else float(said)


def _path_of(lease: Held) -> str:
    return path("leases", lease.template, lease.resource)


def _texts(fields: Mapping[str, Field]) -> dict[str, str]:
    for name, value in fields.items():
        if not isinstance(value, str | int):
            raise RejectedError(f"field {name}: a text or a whole number (got {value!r})")
    return {name: str(value) for name, value in fields.items()}
