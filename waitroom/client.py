"""The client for threads."""

import functools
import inspect
import os
import threading
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, closing, contextmanager
from typing import Any, ParamSpec, Self, TypeVar

import httpx

from waitroom.blocking import Shell, blocking, entered, entering, run
from waitroom.core import Core
from waitroom.jobs import AsyncJobs, Jobs
from waitroom.leases import Lease, holding
from waitroom.limits import Calls, Field, asking, call_of, fields_of_call, pass_one
from waitroom.rooms import AsyncRooms, Rooms
from waitroom.wire import Ask, Call, Document, Replica, Wire

P = ParamSpec("P")
R = TypeVar("R")


class Threads(Core):
    """What waits blocks its thread, so that no coroutine ever suspends."""

    def __init__(self, wire: Wire, retries: int) -> None:
        super().__init__(wire, retries)
        self._open()

    async def send(self, call: Call, replica: Replica) -> Any:
        if self._pid != os.getpid():  # after a fork: the connections are the parent's
            self._open()
        request = self._http.build_request(**self.wire.request(call, replica))
        try:
            response = self._http.send(request, stream=call.is_streamed)
            if not response.is_success:
                response.read()
        except httpx.TransportError as error:
            raise replica.unavailable(error) from error
        return replica.read(call, response)

    async def parts(self, response: httpx.Response) -> AsyncGenerator[bytes, None]:
        with closing(response):
            for part in response.iter_bytes():
                yield part

    async def pause(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 - of a thread

    async def ask(self, ask: Ask) -> Document:
        document: Document = (await self.ask_each(asking(ask))).document
        return document

    @asynccontextmanager
    async def repeating(
        self, act: Callable[[], Coroutine[Any, Any, None]], seconds: float
    ) -> AsyncGenerator[None, None]:
        stop = threading.Event()

        def repeat() -> None:
            while not stop.wait(seconds):
                run(act())

        thread = threading.Thread(target=repeat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def close(self) -> None:
        if self._pid == os.getpid():
            self._http.close()

    def _open(self) -> None:
        self._http, self._pid = httpx.Client(**self.wire.options(httpx.HTTPTransport)), os.getpid()


class Client(Shell[Calls]):
    """Any number of threads may share one. `address` is a replica's ops listener, such as
    http://127.0.0.1:8401 or unix:/run/waitroom/ops.sock, or a list of them; `token` its
    service_token, or for operators its admin_token. A request has `timeout` seconds, and while no
    replica answers all are tried again `retries` times. `operator`: who changes rooms, for the log.

    Every method raises RejectedError and UnavailableError.
    """

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
        self._core = Threads(wire, retries)
        super().__init__(Calls(self._core))
        self.jobs, self.rooms = Jobs(AsyncJobs(self._core)), Rooms(AsyncRooms(self._core))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._core.close()

    request = blocking(Calls.request)
    acquire = blocking(Calls.acquire)
    look = blocking(Calls.look)
    release = blocking(Calls.release)
    permit = contextmanager(entering(Calls.permit))

    def limited(
        self,
        rule: str,
        *,
        key: str | None = None,
        cost: int = 1,
        wait: bool = False,
        **fields: Field | Callable[..., Field],
    ) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """Each call of the function is one of the limit; see acquire. A field may be a function,
        which is given the same arguments: `biz=lambda order: order.biz`.

        It raises Refused; without `wait` also for a call that would have to wait for its moment.
        """

        def decorate(function: Callable[P, R]) -> Callable[P, R]:
            if inspect.iscoroutinefunction(function):
                raise TypeError(f"{function.__qualname__} is async: use AsyncClient's limited")

            @functools.wraps(function)
            def limited(*args: P.args, **kwargs: P.kwargs) -> R:
                call = call_of(rule, key, cost, fields_of_call(fields, args, kwargs))
                run(pass_one(self._core, rule, call, wait=wait))
                return function(*args, **kwargs)

            return limited

        return decorate

    @contextmanager
    def lease(
        self, template: str, resource: str, *, holder: str = "", wait: float | None = None
    ) -> Iterator[Lease]:
        """Holds a lease while the block runs, and queues for it for `wait` seconds: None, for as
        long as it takes; 0, not at all. A `holder` is one: all who use the same name have the
        same lease; without one, a name is made.

        Raises Queued, and Refused where the queue is full; at the end of a block that outlived the
        term, LeaseLost, unless the block raised something itself.
        """
        lease = Lease(self._core, template, resource, holder)
        with entered(holding(self._core, lease, wait)):
            yield lease
