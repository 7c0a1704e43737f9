"""The client for threads."""

from __future__ import annotations

import functools
import inspect
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, ParamSpec, Self, TypeVar

import httpx

from sidecar.client.answers import Held, Permit
from sidecar.client.flows import (
    Ask,
    Field,
    Flow,
    Flows,
    Pause,
    Step,
    asking,
    fields_of_call,
    make_id,
)
from sidecar.client.wire import Answer, Call, Wire

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class Lease(Held):
    """A lease that a `with` block of Waitroom.lease holds."""

    def __init__(self, room: Waitroom, template: str, resource: str, holder: str) -> None:
        super().__init__(template, resource, holder)
        self._room = room

    def renew(self) -> None:
        """The term begins anew. Raises LeaseLost; RejectedError where it may not be renewed, and
        ends when it said."""
        self._room._drive(self._room._flows.renew(self))  # noqa: SLF001 - one thing in two classes


class Waitroom:
    """Any number of threads may share one. `address` is a replica's ops listener, such as
    http://127.0.0.1:8401 or unix:/run/waitroom/ops.sock; `token` its service_token. A request has
    `timeout` seconds, and is tried again `retries` times while no replica answers.

    Every method raises RejectedError and AwayError.
    """

    def __init__(
        self, address: str, *, token: str = "", timeout: float = 5, retries: int = 3
    ) -> None:
        self._wire = Wire(address, token, timeout)
        self._flows = Flows(retries)
        self._http, self._pid = self._wire.client(), os.getpid()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._pid == os.getpid():
            self._http.close()

    def acquire(
        self,
        rule: str,
        *,
        key: str | None = None,
        cost: int = 1,
        id: str = "",  # noqa: A002 - the API's word
        wait: bool = False,
        **fields: Field,
    ) -> Permit:
        """Leave for one call, of the limit's `fields` or of a whole `key`. With `wait`, it comes
        when the call may go; else `wait_seconds` says when that is. The same `id` asked for again
        is the same call.

        Raises Refused.
        """
        ask = self._flows.ask(rule, fields, key, cost=cost, name=id)
        return self._drive(self._flows.acquire(ask, wait=wait))

    def look(self, rule: str, *, key: str | None = None, **fields: Field) -> Permit:
        """What a call would be told now. Nothing is taken."""
        return self._drive(self._flows.look(rule, fields, key))

    def release(self, permit: Permit) -> bool:
        """Gives back a moment that is yet to come, or a permit of a concurrency limit. Whether
        there was something to give back; twice equals once."""
        return self._drive(self._flows.release(permit))

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
                raise TypeError(f"{function.__qualname__} is async: use AsyncWaitroom's limited")

            @functools.wraps(function)
            def limited(*args: P.args, **kwargs: P.kwargs) -> R:
                told = fields_of_call(fields, args, kwargs)
                ask = self._flows.ask(rule, told, key, cost=cost)
                self._drive(self._flows.acquire_to_go(ask, wait=wait))
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
        ask = self._flows.ask(rule, fields, key, cost=cost, is_kept=True)
        permit = self._drive(self._flows.acquire_one_of(ask, wait=wait))
        try:
            with self._kept(ask, permit):
                yield permit
        finally:
            self._drive(self._flows.give_back(permit))

    @contextmanager
    def lease(
        self, template: str, resource: str, *, holder: str = "", wait: float | None = None
    ) -> Iterator[Lease]:
        """Holds a lease while the block runs, and waits in line for it for `wait` seconds: None,
        for as long as it takes; 0, not at all. A `holder` is one: whoever else says the same name
        has the same lease; without one, a name is made.

        Raises Queued, and Refused where the line is full; at the end of a block that outlived the
        term, LeaseLost, unless the block raised something itself.
        """
        lease = Lease(self, template, resource, holder or make_id())
        self._drive(self._flows.take(lease, wait))
        try:
            yield lease
            lease.check()
        finally:
            self._drive(self._flows.give_up(lease))

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
                self._drive(self._flows.keep(ask, lease_s), sleep)

        thread = threading.Thread(target=keep, args=(permit.expires_in_seconds,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            # What it still asks for must not come after the permit is given back.
            thread.join()

    def _drive(self, flow: Flow[T], sleep: Callable[[float], None] = time.sleep) -> T:
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
            return self._send(asking(step.rule, step.call)).document
        return self._send(step)

    def _send(self, call: Call) -> Answer:
        if self._pid != os.getpid():  # after a fork: the connections are the parent's
            self._http, self._pid = self._wire.client(), os.getpid()
        try:
            reply = self._http.request(
                call.method, call.path, params=call.query, content=call.content
            )
        except httpx.TransportError as error:
            raise self._wire.away(error) from error
        return self._wire.read(call, reply.status_code, reply.content)


class _Stopped(Exception):  # noqa: N818
    """A thread that kept a permit has nothing to do any more."""
