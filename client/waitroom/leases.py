"""Leases, with which a client holds a resource for a limited term."""

import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, nullcontext
from datetime import datetime

from waitroom.blocking import run
from waitroom.core import MIN_POLL_S, Core, Wait, get_deadline, log, make_id
from waitroom.errors import (
    LeaseLost,
    Problem,
    Queued,
    Refused,
    RejectedError,
    WaitroomError,
    get_retry_s,
)
from waitroom.model import LEASE_MEMBERS
from waitroom.wire import Document, Request, Response, build_path

#: The maximum number of seconds that a replica keeps a poll open, in general and near the head of
#: the queue. The client notices only after the poll and the timeout that a replica has died. If the
#: client was called meanwhile, its call must not have expired (claim_window, 10 s by default).
POLL_S, HEAD_POLL_S = 20.0, 4.0
#: The minimum time between two renewals in the background, in seconds.
MIN_RENEW_S = 0.1


class HeldLease:
    """A lease that this client holds. Send its fencing token, `fence`, with each change to the
    resource. The resource must refuse a token smaller than the largest one that it has seen."""

    def __init__(self, core: Core, template: str, resource: str, holder: str) -> None:
        self._core = core
        self.template = template
        self.resource = resource
        self.holder = holder or make_id()
        self._path = build_path("leases", template, resource)
        self.fence = 0
        #: The beginning and the end of the term, by the clock of Redis.
        self.granted_at = self.expires_at = datetime.min  # noqa: DTZ901 - until the lease is granted
        self._ends_at_monotonic_s = 0.0
        #: Whether the replica has refused to renew the lease.
        self._is_last_term = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self} fence={self.fence}>"

    def __str__(self) -> str:
        return f"{self.template}/{self.resource}"

    @property
    def left_seconds(self) -> float:
        """Seconds until the lease ends, by this machine's monotonic clock; 0 after its end. The
        error is at most the drift between this clock and Redis's clock during one term."""
        return max(0.0, self._ends_at_monotonic_s - time.monotonic())

    def check(self) -> None:
        """Raise LeaseLost if the term has ended by this machine's clock. No request is sent."""
        if not self.left_seconds:
            raise LeaseLost(f"lease {self} is over: its term ended, and others may have it by now")

    @asynccontextmanager
    async def hold(self, wait: Wait, *, renew: bool = False) -> AsyncGenerator[None, None]:
        """Hold the lease while the block runs. `wait` limits the time in the queue. With `renew`,
        renew the lease whenever a third of its term has passed."""
        await self._acquire(wait)
        try:
            if (
                renew
                and self.left_seconds < (self.expires_at - self.granted_at).total_seconds() / 2
            ):
                await self._renew_or_log()  # this holder already had the lease
            third_s = max(MIN_RENEW_S, self.left_seconds / 3)
            renewal = self._core.run_repeatedly(self._renew_or_log, third_s)
            async with renewal if renew else nullcontext():
                yield
            self.check()
        finally:
            await self._release()

    async def _acquire(self, wait: Wait) -> None:
        """Acquire the lease, or queue until it is granted. Leave the queue on failure."""
        deadline, may_be_queued = get_deadline(wait), False
        try:
            document = await self._join()
            may_be_queued = True
            while document["state"] != "granted":
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    raise Queued(f"lease {self} is held by somebody else", document)  # noqa: TRY301
                order = document["order"]
                document = await self._poll(document, left_s)
                if document["state"] == "gone":
                    may_be_queued = False
                    document = await self._join(order)
                    may_be_queued = True
        except BaseException as error:
            if may_be_queued or not isinstance(error, Refused | RejectedError):
                await self._core.send_or_log(Request("DELETE", self._path, {"holder": self.holder}))
            raise

    async def _join(self, order: int | None = None) -> Document:
        body: Document = {"holder": self.holder}
        if order is not None:
            body["order"] = order
        queue_full = frozenset({429})
        request = Request("POST", self._path, body=body, members=LEASE_MEMBERS, statuses=queue_full)
        response: Response = await self._core.send_with_retries(request)
        document: Document = response.document
        if response.status == 429:
            raise Refused(f"the queue for {self} is full", get_retry_s(document), document)
        if document["state"] == "granted":
            self._store_grant(document, response.sent_at)
        return document

    async def _poll(self, waiting: Document, left_s: float) -> Document:
        """Wait for the lease for `left_s` seconds at most. Return the lease or the place in the
        queue, as the replica describes it. `waiting` is the previous description."""
        refresh_s = waiting["refresh_after_seconds"] or 0
        wait_s = min(left_s, POLL_S, max(HEAD_POLL_S, 2 * refresh_s))
        response = await self._fetch(wait_s)
        document: Document = response.document
        held_s = document.get("held_seconds")
        if document["state"] == "granted":
            self._store_grant(document, response.sent_at + (held_s or 0))
        elif document["state"] == "waiting":
            # A replica of version 0.1.0 responds immediately, without `held_seconds`.
            min_s = min(left_s, MIN_POLL_S if held_s is not None else max(MIN_POLL_S, refresh_s))
            await self._core.pause(max(0, response.sent_at + min_s - time.monotonic()))
        return document

    async def _fetch(self, wait_s: float = 0) -> Response:
        query = {"holder": self.holder}
        if wait_s:
            query["wait"] = f"{wait_s:.3f}"
        request = Request("GET", self._path, query, members=LEASE_MEMBERS, wait_s=wait_s)
        response: Response = await self._core.send_with_retries(request)
        return response

    async def _renew(self) -> None:
        body = {"holder": self.holder, "fence": self.fence}
        conflict = frozenset({409})
        request = Request("PUT", self._path, body=body, members=LEASE_MEMBERS, statuses=conflict)
        response: Response = await self._core.send_with_retries(request)
        if response.status == 200:
            self._store_grant(response.document, response.sent_at)
            return
        # The lease was not renewed, because it has ended or because renewal is not allowed.
        problem = Problem.from_document(409, response.document)
        if (await self._fetch()).document["fence"] == self.fence:
            raise RejectedError(f"lease {self} is not renewed: {problem.detail}", problem)
        raise LeaseLost(f"lease {self} is over: {problem.detail}")

    async def _renew_or_log(self) -> None:
        """Renew the lease in the background. If renewal is not allowed, the lease ends with its
        term. If the lease is lost, check() and the end of the block raise LeaseLost."""
        if not self.left_seconds or self._is_last_term:
            return
        try:
            await self._renew()
        except LeaseLost as error:
            self._ends_at_monotonic_s = 0.0
            log.warning("%s", error)
        except RejectedError as error:
            self._is_last_term = error.status == 409
            log.warning("%s", error)
        except WaitroomError as error:
            log.warning("lease %s is not renewed yet: %s", self, error)

    async def _release(self) -> None:
        """Release the lease. If the request fails, the lease still ends with its term."""
        if not self.left_seconds:
            log.warning("lease %s was over before its block", self)
        query = {"holder": self.holder, "fence": str(self.fence)}
        request = Request("DELETE", self._path, query, statuses=frozenset({409}))
        try:
            await self._core.send_with_retries(request)
        except WaitroomError as error:
            log.warning("lease %s is not given up before its term: %s", self, error)

    def _store_grant(self, document: Document, sent_at: float) -> None:
        """Store a granted or renewed term. `sent_at` is a time.monotonic() before its beginning."""
        self.fence = document["fence"]
        self.granted_at = datetime.fromisoformat(document["granted_at"])
        self.expires_at = datetime.fromisoformat(document["expires_at"])
        self._ends_at_monotonic_s = sent_at + document["expires_in_seconds"]


class AsyncLease(HeldLease):
    """The lease that an `async with` block of AsyncClient.lease holds."""

    async def renew(self) -> None:
        """Restart the term; see Lease.renew."""
        await self._renew()


class Lease(HeldLease):
    """The lease that a `with` block of Client.lease holds."""

    def renew(self) -> None:
        """Restart the term. Raises LeaseLost, or RejectedError if renewal is not allowed."""
        run(self._renew())
