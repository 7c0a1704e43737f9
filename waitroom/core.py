"""Sends requests until a replica answers; written once, for threads and for tasks.

All is coroutines. Those over Tasks are awaited; those over Threads never suspend, so
`waitroom.blocking` runs each of them to its end at once. A coroutine that is interrupted, by
CancelledError or KeyboardInterrupt, may still send what is left to do, such as giving back a
moment.
"""

import logging
import random
import secrets
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any

from waitroom.errors import UnavailableError, WaitroomError
from waitroom.wire import Answer, Ask, Call, Document, Replica, Wire

Undo = Callable[[], Coroutine[Any, Any, None]]

log = logging.getLogger("waitroom")

#: Seconds before the second try, the third, and so on; the last one before all further.
PAUSES_S = (0.1, 0.4, 1.6, 5.0)


class Core(ABC):
    """`retries`: how often all replicas are tried again while none answers."""

    def __init__(self, wire: Wire, retries: int) -> None:
        self.wire = wire
        self.retries = retries
        #: The first to be tried: the last that answered.
        self.first = 0

    @abstractmethod
    async def send(self, call: Call, replica: Replica) -> Any:
        """The Answer; of a call that `is_streamed`, the open response."""

    @abstractmethod
    def parts(self, response: Any) -> AsyncGenerator[bytes, None]:
        """The body of an open response, which is closed at the end."""

    @abstractmethod
    async def pause(self, seconds: float) -> None: ...

    @abstractmethod
    async def ask(self, ask: Ask) -> Document:
        """One try of a limit's call, which may go together with others."""

    @abstractmethod
    def repeating(
        self, act: Callable[[], Coroutine[Any, Any, None]], seconds: float
    ) -> AbstractAsyncContextManager[None]:
        """Acts every so many seconds while the block runs. The block ends after the last act."""

    def repeat_id(self) -> str:
        """A name for a call that may be sent twice; none for one that is not."""
        return make_id() if self.retries > 0 or len(self.wire.replicas) > 1 else ""

    async def ask_each(self, call: Call) -> Any:
        """One try: the replicas in turn, until one answers."""
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
        raise AssertionError  # the last one has answered or raised

    async def sent(self, step: Call | Ask, undo: Undo | None = None) -> Any:
        """`undo`: what is done where a try may have arrived, and none has an answer."""
        is_unknown = False
        try:
            for tried in range(self.retries + 1):
                try:
                    return await (self.ask(step) if isinstance(step, Ask) else self.ask_each(step))
                except UnavailableError as error:
                    log.debug("try %d: %s", tried + 1, error)
                    is_unknown = is_unknown or error.is_sent
                    if tried == self.retries or (error.is_sent and not step.is_repeatable):
                        raise
                except WaitroomError:
                    raise
                except BaseException:
                    # Interrupted. A limit's own item is given back by the batch that it was in.
                    is_unknown = is_unknown or isinstance(step, Call)
                    raise
                await self.pause(backoff_s(tried))
        except BaseException:
            if undo and is_unknown:
                await undo()
            raise
        raise AssertionError  # the last try has returned or raised

    async def quietly(self, call: Call) -> None:
        """One try, to tidy up: what fails ends by itself in time."""
        try:
            await self.ask_each(call)
        except WaitroomError as error:
            log.warning("not tidied up: %s", error)

    async def document(self, call: Call) -> Any:
        answer: Answer = await self.sent(call)
        return answer.document


def make_id() -> str:
    """A name that nobody else has: of a call, or of a holder."""
    return secrets.token_hex(12)


def backoff_s(tried: int) -> float:
    """With jitter, so that clients that failed together do not come back together."""
    longest_s = PAUSES_S[min(tried, len(PAUSES_S) - 1)]
    return longest_s * random.uniform(0.5, 1)  # noqa: S311
