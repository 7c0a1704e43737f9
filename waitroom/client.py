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
from waitroom.leases import Lease
from waitroom.limits import Field, LimitMethods, asking, call_of, evaluate, pass_one
from waitroom.rooms import AsyncRooms, Rooms
from waitroom.wire import Document, LimitCall, Replica, Request, Wire

P = ParamSpec("P")
R = TypeVar("R")


class Threads(Core):
    """Sends requests from threads: waiting blocks the thread, so no coroutine ever suspends."""

    def __init__(self, wire: Wire, retries: int) -> None:
        super().__init__(wire, retries)
        self._open()

    async def send(self, call: Request, replica: Replica) -> Any:
        if self._pid != os.getpid():  # after a fork, the connections belong to the parent
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

    async def ask(self, ask: LimitCall) -> Document:
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


class Client(Shell[LimitMethods]):
    """A client that any number of threads may share. Every method raises RejectedError and
    UnavailableError.

    Args:
        address: A replica's ops listener, such as http://127.0.0.1:8401 or
            unix:/run/waitroom/ops.sock, or a list of them.
        token: The replica's service_token, or for operators its admin_token.
        timeout: Seconds for one request.
        retries: How often all replicas are tried again while none answers.
        operator: Your name in the log of a room that you change.
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
        super().__init__(LimitMethods(self._core))
        self.jobs, self.rooms = Jobs(AsyncJobs(self._core)), Rooms(AsyncRooms(self._core))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._core.close()

    request = blocking(LimitMethods.request)
    acquire = blocking(LimitMethods.acquire)
    look = blocking(LimitMethods.look)
    release = blocking(LimitMethods.release)
    permit = contextmanager(entering(LimitMethods.permit))

    def limited(
        self,
        rule: str,
        *,
        key: str | None = None,
        cost: int = 1,
        wait: bool = False,
        **fields: Field | Callable[..., Field],
    ) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """Decorate a function so that each call of it is a call of the limit; see acquire. A field
        may be a function of the same arguments: `biz=lambda order: order.biz`.

        The function raises Refused; without `wait` also if the call would have to wait.
        """

        def decorate(function: Callable[P, R]) -> Callable[P, R]:
            if inspect.iscoroutinefunction(function):
                raise TypeError(f"{function.__qualname__} is async: use AsyncClient's limited")

            @functools.wraps(function)
            def limited(*args: P.args, **kwargs: P.kwargs) -> R:
                call = call_of(rule, key, cost, evaluate(fields, args, kwargs))
                run(pass_one(self._core, rule, call, wait=wait))
                return function(*args, **kwargs)

            return limited

        return decorate

    @contextmanager
    def lease(
        self, template: str, resource: str, *, holder: str = "", wait: float | None = None
    ) -> Iterator[Lease]:
        """Hold a lease while the block runs. Queue for it for `wait` seconds; None: without limit.
        Everybody who uses the same `holder` has the same lease; by default a new name is made.

        Raises Queued, Refused if the queue is full, and LeaseLost at the end of a block that
        outlived the term, unless the block itself raised.
        """
        lease = Lease(self._core, template, resource, holder)
        with entered(lease.hold(wait)):
            yield lease
