"""The client for tasks. Calls of one limit that come together go together."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, ParamSpec, Self, TypeVar

import httpx

from sidecar.client.answers import Held, Permit
from sidecar.client.batch import Batcher
from sidecar.client.errors import AwayError, RejectedError
from sidecar.client.flows import (
    Ask,
    Field,
    Flow,
    Flows,
    Pause,
    Step,
    asking,
    fields_of_call,
    giving_back,
    make_id,
)
from sidecar.client.wire import Answer, Call, Wire

#: Calls of one limit in one request, at most, and requests at a time.
BATCH = 100
FLIGHTS = 8

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
Document = dict[str, Any]


class AsyncLease(Held):
    """A lease that an `async with` block of AsyncWaitroom.lease holds."""

    def __init__(self, room: AsyncWaitroom, template: str, resource: str, holder: str) -> None:
        super().__init__(template, resource, holder)
        self._room = room

    async def renew(self) -> None:
        """As Lease.renew."""
        await self._room._drive(self._room._flows.renew(self))  # noqa: SLF001


class AsyncWaitroom:
    """As Waitroom, for the tasks of one event loop."""

    def __init__(
        self, address: str, *, token: str = "", timeout: float = 5, retries: int = 3
    ) -> None:
        self._wire = Wire(address, token, timeout)
        self._flows = Flows(retries)
        self._http = self._wire.async_client()
        self._batchers: dict[str, Batcher[Ask, Document]] = {}
        self._giving_back: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Waits for what is on its way; what nobody waits for any more is given back first."""
        for batcher in self._batchers.values():
            await batcher.landed()
        await asyncio.gather(*self._giving_back)
        await self._http.aclose()

    async def acquire(
        self,
        rule: str,
        *,
        key: str | None = None,
        cost: int = 1,
        id: str = "",  # noqa: A002 - the API's word
        wait: bool = False,
        **fields: Field,
    ) -> Permit:
        """As Waitroom.acquire. A task that is cancelled meanwhile gives its moment back."""
        ask = self._flows.ask(rule, fields, key, cost=cost, name=id)
        return await self._drive(self._flows.acquire(ask, wait=wait))

    async def look(self, rule: str, *, key: str | None = None, **fields: Field) -> Permit:
        return await self._drive(self._flows.look(rule, fields, key))

    async def release(self, permit: Permit) -> bool:
        """As Waitroom.release."""
        return await self._drive(self._flows.release(permit))

    def limited(
        self,
        rule: str,
        *,
        key: str | None = None,
        cost: int = 1,
        wait: bool = False,
        **fields: Field | Callable[..., Field],
    ) -> Callable[[Callable[P, Awaitable[R]]], Callable[P, Coroutine[Any, Any, R]]]:
        """As Waitroom.limited, for async functions."""

        def decorate(function: Callable[P, Awaitable[R]]) -> Callable[P, Coroutine[Any, Any, R]]:
            if not inspect.iscoroutinefunction(function):
                raise TypeError(f"{function!r} is not async: use Waitroom's limited")

            @functools.wraps(function)
            async def limited(*args: P.args, **kwargs: P.kwargs) -> R:
                told = fields_of_call(fields, args, kwargs)
                ask = self._flows.ask(rule, told, key, cost=cost)
                await self._drive(self._flows.acquire_to_go(ask, wait=wait))
                return await function(*args, **kwargs)

            return limited

        return decorate

    @asynccontextmanager
    async def permit(
        self,
        rule: str,
        *,
        key: str | None = None,
        cost: int = 1,
        wait: bool = False,
        **fields: Field,
    ) -> AsyncIterator[Permit]:
        """As Waitroom.permit."""
        ask = self._flows.ask(rule, fields, key, cost=cost, is_kept=True)
        permit = await self._drive(self._flows.acquire_one_of(ask, wait=wait))
        try:
            async with self._kept(ask, permit):
                yield permit
        finally:
            await self._drive(self._flows.give_back(permit))

    @asynccontextmanager
    async def lease(
        self, template: str, resource: str, *, holder: str = "", wait: float | None = None
    ) -> AsyncIterator[AsyncLease]:
        """As Waitroom.lease. A task that is cancelled while it waits leaves the line."""
        lease = AsyncLease(self, template, resource, holder or make_id())
        await self._drive(self._flows.take(lease, wait))
        try:
            yield lease
            lease.check()
        finally:
            await self._drive(self._flows.give_up(lease))

    @asynccontextmanager
    async def _kept(self, ask: Ask, permit: Permit) -> AsyncIterator[None]:
        if not permit.permit or not permit.expires_in_seconds:
            yield
            return
        stop = asyncio.Event()

        async def sleep(seconds: float) -> None:
            try:
                await asyncio.wait_for(stop.wait(), seconds)
            except TimeoutError:
                return
            raise _Stopped

        async def keep(lease_s: float) -> None:
            with suppress(_Stopped):
                await self._drive(self._flows.keep(ask, lease_s), sleep)

        keeper = asyncio.create_task(keep(permit.expires_in_seconds))
        try:
            yield
        finally:
            stop.set()
            # What it still asks for must not come after the permit is given back.
            await keeper

    async def _drive(
        self, flow: Flow[T], sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> T:
        try:
            step = next(flow)
            while True:
                try:
                    answer = await self._do(step, sleep)
                except BaseException as error:  # noqa: BLE001 - the flow's to handle
                    step = flow.throw(error)
                else:
                    step = flow.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result

    async def _do(self, step: Step, sleep: Callable[[float], Awaitable[None]]) -> Any:
        if isinstance(step, Pause):
            return await sleep(step.seconds)
        if isinstance(step, Ask):
            return await self._batcher(step.rule).submit(step)
        return await self._send(step)

    async def _send(self, call: Call) -> Answer:
        try:
            reply = await self._http.request(
                call.method, call.path, params=call.query, content=call.content
            )
        except httpx.TransportError as error:
            raise self._wire.away(error) from error
        return self._wire.read(call, reply.status_code, reply.content)

    def _batcher(self, rule: str) -> Batcher[Ask, Document]:
        batcher = self._batchers.get(rule)
        if batcher is None:
            batcher = self._batchers[rule] = Batcher(
                functools.partial(self._ask_all, rule),
                limit=BATCH,
                flights=FLIGHTS,
                unseen=self._unseen,
            )
        return batcher

    async def _ask_all(self, rule: str, asks: Sequence[Ask]) -> list[Document | Exception]:
        """A document for each, or what is wrong with it."""
        call = asking(rule, [ask.call for ask in asks])
        try:
            documents = (await self._send(call)).document
        except RejectedError as error:
            # Nothing was counted: one of them is wrong, and the others are to have their answers.
            if error.status not in {413, 422} or len(asks) == 1:
                return [error] * len(asks)
            half = len(asks) // 2
            first = await self._ask_all(rule, asks[:half])
            return first + await self._ask_all(rule, asks[half:])
        return [
            AwayError(f"limit {rule}: the replica has no store, and the rule refuses then")
            if document["outcome"] == "refused_alone"
            else document
            for document in documents
        ]

    def _unseen(self, ask: Ask, document: Document) -> None:
        """Gives back what a task was granted that is gone. What has the caller's own name stays:
        they may be back for it already."""
        if not ask.is_own or not document["permit"]:
            return
        permit = Permit.read(ask.rule, document)
        task = asyncio.create_task(self._drive(self._flows.quietly(giving_back(permit))))
        self._giving_back.add(task)
        task.add_done_callback(self._giving_back.discard)


class _Stopped(Exception):  # noqa: N818
    """A task that kept a permit has nothing to do any more."""
