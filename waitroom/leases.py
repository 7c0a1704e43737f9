"""Leases: one holder of a resource at a time, for a term."""

import math
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import TypeVar

from waitroom.blocking import run
from waitroom.core import Core, log, make_id
from waitroom.errors import (
    LeaseLost,
    Problem,
    Queued,
    Refused,
    RejectedError,
    WaitroomError,
    retry_s,
)
from waitroom.model import LEASE
from waitroom.wire import Document, Request, Response, path

#: When to ask again if a response does not say, seconds.
DEFAULT_REFRESH_S = 1.0


class HeldLease:
    """A lease while it is held. Send `fence` with each change to the resource, and refuse there a
    smaller number than the largest one before."""

    def __init__(self, core: Core, template: str, resource: str, holder: str) -> None:
        self._core = core
        self.template = template
        self.resource = resource
        self.holder = holder or make_id()
        self.fence = 0
        #: By Redis' clock.
        self.granted_at = self.expires_at = datetime.min  # noqa: DTZ901 - until it is granted
        self._ends = 0.0

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self} fence={self.fence}>"

    def __str__(self) -> str:
        return f"{self.template}/{self.resource}"

    @property
    def left_seconds(self) -> float:
        """Seconds until the lease ends, by this machine's monotonic clock; 0 when it is over. Late
        by no more than the two clocks drift apart in a term."""
        return max(0.0, self._ends - time.monotonic())

    def check(self) -> None:
        """Raise LeaseLost if the term is over by this machine's clock. No replica is asked."""
        if not self.left_seconds:
            raise LeaseLost(f"lease {self} is over: its term ended, and others may have it by now")

    def granted(self, document: Document, sent_at: float) -> None:
        """Note a grant. `sent_at`: time.monotonic() before the request was sent."""
        self.fence = document["fence"]
        self.granted_at = datetime.fromisoformat(document["granted_at"])
        self.expires_at = datetime.fromisoformat(document["expires_at"])
        self._ends = sent_at + document["expires_in_seconds"]


class AsyncLease(HeldLease):
    """A lease that an `async with` block of AsyncClient.lease holds."""

    async def renew(self) -> None:
        """As Lease.renew."""
        await _renew(self._core, self)


class Lease(HeldLease):
    """A lease that a `with` block of Client.lease holds."""

    def renew(self) -> None:
        """Start the term again. Raises LeaseLost, or RejectedError if the lease may not be renewed
        and ends as before."""
        run(_renew(self._core, self))


L = TypeVar("L", bound=HeldLease)


@asynccontextmanager
async def holding(core: Core, lease: L, wait: float | None) -> AsyncGenerator[L, None]:
    await _take(core, lease, wait)
    try:
        yield lease
        lease.check()
    finally:
        await _give_up(core, lease)


async def _take(core: Core, lease: HeldLease, wait: float | None) -> None:
    """Take the lease, queueing for it. Leave the queue if that fails."""
    ends = math.inf if wait is None else time.monotonic() + wait
    try:
        found = await _join(core, lease)
        while found["state"] != "granted":
            left_s = ends - time.monotonic()
            if left_s <= 0:
                raise Queued(f"lease {lease} is held by somebody else", found)  # noqa: TRY301
            refresh_s = found["refresh_after_seconds"]
            await core.pause(min(left_s, DEFAULT_REFRESH_S if refresh_s is None else refresh_s))
            sent_at, order = time.monotonic(), found["order"]
            found = await core.document(_looking(lease))
            if found["state"] == "granted":
                lease.granted(found, sent_at)
            elif found["state"] == "gone":
                found = await _join(core, lease, order)
    except (Refused, RejectedError):
        raise  # the holder is not in the queue
    except BaseException:
        await core.quietly(Request("DELETE", _path_of(lease), {"holder": lease.holder}))
        raise


async def _join(core: Core, lease: HeldLease, order: int | None = None) -> Document:
    body: Document = {"holder": lease.holder}
    if order is not None:
        body["order"] = order
    sent_at = time.monotonic()
    call = Request("POST", _path_of(lease), body=body, members=LEASE, statuses=frozenset({429}))
    answer: Response = await core.sent(call)
    found: Document = answer.document
    if answer.status == 429:
        raise Refused(f"the queue for {lease} is full", retry_s(found), found)
    if found["state"] == "granted":
        lease.granted(found, sent_at)
    return found


async def _renew(core: Core, lease: HeldLease) -> None:
    sent_at = time.monotonic()
    body = {"holder": lease.holder, "fence": lease.fence}
    call = Request("PUT", _path_of(lease), body=body, members=LEASE, statuses=frozenset({409}))
    answer: Response = await core.sent(call)
    if answer.status == 200:
        lease.granted(answer.document, sent_at)
        return
    # Not renewed: the lease is over, or goes on to its end.
    problem = Problem.read(409, answer.document)
    if (await core.document(_looking(lease)))["fence"] == lease.fence:
        raise RejectedError(f"lease {lease} is not renewed: {problem.detail}", problem)
    raise LeaseLost(f"lease {lease} is over: {problem.detail}")


async def _give_up(core: Core, lease: HeldLease) -> None:
    """Release the lease. If that fails, the lease ends with its term."""
    if not lease.left_seconds:
        log.warning("lease %s was over before its block", lease)
    query = {"holder": lease.holder, "fence": str(lease.fence)}
    call = Request("DELETE", _path_of(lease), query, statuses=frozenset({409}))
    try:
        await core.sent(call)
    except WaitroomError as error:
        log.warning("lease %s is not given up before its term: %s", lease, error)


def _looking(lease: HeldLease) -> Request:
    return Request("GET", _path_of(lease), {"holder": lease.holder}, members=LEASE)


def _path_of(lease: HeldLease) -> str:
    return path("leases", lease.template, lease.resource)
