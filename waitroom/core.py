"""Sends requests until a replica answers; written once, for threads and for tasks.

The methods are coroutines. Tasks await them; over Threads they never suspend, so
`waitroom.blocking` runs each to its end at once. A coroutine that is interrupted, by CancelledError
or KeyboardInterrupt, may still send requests to tidy up, such as giving back a permit.
"""

import logging
import random
import secrets
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any

from waitroom.errors import UnavailableError, WaitroomError
from waitroom.wire import Document, LimitCall, Replica, Request, Response, Wire

Undo = Callable[[], Coroutine[Any, Any, None]]

log = logging.getLogger("waitroom")

#: Seconds before the second try, the third, and so on; the last value repeats.
PAUSES_S = (0.1, 0.4, 1.6, 5.0)


class Core(ABC):
    """The part of a client that both kinds share. `retries`: how often all replicas are tried again
    while none answers."""

    def __init__(self, wire: Wire, retries: int) -> None:
        self.wire = wire
        self.retries = retries
        #: The number of the replica to try first: the last one that answered.
        self.first = 0

    @abstractmethod
    async def send(self, call: Request, replica: Replica) -> Any:
        """Send one request. Return the Response, or an OpenResponse if the request is streamed."""

    @abstractmethod
    def parts(self, response: Any) -> AsyncGenerator[bytes, None]:
        """Yield the body of an open response, and close it."""

    @abstractmethod
    async def pause(self, seconds: float) -> None: ...

    @abstractmethod
    async def ask(self, ask: LimitCall) -> Document:
        """Try a limit's call once, perhaps in one request with others."""

    @abstractmethod
    def repeating(
        self, act: Callable[[], Coroutine[Any, Any, None]], seconds: float
    ) -> AbstractAsyncContextManager[None]:
        """Run `act` every `seconds` while the block runs. The block ends after the last one."""

    def repeat_id(self) -> str:
        """Return an id for a call that may be sent twice; "" if this client sends none twice."""
        return make_id() if self.retries > 0 or len(self.wire.replicas) > 1 else ""

    async def ask_each(self, call: Request) -> Any:
        """Try the replicas in turn, once, until one answers."""
        is_sent, first, replicas = False, self.first, self.wire.replicas
        for offset in range(len(replicas)):
            number = (first + offset) % len(replicas)
            try:
                answer = await self.send(call, replicas[number])
            except UnavailableError as error:
                is_sent = error.is_sent = is_sent or error.is_sent
                if offset == len(replicas) - 1 or (is_sent and not call.is_repeatable):
                    raise
                log.debug("%s; the next replica is tried", error)
            else:
                self.first = number
                return answer
        raise AssertionError  # the last replica has answered or raised

    async def sent(self, step: Request | LimitCall, undo: Undo | None = None) -> Any:
        """Send a request, trying again while no replica answers. `undo` runs if a try may have
        arrived and none was answered."""
        is_unknown = False
        try:
            for tried in range(self.retries + 1):
                try:
                    return await (
                        self.ask(step) if isinstance(step, LimitCall) else self.ask_each(step)
                    )
                except UnavailableError as error:
                    log.debug("try %d: %s", tried + 1, error)
                    is_unknown = is_unknown or error.is_sent
                    if tried == self.retries or (error.is_sent and not step.is_repeatable):
                        raise
                except WaitroomError:
                    raise
                except BaseException:
                    # Interrupted. The batch gives back a limit's call itself.
                    is_unknown = is_unknown or isinstance(step, Request)
                    raise
                await self.pause(backoff_s(tried))
        except BaseException:
            if undo and is_unknown:
                await undo()
            raise
        raise AssertionError  # the last try has returned or raised

    async def quietly(self, call: Request) -> None:
        """Tidy up with one try. If that fails, the permit or lease ends by itself in time."""
        try:
            await self.ask_each(call)
        except WaitroomError as error:
            log.warning("not tidied up: %s", error)

    async def document(self, call: Request) -> Any:
        answer: Response = await self.sent(call)
        return answer.document


def make_id() -> str:
    """Make a unique name for a call or a holder."""
    return secrets.token_hex(12)


def backoff_s(tried: int) -> float:
    """Return the pause before the next try, with jitter, so that clients do not retry together."""
    longest_s = PAUSES_S[min(tried, len(PAUSES_S) - 1)]
    return longest_s * random.uniform(0.5, 1)  # noqa: S311
