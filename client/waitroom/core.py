"""Sends requests until a replica answers. Both clients share this code.

The methods are coroutines. Those of SyncCore (client.py) never suspend, so `waitroom.blocking`
can run each one to completion without an event loop. A coroutine that is interrupted, by
CancelledError or KeyboardInterrupt, may still send cleanup requests, for example to release a
permit.
"""

import logging
import math
import random
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeAlias

from waitroom.errors import UnavailableError, WaitroomError
from waitroom.wire import AcquireCall, OpenResponse, Replica, Request, Response, Wire

Undo = Callable[[], Coroutine[Any, Any, None]]
#: How long to wait: not at all (None or False), without limit (True), or for so many seconds.
Wait: TypeAlias = float | bool | None

log = logging.getLogger("waitroom")

#: The minimum time between two polls, in seconds. A replica that shuts down responds immediately.
MIN_POLL_S = 0.5
#: The maximum pause before the first, second and later retries, in seconds. The last one repeats.
PAUSES_S = (0.1, 0.4, 1.6, 5.0)


class Core(ABC):
    """Sends requests. If no replica answers, it tries all replicas again up to `retries` times."""

    #: True if try_acquire_call itself releases the permit of an interrupted call.
    releases_interrupted_calls = False

    def __init__(self, wire: Wire, retries: int) -> None:
        self.wire = wire
        self.retries = retries
        #: The index of the replica to try first, which is the one that answered last.
        self.preferred = 0

    @abstractmethod
    async def send(self, request: Request, replica: Replica) -> Response | OpenResponse:
        """Send a request to one replica. Return an OpenResponse if a streamed request succeeds."""

    @abstractmethod
    async def pause(self, seconds: float) -> None: ...

    @abstractmethod
    async def try_acquire_call(self, call: AcquireCall) -> Response:
        """Ask for permission for one call, trying each replica once. Calls may share a request."""

    @abstractmethod
    def run_repeatedly(
        self, act: Callable[[], Coroutine[Any, Any, None]], seconds: float
    ) -> AbstractAsyncContextManager[None]:
        """Call `act` every `seconds` during the block. At its end, let a started call finish."""

    def make_repeat_id(self) -> str:
        """Return an id that makes a call safe to repeat, or "" if this client repeats no calls."""
        return make_id() if self.retries > 0 or len(self.wire.replicas) > 1 else ""

    async def try_replicas(self, request: Request) -> Any:
        """Try each replica once until one answers, and return its response."""
        is_sent, preferred, replicas = False, self.preferred, self.wire.replicas
        for offset in range(len(replicas)):
            index = (preferred + offset) % len(replicas)
            sent_at = time.monotonic()
            try:
                response = await self.send(request, replicas[index])
            except UnavailableError as error:
                is_sent = error.is_sent = is_sent or error.is_sent
                if offset == len(replicas) - 1 or (is_sent and not request.is_repeatable):
                    raise
                log.debug("%s; the next replica is tried", error)
            else:
                self.preferred = index
                if isinstance(response, Response):
                    return response._replace(sent_at=sent_at)
                return response
        raise AssertionError  # the last iteration has returned or raised

    async def send_with_retries(self, call: Request | AcquireCall, undo: Undo | None = None) -> Any:
        """Send a request, and retry while no replica answers. Run `undo` if there is no response
        although a replica may have acted on the request."""
        may_have_effect = False
        try:
            for attempt in range(self.retries + 1):
                try:
                    if isinstance(call, AcquireCall):
                        return await self.try_acquire_call(call)
                    return await self.try_replicas(call)
                except UnavailableError as error:
                    log.debug("try %d: %s", attempt + 1, error)
                    may_have_effect = may_have_effect or error.is_sent
                    if attempt == self.retries or (error.is_sent and not call.is_repeatable):
                        raise
                except WaitroomError:
                    raise
                except BaseException:
                    is_released = isinstance(call, AcquireCall) and self.releases_interrupted_calls
                    may_have_effect = may_have_effect or not is_released
                    raise
                await self.pause(get_backoff_s(attempt))
        except BaseException:
            if undo and may_have_effect:
                await undo()
            raise
        raise AssertionError  # the last attempt has returned or raised

    async def send_or_log(self, request: Request) -> None:
        """Send a cleanup request without retries. Log any error, because permits expire anyway."""
        try:
            await self.try_replicas(request)
        except WaitroomError as error:
            log.warning("cleanup request failed: %s", error)

    async def call(self, request: Request) -> Any:
        """Send a request with retries. Return the document of the response."""
        response: Response = await self.send_with_retries(request)
        return response.document


def get_deadline(wait: Wait) -> float:
    """Return the time.monotonic() at which the wait ends."""
    return math.inf if wait is True else time.monotonic() + (wait or 0)


def make_id() -> str:
    """Return a new unique id for a call or a lease holder."""
    return secrets.token_hex(12)


def get_backoff_s(attempt: int) -> float:
    """Return the pause after an attempt (the first is 0). It is random, to spread retries."""
    longest_s = PAUSES_S[min(attempt, len(PAUSES_S) - 1)]
    return longest_s * random.uniform(0.5, 1)  # noqa: S311
