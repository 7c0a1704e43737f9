"""The client for asyncio. Simultaneous calls of one limit share a request."""

import asyncio
import functools
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any, ParamSpec, Self, TypeVar

import httpx

from waitroom.batch import Batcher
from waitroom.core import Core
from waitroom.errors import RejectedError, UnavailableError
from waitroom.jobs import AsyncJobs
from waitroom.leases import AsyncLease
from waitroom.limits import (
    Field,
    LimitMethods,
    asking_all,
    call_of,
    evaluate,
    giving_back,
    pass_one,
)
from waitroom.model import Permit
from waitroom.rooms import AsyncRooms
from waitroom.wire import Document, LimitCall, Replica, Request, Wire

#: The most calls of one limit in one request, and requests at a time.
BATCH = 100
FLIGHTS = 8

P = ParamSpec("P")
R = TypeVar("R")


class Tasks(Core):
    """Sends requests from tasks: waiting suspends the task."""

    def __init__(self, wire: Wire, retries: int) -> None:
        super().__init__(wire, retries)
        self._http = httpx.AsyncClient(**wire.options(httpx.AsyncHTTPTransport))
        self._batchers: dict[str, Batcher[LimitCall, Document]] = {}
        self._giving_back: set[asyncio.Task[None]] = set()

    async def send(self, call: Request, replica: Replica) -> Any:
        request = self._http.build_request(**self.wire.request(call, replica))
        try:
            response = await self._http.send(request, stream=call.is_streamed)
            if not response.is_success:
                await response.aread()
        except httpx.TransportError as error:
            raise replica.unavailable(error) from error
        return replica.read(call, response)

    async def parts(self, response: httpx.Response) -> AsyncGenerator[bytes, None]:
        try:
            async for part in response.aiter_bytes():
                yield part
        finally:
            await response.aclose()

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def ask(self, ask: LimitCall) -> Document:
        batcher = self._batchers.get(ask.rule)
        if batcher is None:
            run = functools.partial(self._ask_all, ask.rule)
            batcher = Batcher(run, limit=BATCH, flights=FLIGHTS, unseen=self._unseen)
            self._batchers[ask.rule] = batcher
        return await batcher.submit(ask)

    @asynccontextmanager
    async def repeating(
        self, act: Callable[[], Coroutine[Any, Any, None]], seconds: float
    ) -> AsyncGenerator[None, None]:
        stop = asyncio.Event()

        async def repeat() -> None:
            while True:
                try:
                    await asyncio.wait_for(stop.wait(), seconds)
                except TimeoutError:
                    await act()
                else:
                    return

        task = asyncio.create_task(repeat())
        try:
            yield
        finally:
            stop.set()
            await task

    async def aclose(self) -> None:
        for batcher in self._batchers.values():
            await batcher.landed()
        await asyncio.gather(*self._giving_back)
        await self._http.aclose()

    async def _ask_all(self, rule: str, asks: Sequence[LimitCall]) -> list[Document | Exception]:
        """Send calls of one limit together. Return each call's document or error."""
        try:
            answer = await self.ask_each(asking_all(asks))
        except RejectedError as error:
            # Nothing was counted, because one call is wrong: ask again without it.
            if error.status not in {413, 422} or len(asks) == 1:
                return [error] * len(asks)
            half = len(asks) // 2
            first = await self._ask_all(rule, asks[:half])
            return first + await self._ask_all(rule, asks[half:])
        return [
            UnavailableError(f"limit {rule}: Redis is unavailable, and the rule refuses then")
            if document["outcome"] == "refused_alone"
            else document
            for document in answer.document
        ]

    def _unseen(self, ask: LimitCall, document: Document) -> None:
        """Give back the permit of a cancelled task, unless the call has an id of the caller's, who
        may ask for it again."""
        if not ask.is_own or not document["permit"]:
            return
        permit = Permit.read(ask.rule, document)
        task = asyncio.create_task(self.quietly(giving_back(permit)))
        self._giving_back.add(task)
        task.add_done_callback(self._giving_back.discard)


class AsyncClient(LimitMethods):
    """As Client, for the tasks of one event loop. A task that is cancelled while waiting gives back
    its moment, or leaves the queue."""

    _core: Tasks

    def __init__(
        self,
        address: str | Sequence[str],
        *,
        token: str = "",
        timeout: float = 5,
        retries: int = 3,
        operator: str = "",
    ) -> None:
        wire = Wire(address, token=token, operator=operator, timeout_s=timeout)
        super().__init__(Tasks(wire, retries))
        self.jobs, self.rooms = AsyncJobs(self._core), AsyncRooms(self._core)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Wait for requests on their way, give back permits of cancelled tasks, and close."""
        await self._core.aclose()

    def limited(
        self,
        rule: str,
        *,
        key: str | None = None,
        cost: int = 1,
        wait: bool = False,
        **fields: Field | Callable[..., Field],
    ) -> Callable[[Callable[P, Awaitable[R]]], Callable[P, Coroutine[Any, Any, R]]]:
        """As Client.limited, for async functions."""

        def decorate(function: Callable[P, Awaitable[R]]) -> Callable[P, Coroutine[Any, Any, R]]:
            if not inspect.iscoroutinefunction(function):
                raise TypeError(f"{function!r} is not async: use Client's limited")

            @functools.wraps(function)
            async def limited(*args: P.args, **kwargs: P.kwargs) -> R:
                call = call_of(rule, key, cost, evaluate(fields, args, kwargs))
                await pass_one(self._core, rule, call, wait=wait)
                return await function(*args, **kwargs)

            return limited

        return decorate

    @asynccontextmanager
    async def lease(
        self, template: str, resource: str, *, holder: str = "", wait: float | None = None
    ) -> AsyncGenerator[AsyncLease, None]:
        """As Client.lease."""
        lease = AsyncLease(self._core, template, resource, holder)
        async with lease.hold(wait):
            yield lease
