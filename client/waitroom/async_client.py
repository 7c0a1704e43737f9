"""The asyncio client. Concurrent calls to the same limit share a request."""

import asyncio
import functools
import inspect
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any, ParamSpec, Protocol, Self, TypeAlias, TypeVar

from waitroom.batch import Batcher
from waitroom.core import Core, Wait
from waitroom.errors import RejectedError, UnavailableError
from waitroom.jobs import AsyncJobs
from waitroom.leases import AsyncLease
from waitroom.limits import (
    FieldValue,
    LimitMethods,
    make_acquirer,
    make_batch_acquire_request,
    make_release_request,
)
from waitroom.rooms import AsyncRooms
from waitroom.wire import AcquireCall, Document, OpenResponse, Replica, Request, Response, Wire

#: For each limit: the maximum number of calls in one request, and of concurrent requests.
MAX_BATCH_SIZE, MAX_REQUESTS = 100, 8

Params = ParamSpec("Params")
Returned = TypeVar("Returned")
AsyncFunction: TypeAlias = Callable[Params, Coroutine[Any, Any, Returned]]


class _Transport(Protocol):
    """Sends requests from the tasks of one event loop."""

    async def send(self, request: Request, replica: Replica) -> Response | OpenResponse: ...
    async def aclose(self) -> None: ...


class AsyncCore(Core):
    """Sends the requests of AsyncClient. Each wait suspends only the current task."""

    releases_interrupted_calls = True  # by the batcher

    def __init__(self, wire: Wire, retries: int) -> None:
        super().__init__(wire, retries)
        self._transport = _make_transport(wire)
        self._batchers: dict[str, Batcher[AcquireCall, Response]] = {}
        self._releases: set[asyncio.Task[None]] = set()

    async def send(self, request: Request, replica: Replica) -> Response | OpenResponse:
        return await self._transport.send(request, replica)

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def try_acquire_call(self, call: AcquireCall) -> Response:
        batcher = self._batchers.get(call.rule)
        if batcher is None:
            run = functools.partial(self._try_batch, call.rule)
            batcher = Batcher(
                run, max_size=MAX_BATCH_SIZE, max_senders=MAX_REQUESTS, on_unclaimed=self._release
            )
            self._batchers[call.rule] = batcher
        return await batcher.submit(call)

    @asynccontextmanager
    async def run_repeatedly(
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
            await batcher.wait_until_idle()
        await asyncio.gather(*self._releases)
        await self._transport.aclose()

    async def _try_batch(
        self, rule: str, calls: Sequence[AcquireCall]
    ) -> list[Response | Exception]:
        """Send several calls to one limit in one request. Return each call's response or error."""
        try:
            response = await self.try_replicas(make_batch_acquire_request(calls))
        except RejectedError as error:
            # If one call is invalid, the replica counts none of the batch: try each half by itself.
            if error.status not in {413, 422} or len(calls) == 1:
                return [error] * len(calls)
            half = len(calls) // 2
            first_half = await self._try_batch(rule, calls[:half])
            return first_half + await self._try_batch(rule, calls[half:])
        return [
            UnavailableError(f"limit {rule}: Redis is unavailable, and the rule refuses then")
            if document["outcome"] == "refused_alone"
            else response._replace(document=document)
            for document in response.document
        ]

    def _release(self, call: AcquireCall, response: Response) -> None:
        """Release a cancelled task's permit, unless the caller chose the id and may call again."""
        document: Document = response.document
        if call.has_generated_id and document["permit"]:
            request = make_release_request(
                call.rule, key=document["key"], permit=document["permit"]
            )
            task = asyncio.create_task(self.send_or_log(request))
            self._releases.add(task)
            task.add_done_callback(self._releases.discard)


class AsyncClient(LimitMethods):
    """A client for the tasks of one event loop, with the same methods as Client. If a task is
    cancelled while it waits, it releases its permit or reservation, or leaves the queue."""

    _core: AsyncCore

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
        super().__init__(AsyncCore(wire, retries))
        self.jobs, self.rooms = AsyncJobs(self._core), AsyncRooms(self._core)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Wait for responses, release the permits of cancelled tasks, and close all connections."""
        await self._core.aclose()

    def limited(
        self,
        rule: str,
        *,
        key: str | None = None,
        cost: int = 1,
        wait: Wait = None,
        **fields: FieldValue | Callable[..., FieldValue],
    ) -> Callable[[AsyncFunction[Params, Returned]], AsyncFunction[Params, Returned]]:
        """Return a decorator for async functions; see Client.limited."""
        acquire = make_acquirer(self._core, rule, key=key, cost=cost, wait=wait, fields=fields)

        def decorate(
            function: AsyncFunction[Params, Returned],
        ) -> AsyncFunction[Params, Returned]:
            if not inspect.iscoroutinefunction(function):
                raise TypeError(f"{function!r} is not async: use Client's limited")

            @functools.wraps(function)
            async def limited(*args: Params.args, **kwargs: Params.kwargs) -> Returned:
                await acquire(*args, **kwargs)
                return await function(*args, **kwargs)

            return limited

        return decorate

    @asynccontextmanager
    async def lease(
        self,
        template: str,
        resource: str,
        *,
        holder: str = "",
        wait: Wait = True,
        renew: bool = False,
    ) -> AsyncGenerator[AsyncLease, None]:
        """Hold a lease while the block runs; see Client.lease."""
        lease = AsyncLease(self._core, template, resource, holder)
        async with lease.hold(wait, renew=renew):
            yield lease


def _make_transport(wire: Wire) -> _Transport:
    """Return a transport that uses aiohttp if it is installed, and httpx2 otherwise."""
    try:  # imported here, so that Client and the command start faster
        from waitroom.aiohttp_transport import AiohttpTransport  # noqa: PLC0415
    except ImportError:
        from waitroom.httpx_transport import AsyncHttpxTransport  # noqa: PLC0415

        return AsyncHttpxTransport(wire)
    return AiohttpTransport(wire)
