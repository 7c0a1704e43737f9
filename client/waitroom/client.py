"""The blocking client, which threads can share."""

import functools
import inspect
import os
import threading
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, ParamSpec, Self, TypeVar

from waitroom.blocking import BlockingMethods, blocking, blocking_context, enter_blocking, run
from waitroom.core import Core, Wait
from waitroom.httpx_transport import HttpxTransport
from waitroom.jobs import AsyncJobs, Jobs
from waitroom.leases import Lease
from waitroom.limits import FieldValue, LimitMethods, make_acquire_request, make_acquirer
from waitroom.rooms import AsyncRooms, Rooms
from waitroom.wire import AcquireCall, OpenResponse, Replica, Request, Response, Wire

Params = ParamSpec("Params")
Returned = TypeVar("Returned")


class SyncCore(Core):
    """Sends requests from threads. Each wait blocks the thread, so no coroutine ever suspends."""

    def __init__(self, wire: Wire, retries: int) -> None:
        super().__init__(wire, retries)
        self._open_connections()

    async def send(self, request: Request, replica: Replica) -> Response | OpenResponse:
        if self._pid != os.getpid():  # after a fork, the connections belong to the parent
            self._open_connections()
        return await self._transport.send(request, replica)

    async def pause(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 - blocks a thread, not an event loop

    async def try_acquire_call(self, call: AcquireCall) -> Response:
        response: Response = await self.try_replicas(make_acquire_request(call))
        return response

    @asynccontextmanager
    async def run_repeatedly(
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
            self._transport.close()

    def _open_connections(self) -> None:
        self._transport = HttpxTransport(self.wire)
        self._pid = os.getpid()


class Client(BlockingMethods[LimitMethods]):
    """A blocking client, which any number of threads may share. Every method may raise
    RejectedError or UnavailableError.

    Args:
        address: A replica's ops listener, such as http://127.0.0.1:8401 or
            unix:/run/waitroom/ops.sock, or a list of them.
        token: The replica's service_token, or for operators its admin_token.
        timeout: Seconds for one request.
        retries: How many times to try all replicas again if none answers.
        operator: Your name, for the log of each room that you change.
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
        self._core = SyncCore(wire, retries)
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
    permit = contextmanager(blocking_context(LimitMethods.permit))

    def limited(
        self,
        rule: str,
        *,
        key: str | None = None,
        cost: int = 1,
        wait: Wait = None,
        **fields: FieldValue | Callable[..., FieldValue],
    ) -> Callable[[Callable[Params, Returned]], Callable[Params, Returned]]:
        """Return a decorator. The decorated function acquires permission before each call, as
        `acquire` does. A field may be a function of the call's arguments, such as
        `biz=lambda order: order.biz`.

        The decorated function raises TimeoutError. Without `wait`, it raises Refused, even if the
        call would only have to wait.
        """
        acquire = make_acquirer(self._core, rule, key=key, cost=cost, wait=wait, fields=fields)

        def decorate(function: Callable[Params, Returned]) -> Callable[Params, Returned]:
            if inspect.iscoroutinefunction(function):
                raise TypeError(f"{function.__qualname__} is async: use AsyncClient's limited")

            @functools.wraps(function)
            def limited(*args: Params.args, **kwargs: Params.kwargs) -> Returned:
                run(acquire(*args, **kwargs))
                return function(*args, **kwargs)

            return limited

        return decorate

    @contextmanager
    def lease(
        self,
        template: str,
        resource: str,
        *,
        holder: str = "",
        wait: Wait = True,
        renew: bool = False,
    ) -> Iterator[Lease]:
        """Hold a lease while the block runs. `wait` limits the time in the queue. All clients with
        the same `holder` share one lease. By default the holder is a new id. With `renew`, a thread
        renews the lease whenever a third of its term has passed.

        Raises Queued if the lease is not granted in time, Refused if the queue is full, and
        LeaseLost after a block that ran longer than the term, unless the block itself raised.
        """
        lease = Lease(self._core, template, resource, holder)
        with enter_blocking(lease.hold(wait, renew=renew)):
            yield lease
