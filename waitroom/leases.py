"""Leases: one holder of a resource at a time, for a term."""

import math
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import datetime

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
        self._path = path("leases", template, resource)
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

    @asynccontextmanager
    async def hold(self, wait: float | None) -> AsyncGenerator[None, None]:
        """Hold the lease while the block runs; queue for it for `wait` seconds."""
        await self._take(wait)
        try:
            yield
            self.check()
        finally:
            await self._give_up()

    async def _take(self, wait: float | None) -> None:
        """Take the lease, queueing for it. Leave the queue if that fails."""
        ends = math.inf if wait is None else time.monotonic() + wait
        try:
            found = await self._join()
            while found["state"] != "granted":
                left_s = ends - time.monotonic()
                if left_s <= 0:
                    raise Queued(f"lease {self} is held by somebody else", found)  # noqa: TRY301
                refresh_s = found["refresh_after_seconds"]
                pause_s = DEFAULT_REFRESH_S if refresh_s is None else refresh_s
                await self._core.pause(min(left_s, pause_s))
                sent_at, order = time.monotonic(), found["order"]
                found = await self._find()
                if found["state"] == "granted":
                    self._note_grant(found, sent_at)
                elif found["state"] == "gone":
                    found = await self._join(order)
        except (Refused, RejectedError):
            raise  # the holder is not in the queue
        except BaseException:
            await self._core.quietly(Request("DELETE", self._path, {"holder": self.holder}))
            raise

    async def _join(self, order: int | None = None) -> Document:
        body: Document = {"holder": self.holder}
        if order is not None:
            body["order"] = order
        sent_at = time.monotonic()
        full = frozenset({429})
        request = Request("POST", self._path, body=body, members=LEASE, statuses=full)
        answer: Response = await self._core.sent(request)
        found: Document = answer.document
        if answer.status == 429:
            raise Refused(f"the queue for {self} is full", retry_s(found), found)
        if found["state"] == "granted":
            self._note_grant(found, sent_at)
        return found

    async def _find(self) -> Document:
        query = {"holder": self.holder}
        document: Document = await self._core.document(
            Request("GET", self._path, query, members=LEASE)
        )
        return document

    async def _renew(self) -> None:
        sent_at = time.monotonic()
        body = {"holder": self.holder, "fence": self.fence}
        request = Request("PUT", self._path, body=body, members=LEASE, statuses=frozenset({409}))
        answer: Response = await self._core.sent(request)
        if answer.status == 200:
            self._note_grant(answer.document, sent_at)
            return
        # Not renewed: the lease is over, or goes on to its end.
        problem = Problem.read(409, answer.document)
        if (await self._find())["fence"] == self.fence:
            raise RejectedError(f"lease {self} is not renewed: {problem.detail}", problem)
        raise LeaseLost(f"lease {self} is over: {problem.detail}")

    async def _give_up(self) -> None:
        """Release the lease. If that fails, the lease ends with its term."""
        if not self.left_seconds:
            log.warning("lease %s was over before its block", self)
        query = {"holder": self.holder, "fence": str(self.fence)}
        try:
            await self._core.sent(Request("DELETE", self._path, query, statuses=frozenset({409})))
        except WaitroomError as error:
            log.warning("lease %s is not given up before its term: %s", self, error)

    def _note_grant(self, document: Document, sent_at: float) -> None:
        """`sent_at`: time.monotonic() before the request was sent."""
        self.fence = document["fence"]
        self.granted_at = datetime.fromisoformat(document["granted_at"])
        self.expires_at = datetime.fromisoformat(document["expires_at"])
        self._ends = sent_at + document["expires_in_seconds"]


class AsyncLease(HeldLease):
    """A lease that an `async with` block of AsyncClient.lease holds."""

    async def renew(self) -> None:
        """As Lease.renew."""
        await self._renew()


class Lease(HeldLease):
    """A lease that a `with` block of Client.lease holds."""

    def renew(self) -> None:
        """Start the term again. Raises LeaseLost, or RejectedError if the lease may not be renewed
        and ends as before."""
        run(self._renew())
