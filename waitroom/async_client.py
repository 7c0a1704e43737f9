"""The client for tasks. Calls of one limit that come together go together."""

from __future__ import annotations

import asyncio
import functools
import inspect
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, Unpack

import httpx

from waitroom import core, jobs, leases, limits, rooms
from waitroom.batch import Batcher
from waitroom.core import Ask, Core, Field, Flow, Pause, Step, awaiting, make_id
from waitroom.errors import RejectedError, UnavailableError
from waitroom.limits import fields_of_call, make_ask
from waitroom.model import Held, Job, Permit
from waitroom.wire import Call, Wire

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Sequence

    from waitroom.jobs import JobRequest

#: Calls of one limit in one request, at most, and requests at a time.
BATCH = 100
FLIGHTS = 8

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
Document = dict[str, Any]


class AsyncLease(Held):
    """A lease that an `async with` block of AsyncClient.lease holds."""

    def __init__(self, client: AsyncClient, template: str, resource: str, holder: str) -> None:
        super().__init__(template, resource, holder)
        self._client = client

    async def renew(self) -> None:
        """As Lease.renew."""
        await self._client.drive(leases.renew(self._client.core, self))


class AsyncClient:
    """As Client, for the tasks of one event loop. A task that is cancelled while it waits gives
    back its moment, or leaves the queue."""

    def __init__(
        self,
        address: str | Sequence[str],
        *,
        token: str = "",
        timeout: float = 5,
        retries: int = 3,
        operator: str = "",
    ) -> None:
        self._wire = Wire(address, token=token, operator=operator, timeout_s=timeout)
        self.core = Core(self._wire.replicas, retries)
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

    @property
    def jobs(self) -> AsyncJobs:
        return AsyncJobs(self)

    @property
    def rooms(self) -> AsyncRooms:
        return AsyncRooms(self)

    request = awaiting(core.request)
    acquire = awaiting(limits.acquire)
    look = awaiting(limits.look)
    release = awaiting(limits.release)

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
                values = fields_of_call(fields, args, kwargs)
                ask = make_ask(self.core, rule, values, key, cost=cost)
                await self.drive(limits.acquire_to_go(self.core, ask, wait=wait))
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
        """As Client.permit."""
        ask = make_ask(self.core, rule, fields, key, cost=cost, is_kept=True)
        permit = await self.drive(limits.acquire_one_of(self.core, ask, wait=wait))
        try:
            async with self._kept(ask, permit):
                yield permit
        finally:
            await self.drive(limits.give_back(self.core, permit))

    @asynccontextmanager
    async def lease(
        self, template: str, resource: str, *, holder: str = "", wait: float | None = None
    ) -> AsyncIterator[AsyncLease]:
        """As Client.lease."""
        lease = AsyncLease(self, template, resource, holder or make_id())
        await self.drive(leases.take(self.core, lease, wait))
        try:
            yield lease
            lease.check()
        finally:
            await self.drive(leases.give_up(self.core, lease))

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
                await self.drive(limits.keep(self.core, ask, lease_s), sleep)

        renewal = asyncio.create_task(keep(permit.expires_in_seconds))
        try:
            yield
        finally:
            stop.set()
            # What it still asks for must not come after the permit is given back.
            await renewal

    async def drive(
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
        http, request = self._http, self._wire.request(step.call, step.replica)
        try:
            if not step.is_streamed:
                reply = await http.request(**request)
            else:
                reply = await http.send(http.build_request(**request), stream=True)
                if reply.is_success:
                    return reply
                await reply.aread()
        except httpx.TransportError as error:
            raise step.replica.unavailable(error) from error
        return step.replica.read(step.call, reply.status_code, reply.content)

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
        try:
            answer = await self.drive(self.core.ask_each(limits.asking_all(asks)))
        except RejectedError as error:
            # Nothing was counted: one of them is wrong, and the others are to have their answers.
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

    def _unseen(self, ask: Ask, document: Document) -> None:
        """Gives back what a task was granted that is gone. What has the caller's own name stays:
        they may be back for it already."""
        if not ask.is_own or not document["permit"]:
            return
        permit = Permit.read(ask.rule, document)
        task = asyncio.create_task(self.drive(self.core.quietly(limits.giving_back(permit))))
        self._giving_back.add(task)
        task.add_done_callback(self._giving_back.discard)


class _Section:
    """Some of a client's methods."""

    def __init__(self, client: AsyncClient) -> None:
        self.core, self.drive = client.core, client.drive


class AsyncJobs(_Section):
    """As Jobs."""

    submit = awaiting(jobs.submit)
    get = awaiting(jobs.get)
    wait = awaiting(jobs.wait)
    cancel = awaiting(jobs.cancel)
    retry = awaiting(jobs.retry)
    done = awaiting(jobs.done)

    async def iterate(
        self, *, target: str | None = None, state: str | None = None, page_size: int = jobs.PAGE
    ) -> AsyncIterator[Job]:
        """As Jobs.iterate."""
        after: str | None = ""
        while after is not None:
            page = await self.drive(jobs.page(self.core, target, state, after, page_size))
            for job in page["jobs"]:
                yield job
            after = page["next"]

    async def results(self, ids: Iterable[str]) -> AsyncIterator[Job]:
        """As Jobs.results."""
        left = dict.fromkeys(ids)
        while left:
            for job in await self.drive(jobs.wait_for_some(self.core, left)):
                del left[job["id"]]
                yield job

    async def body(self, id: str) -> AsyncIterator[bytes]:  # noqa: A002 - the API's word
        """As Jobs.body."""
        replica, response = await self.drive(self.core.opened(Call("GET", jobs.body_path(id))))
        try:
            async for part in response.aiter_bytes():
                yield part
        except httpx.TransportError as error:
            raise replica.unavailable(error) from error
        finally:
            await response.aclose()

    @asynccontextmanager
    async def permit(
        self, target: str, *, wait: float | None = None, **request: Unpack[JobRequest]
    ) -> AsyncIterator[Job]:
        """As Jobs.permit. A task that is cancelled while it queues leaves the
        queue; cancelled while it submits, its place runs out by itself."""
        job = await self.drive(jobs.take_permit(self.core, target, wait, request))
        try:
            yield job
        finally:
            await self.drive(jobs.give_permit_back(self.core, job))


class AsyncRooms(_Section):
    """As Rooms."""

    list = awaiting(rooms.list_all)
    get = awaiting(rooms.get)
    update = awaiting(rooms.update)
    pause = awaiting(rooms.pause)
    drain = awaiting(rooms.drain)
    resume = awaiting(rooms.resume)
    reset = awaiting(rooms.reset)
    find = awaiting(rooms.find)
    release = awaiting(rooms.release)
    move = awaiting(rooms.move)
    set_class = awaiting(rooms.set_class)
    log = awaiting(rooms.log)


class _Stopped(Exception):  # noqa: N818
    """A task that kept a permit has nothing to do any more."""
