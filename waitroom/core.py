"""What a client does, step by step, without doing it: a flow yields requests and pauses, and is
sent the responses. So the same lines serve threads and tasks.

The driver of a flow throws into it what a step raised, KeyboardInterrupt and CancelledError
included; the flow may then yield what is left to do, such as giving back a moment.
"""

from __future__ import annotations

import functools
import logging
import random
import secrets
from collections.abc import Callable, Coroutine, Generator, Mapping
from dataclasses import dataclass
from typing import Any, Concatenate, ParamSpec, TypeVar

from waitroom.errors import DEFAULT_RETRY_S, RejectedError, UnavailableError, WaitroomError
from waitroom.wire import Answer, Call, Replica

log = logging.getLogger("waitroom")

#: Before the second try; each further one waits four times as long.
FIRST_BACKOFF_S = 0.1
MAX_BACKOFF_S = 5.0

Field = str | int


@dataclass(frozen=True, slots=True)
class Ask:
    """One call of a limit; may be sent together with others. Its answer is its document."""

    rule: str
    call: dict[str, Any]
    #: Whether its id was made here, so that nobody else knows of its permit.
    is_own: bool = True

    @property
    def is_repeatable(self) -> bool:
        return "id" in self.call


@dataclass(frozen=True, slots=True)
class Send:
    """A request to one replica. Its answer is an Answer; of one that `is_streamed`, the open
    response."""

    call: Call
    replica: Replica
    is_streamed: bool = False


@dataclass(frozen=True, slots=True)
class Pause:
    seconds: float


Step = Send | Ask | Pause
P = ParamSpec("P")
T = TypeVar("T")
Flow = Generator[Step, Any, T]


class Core:
    """`retries`: how often all replicas are tried again while none answers."""

    def __init__(self, replicas: list[Replica], retries: int) -> None:
        self._replicas = replicas
        self.retries = retries
        #: The first to be asked: the last that answered.
        self._first = 0

    @property
    def is_repeating(self) -> bool:
        """Whether a call may be sent twice."""
        return self.retries > 0 or len(self._replicas) > 1

    def ask_each(self, call: Call, *, is_streamed: bool = False) -> Flow[Any]:
        """One try: the replicas in turn, until one answers."""
        is_sent, first, count = False, self._first, len(self._replicas)
        for offset in range(count):
            number = (first + offset) % count
            try:
                answer = yield Send(call, self._replicas[number], is_streamed)
            except UnavailableError as error:
                is_sent = error.is_sent = is_sent or error.is_sent
                if offset == count - 1 or (is_sent and not call.is_repeatable):
                    raise
                log.debug("%s; the next replica is asked", error)
            else:
                self._first = number
                return answer
        raise AssertionError  # the last one has answered or raised

    def opened(self, call: Call) -> Flow[tuple[Replica, Any]]:
        """The replica that answered, and its open response."""
        response = yield from self.ask_each(call, is_streamed=True)
        return self._replicas[self._first], response

    def sent(self, step: Call | Ask, undo: Call | None = None) -> Flow[Any]:
        """`undo`: what is sent where a try had no answer, and no other try has one."""
        is_unknown = False
        for tried in range(self.retries + 1):
            try:
                if isinstance(step, Ask):
                    return (yield step)
                return (yield from self.ask_each(step))
            except UnavailableError as error:
                log.debug("try %d: %s", tried + 1, error)
                is_unknown = is_unknown or error.is_sent
                if tried == self.retries or (error.is_sent and not step.is_repeatable):
                    if undo and is_unknown:
                        yield from self.quietly(undo)
                    raise
            try:
                yield Pause(backoff_s(tried))
            except BaseException:
                if undo and is_unknown:
                    yield from self.quietly(undo)
                raise
        raise AssertionError  # the last try has returned or raised

    def quietly(self, call: Call) -> Flow[None]:
        """One try, to tidy up: what fails ends by itself in time."""
        try:
            yield from self.ask_each(call)
        except WaitroomError as error:
            log.warning("not tidied up: %s", error)

    def document(self, call: Call) -> Flow[Any]:
        answer: Answer = yield from self.sent(call)
        return answer.document


def blocking(flow: Callable[Concatenate[Core, P], Flow[T]]) -> Callable[Concatenate[Any, P], T]:
    """A method of Client of a flow."""

    @functools.wraps(flow)
    def method(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        result: T = self.drive(flow(self.core, *args, **kwargs))
        return result

    return method


def awaiting(
    flow: Callable[Concatenate[Core, P], Flow[T]],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """The same of AsyncClient."""

    @functools.wraps(flow)
    async def method(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        result: T = await self.drive(flow(self.core, *args, **kwargs))
        return result

    return method


def request(
    core: Core,
    /,
    method: str,
    path: str,
    body: object = None,
    *,
    query: Mapping[str, str] | None = None,
) -> Flow[Any]:
    """The document that the replica answers, for what has no method of its own. A POST is not
    repeated when it may have arrived."""
    return core.document(
        Call(method, path, dict(query or {}), body, is_repeatable=method.upper() != "POST")
    )


def make_id() -> str:
    """A name that nobody else has: of a call, or of a holder."""
    return secrets.token_hex(12)


def retry_s(document: dict[str, Any]) -> float:
    for name in ("wait_seconds", "retry_after_seconds", "retry_after"):
        if document.get(name):
            return float(document[name])
    return DEFAULT_RETRY_S


def texts(fields: Mapping[str, Field]) -> dict[str, str]:
    for name, value in fields.items():
        if not isinstance(value, str | int):
            raise RejectedError(f"field {name}: a text or a whole number (got {value!r})")
    return {name: str(value) for name, value in fields.items()}


def backoff_s(tried: int) -> float:
    """With jitter, so that those who failed together do not come back together."""
    longest_s: float = min(MAX_BACKOFF_S, FIRST_BACKOFF_S * 4.0**tried)
    return longest_s * random.uniform(0.5, 1)  # noqa: S311
