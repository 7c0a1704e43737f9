"""The client for threads."""

from __future__ import annotations

import functools
import inspect
import os
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, Unpack

import httpx

from waitroom import core, jobs, leases, limits, rooms
from waitroom.core import Ask, Core, Field, Flow, Pause, Step, blocking, make_id
from waitroom.limits import fields_of_call, make_ask
from waitroom.model import Held, Job, Permit
from waitroom.wire import Call, Wire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from waitroom.jobs import JobRequest

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class Lease(Held):
    """A lease that a `with` block of Client.lease holds."""

    def __init__(self, client: Client, template: str, resource: str, holder: str) -> None:
        super().__init__(template, resource, holder)
        self._client = client

    def renew(self) -> None:
        """The term begins anew. Raises LeaseLost; RejectedError where it may not be renewed, and
        ends when it said."""
        self._client.drive(leases.renew(self._client.core, self))


class Client:
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
        self._wire = Wire(address, token=token, operator=operator, timeout_s=timeout)
        self.core = Core(self._wire.replicas, retries)
        self._http, self._pid = self._wire.client(), os.getpid()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._pid == os.getpid():
            self._http.close()

    @property
    def jobs(self) -> Jobs:
        return Jobs(self)

    @property
    def rooms(self) -> Rooms:
        return Rooms(self)

    request = blocking(core.request)
    acquire = blocking(limits.acquire)
    look = blocking(limits.look)
    release = blocking(limits.release)

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
                values = fields_of_call(fields, args, kwargs)
                ask = make_ask(self.core, rule, values, key, cost=cost)
                self.drive(limits.acquire_to_go(self.core, ask, wait=wait))
                return function(*args, **kwargs)

            return limited

        return decorate

    @contextmanager
    def permit(
        self,
        rule: str,
        *,
        key: str | None = None,
        cost: int = 1,
        wait: bool = False,
        **fields: Field,
    ) -> Iterator[Permit]:
        """Holds a permit of a concurrency limit: kept while the block runs, given back at its end.
        With `wait`, it asks again until there is one, in no order. Is a decorator too.

        Raises Refused.
        """
        ask = make_ask(self.core, rule, fields, key, cost=cost, is_kept=True)
        permit = self.drive(limits.acquire_one_of(self.core, ask, wait=wait))
        try:
            with self._kept(ask, permit):
                yield permit
        finally:
            self.drive(limits.give_back(self.core, permit))

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
        lease = Lease(self, template, resource, holder or make_id())
        self.drive(leases.take(self.core, lease, wait))
        try:
            yield lease
            lease.check()
        finally:
            self.drive(leases.give_up(self.core, lease))

    @contextmanager
    def _kept(self, ask: Ask, permit: Permit) -> Iterator[None]:
        if not permit.permit or not permit.expires_in_seconds:
            yield
            return
        stop = threading.Event()

        def sleep(seconds: float) -> None:
            if stop.wait(seconds):
                raise _Stopped

        def keep(lease_s: float) -> None:
            with suppress(_Stopped):
                self.drive(limits.keep(self.core, ask, lease_s), sleep)

        thread = threading.Thread(target=keep, args=(permit.expires_in_seconds,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            # What it still asks for must not come after the permit is given back.
            thread.join()

    def drive(self, flow: Flow[T], sleep: Callable[[float], None] = time.sleep) -> T:
        try:
            step = next(flow)
            while True:
                try:
                    answer = self._do(step, sleep)
                except BaseException as error:  # noqa: BLE001 - the flow's to handle
                    step = flow.throw(error)
                else:
                    step = flow.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result

    def _do(self, step: Step, sleep: Callable[[float], None]) -> Any:
        if isinstance(step, Pause):
            return sleep(step.seconds)
        if isinstance(step, Ask):
            return self.drive(self.core.ask_each(limits.asking(step))).document
        http, request = self._connected(), self._wire.request(step.call, step.replica)
        try:
            if not step.is_streamed:
                reply = http.request(**request)
            else:
                reply = http.send(http.build_request(**request), stream=True)
                if reply.is_success:
                    return reply
                reply.read()
        except httpx.TransportError as error:
            raise step.replica.unavailable(error) from error
        return step.replica.read(step.call, reply.status_code, reply.content)

    def _connected(self) -> httpx.Client:
        if self._pid != os.getpid():  # after a fork: the connections are the parent's
            self._http, self._pid = self._wire.client(), os.getpid()
        return self._http


class _Section:
    """Some of a client's methods."""

    def __init__(self, client: Client) -> None:
        self.core, self.drive = client.core, client.drive


class Jobs(_Section):
    """Calls that wait for their turn at a target."""

    submit = blocking(jobs.submit)
    get = blocking(jobs.get)
    wait = blocking(jobs.wait)
    cancel = blocking(jobs.cancel)
    retry = blocking(jobs.retry)
    done = blocking(jobs.done)

    def iterate(
        self, *, target: str | None = None, state: str | None = None, page_size: int = jobs.PAGE
    ) -> Iterator[Job]:
        """The token's jobs, newest first; with the admin_token all."""
        after: str | None = ""
        while after is not None:
            page = self.drive(jobs.page(self.core, target, state, after, page_size))
            yield from page["jobs"]
            after = page["next"]

    def results(self, ids: Iterable[str]) -> Iterator[Job]:
        """Each job as soon as it has ended, or was called. Asks for all every two seconds."""
        left = dict.fromkeys(ids)
        while left:
            for job in self.drive(jobs.wait_for_some(self.core, left)):
                del left[job["id"]]
                yield job

    def body(self, id: str) -> Iterator[bytes]:  # noqa: A002 - the API's word
        """The result's body as it came, of any size."""
        replica, response = self.drive(self.core.opened(Call("GET", jobs.body_path(id))))
        try:
            yield from response.iter_bytes()
        except httpx.TransportError as error:
            raise replica.unavailable(error) from error
        finally:
            response.close()

    @contextmanager
    def permit(
        self, target: str, *, wait: float | None = None, **request: Unpack[JobRequest]
    ) -> Iterator[Job]:
        """Holds an online job's permit while the block runs: the block makes the call, with
        `job["permit"]` in the header X-Waitroom-Permit. Queues for it for `wait` seconds; None, for
        as long as it takes.

        Raises Queued, and Refused where the queue is full.
        """
        job = self.drive(jobs.take_permit(self.core, target, wait, request))
        try:
            yield job
        finally:
            self.drive(jobs.give_permit_back(self.core, job))


class Rooms(_Section):
    """Rooms, for operators: with the admin_token."""

    list = blocking(rooms.list_all)
    get = blocking(rooms.get)
    update = blocking(rooms.update)
    pause = blocking(rooms.pause)
    drain = blocking(rooms.drain)
    resume = blocking(rooms.resume)
    reset = blocking(rooms.reset)
    find = blocking(rooms.find)
    release = blocking(rooms.release)
    move = blocking(rooms.move)
    set_class = blocking(rooms.set_class)
    log = blocking(rooms.log)


class _Stopped(Exception):  # noqa: N818
    """A thread that kept a permit has nothing to do any more."""
