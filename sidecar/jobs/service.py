"""Jobs: what a caller may do with them. Who makes the calls is jobs/worker/target_worker.py."""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import structlog

from sidecar.jobs.metrics import JobMetrics
from sidecar.jobs.model import READ_GRACE_MS, Job, State, ms, new_job_id
from sidecar.jobs.store.target_replies import Release, Waiting
from sidecar.jobs.targets import wait_s
from sidecar.kit.errors import RefusedError, StoreError, UnknownNameError
from sidecar.queue.grants import GrantError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from sidecar.jobs.model import JobQuery, Kind
    from sidecar.jobs.store.job_store import JobStore
    from sidecar.jobs.store.target_replies import Claim, Line, Place
    from sidecar.jobs.targets import Target, Targets
    from sidecar.kit.metrics import Metrics

#: When a line is full: how long the caller is told to wait, seconds, at most.
FULL_RETRY_S = 60
#: How old counts of all jobs may be, seconds.
COUNTS_S = 2.0

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Order:
    """What a caller asks for; its request was checked (jobs/request.py)."""

    target: Target
    kind: Kind = "offline"
    method: str = "GET"
    path: str = ""
    query: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    class_name: str = ""
    grant: str = ""
    idempotency_key: str | None = None
    callback_url: str | None = None

    @property
    def fingerprint(self) -> str:
        """The same for the same order; what the grant was is no part of it, for its time is
        another each time."""
        said = [self.target.name, self.kind, self.method, self.path, self.query,
                sorted(self.headers.items()), self.class_name, self.callback_url]  # fmt: skip
        return hashlib.sha256(json.dumps(said).encode() + b"\0" + self.body).hexdigest()


@dataclass(frozen=True, slots=True)
class Seen:
    """A job as it stands now. `line` and `place` are None where the job has ended, or the store is
    away."""

    job: Job
    state: State
    position: int | None = None
    wait_s: float | None = None
    #: Not before, where it waits to be tried again.
    retry_ms: int | None = None
    permit: str | None = None
    permit_expires_ms: int | None = None


class Jobs:
    """Every method raises DatabaseError and StoreError when the one or the other is away, and
    UnknownNameError for a job that is not the caller's; `owner` None is the operator."""

    def __init__(self, targets: Targets, store: JobStore, metrics: Metrics) -> None:
        self.targets = targets
        self.store = store
        self.metrics = metrics.of(JobMetrics)
        self._counts: dict[tuple[str, str], int] = {}
        self._counted_at = float("-inf")

    async def submit(self, owner: str, order: Order) -> tuple[Job, bool]:
        """The job, and whether it is new: the same idempotency key names the same job. When this
        has returned, the job is in the database, and nothing that happens loses it.

        Raises RefusedError.
        """
        target, settings = order.target, order.target.settings
        # Also when the line is full by now, and its grant has ended or was spent: for this.
        if order.idempotency_key and (
            known := await self.store.jobs.find_by_key(owner, order.idempotency_key)
        ):
            return _same(known, order), False
        now_ms = target.clock.now_ms()
        class_name, grant_id, grant_ends_ms = _class_of(order, now_ms)
        id_ = new_job_id()
        spender = _named(owner, order.idempotency_key) if order.idempotency_key else id_
        queue_order = await target.store.reserve(id_, class_name, settings)
        if queue_order is None:
            raise self._full(target)
        job = Job(
            id_, owner, target.name, order.kind, now_ms, now_ms + ms(settings.pending_ttl),
            queue_order, State.PENDING, class_name, order.idempotency_key, order.fingerprint,
            order.method, order.path, order.query, order.headers, order.body, order.callback_url,
        )  # fmt: skip
        try:
            if grant_id:
                await _spend(target, grant_id, spender, grant_ends_ms)
            written = await self.store.jobs.insert(job)
        except BaseException:
            await self._take_back(target, id_, "" if order.idempotency_key else grant_id)
            raise
        if written.id != id_:  # somebody was faster
            await self._take_back(target, id_, "")
            return _same(written, order), False
        self.metrics.jobs.labels(target.name, "submitted").inc()
        await self._line_up(target, written)
        return written, True

    async def _take_back(self, target: Target, id_: str, grant_id: str) -> None:
        """A grant that was spent for a job of a name of its own stays so: the same job may be
        submitted again with it."""
        with contextlib.suppress(StoreError):  # a place that is not given back ends by itself
            if grant_id:
                await target.store.return_grant(grant_id, id_)
            await target.store.unreserve(id_)

    async def _line_up(self, target: Target, job: Job) -> None:
        """The database has it: should the store be away now, the keeper puts it in the line."""
        with contextlib.suppress(StoreError):
            await target.store.add([Waiting(job.id, job.queue_order, job.kind == "online")])

    def _full(self, target: Target) -> RefusedError:
        self.metrics.jobs.labels(target.name, "refused").inc()
        return RefusedError(
            "full",
            f"{target.settings.max_pending} jobs wait for {target.name} (max_pending), and no more "
            "are taken.",
            retry_after_s=FULL_RETRY_S,
        )

    async def find(self, id_: str, owner: str | None) -> Job:
        job = await self.store.jobs.find(id_)
        if job is None or (owner is not None and job.owner != owner):
            raise UnknownNameError("job", id_)
        return job

    async def look(self, id_: str, owner: str | None) -> Seen:
        [seen] = await self.see([await self.find(id_, owner)])
        return seen

    async def see(self, jobs: Sequence[Job]) -> list[Seen]:
        """Those jobs with their places, in their order."""
        asked: dict[str, list[str]] = {}
        for job in jobs:
            if not job.is_ended and self.targets.find(job.target) is not None:
                asked.setdefault(job.target, []).append(job.id)
        found: dict[str, tuple[Target, Line, Place]] = {}
        for name, ids in asked.items():
            target = self.targets.get(name)
            line, places = await target.store.look(ids, target.settings)
            found |= {id_: (target, line, place) for id_, place in zip(ids, places, strict=True)}
        return [_seen(job, *found[job.id]) if job.id in found else Seen(job, job.state)
                for job in jobs]  # fmt: skip

    async def page(self, query: JobQuery) -> list[Seen]:
        return await self.see(await self.store.jobs.page(query))

    async def counts(self) -> dict[tuple[str, str], int]:
        """By target and state, some seconds old at most: each job is counted."""
        if time.monotonic() - self._counted_at >= COUNTS_S:
            self._counts = await self.store.backlog.counts()
            self._counted_at = time.monotonic()
        return self._counts

    async def was_read(self, job: Job) -> None:
        """The caller has the result: where the target says so, it is deleted soon."""
        target = self.targets.find(job.target)
        deletes = target is not None and target.settings.delete_after_read
        if target is None or not deletes or job.read_ms is not None or not job.is_ended:
            return
        now_ms = target.clock.now_ms()
        await self.store.jobs.mark_read(
            job.id, at_ms=now_ms, expires_ms=min(job.expires_ms, now_ms + READ_GRACE_MS)
        )

    def body(self, job: Job) -> AsyncIterator[bytes]:
        return self.store.jobs.chunks(job.id)

    async def cancel(self, id_: str, owner: str | None) -> State:
        """CANCELLED, or PROCESSING where the call is being cut off. Raises RefusedError where it
        has ended, or the target does not let calls be cut off."""
        job = await self.find(id_, owner)
        target = self.targets.find(job.target)
        now_ms = target.clock.now_ms() if target else job.created_ms
        if not job.is_ended:
            kept_ms = ms(target.settings.result_ttl) if target else 0
            if await self.store.jobs.cancel(id_, at_ms=now_ms, expires_ms=now_ms + kept_ms):
                if target is not None:
                    await target.store.remove(id_)
                    self.metrics.jobs.labels(target.name, "cancelled").inc()
                return State.CANCELLED
            job = await self.find(id_, owner)
        if job.state is State.CANCELLED:
            if target is not None:
                await target.store.remove(id_)  # where it was not reached the first time
            return State.CANCELLED
        if job.is_ended:
            raise RefusedError("conflict", f"The job has ended: it is {job.state}.")
        if target is None or not target.settings.abort or job.kind == "online":
            raise RefusedError(
                "conflict", "The call was begun, and its target does not let calls be cut off."
            )
        if not await target.store.abort(id_):
            # Its runner is gone: nobody would hear of it.
            if await self.store.attempts.finish(target.aborted(id_, job.fence)):
                await target.store.remove(id_)
                self.metrics.jobs.labels(target.name, "cancelled").inc()
                return State.CANCELLED
            await target.store.abort(id_)
        return State.PROCESSING

    async def retry(self, id_: str, owner: str | None) -> Job:
        """A job that has ended, however it did, waits again, at the end of the line; what came of
        it is forgotten."""
        job = await self.find(id_, owner)
        target = self.targets.get(job.target)
        if not job.is_ended:
            raise RefusedError(
                "conflict", f"The job is {job.state}: it can be tried again when it has ended."
            )
        queue_order = await target.store.reserve(id_, job.class_name, target.settings)
        if queue_order is None:
            raise self._full(target)
        now_ms = target.clock.now_ms()
        expires_ms = now_ms + ms(target.settings.pending_ttl)
        if not await self.store.jobs.retry(
            id_, order=queue_order, at_ms=now_ms, expires_ms=expires_ms
        ):
            await target.store.unreserve(id_)
            raise RefusedError("conflict", "The job was changed by somebody else meanwhile.")
        job.queue_order = queue_order
        await self._line_up(target, job)
        return await self.find(id_, owner)

    # Online jobs ------------------------------------------------------------------------------

    async def called(self, target: Target, claims: Sequence[Claim]) -> None:
        """Those were called: the permit is theirs, unless they ended meanwhile."""
        now_ms = target.clock.now_ms()
        for claim in claims:
            if not await self.store.attempts.set_called(claim.id, claim.fence, at_ms=now_ms):
                over = Release(claim.id, claim.fence, "gone")
                await target.store.release([over], target.settings, wakes=True)

    async def used(self, target: Target, id_: str, fence: int) -> None:
        """The permit was used: the call has begun."""
        await self.store.attempts.set_used(id_, fence, at_ms=target.clock.now_ms())

    async def done(self, id_: str, owner: str | None) -> Job:
        """The caller says that its call is over."""
        job = await self.find(id_, owner)
        if job.kind != "online":
            raise RefusedError("conflict", "A runner makes this call, and says when it is over.")
        if not job.is_ended:
            [seen] = await self.see([job])
            if seen.state not in {State.CALLED, State.PROCESSING}:
                raise RefusedError("conflict", "The job was not called yet.")
            await self.end(self.targets.get(job.target), id_, job.fence)
        return await self.find(id_, owner)

    async def end(self, target: Target, id_: str, fence: int, *, status: int | None = None) -> bool:
        """An online call is over. The store first: its slot is free, whatever the database does.
        Whether it was this call's end."""
        has_failed = status is not None and target.settings.fails_on(status)
        is_over = await target.store.done(id_, fence, has_failed=has_failed)
        if is_over:  # who used the permit may not have told the database yet
            await self.used(target, id_, fence)
        state = State.FAILED if has_failed else State.COMPLETED
        error = f"the target says {status}" if has_failed else ""
        ending = target.ending(id_, fence, state, error, status)
        if await self.store.attempts.finish(ending):
            self.metrics.jobs.labels(target.name, state).inc()
            self.metrics.count_response(target.name, status)
        return is_over


def _class_of(order: Order, now_ms: int) -> tuple[str, str, int]:
    """The class that the grant gives, the grant's id and when it ends, ms. Raises RefusedError."""
    target, wanted = order.target, order.class_name
    if not order.grant:
        if wanted:
            raise RefusedError(
                "forbidden",
                f"A class needs a grant: send one for {wanted!r}, signed for {target.name}.",
            )
        return "", "", 0
    try:
        grant = target.grants.read(order.grant, now_ms)
    except GrantError as error:
        hint = " It was signed without its kind, target: sign a new one."
        said = f"The grant is {error.word}.{hint if error.word == 'outdated' else ''}"
        raise RefusedError("forbidden", said) from None
    if wanted and wanted != grant.class_name:
        raise RefusedError("forbidden", f"The grant is for {grant.class_name}, not for {wanted!r}.")
    if grant.class_name not in target.settings.classes:
        known = ", ".join(target.settings.classes) or "none"
        raise RefusedError(
            "forbidden", f"{target.name} has no class {grant.class_name} (it has: {known})."
        )
    return grant.class_name, grant.id, grant.expires_s * 1000


def _same(job: Job, order: Order) -> Job:
    """The job that has the order's idempotency_key. Raises RefusedError where it is another."""
    if job.fingerprint != order.fingerprint:
        raise RefusedError(
            "other", "This idempotency_key names another job: its content was different."
        )
    return job


def _named(owner: str, key: str) -> str:
    """Of whoever submits the same job again, which may happen at the same moment elsewhere."""
    return hashlib.sha256(f"{owner} {key}".encode()).hexdigest()


async def _spend(target: Target, grant_id: str, job: str, ends_ms: int) -> None:
    """A grant with an id gives its class to one job. Raises RefusedError."""
    if not await target.store.spend_grant(grant_id, job, ends_ms):
        raise RefusedError("forbidden", "The grant was used for another job.")


def _seen(job: Job, target: Target, line: Line, place: Place) -> Seen:
    """The store knows sooner than the database that a job was called."""
    if place.where in {"line", "later"} and job.state in {State.PENDING, State.CALLED}:
        if place.where == "later":
            return Seen(job, State.PENDING, retry_ms=place.ends_ms)
        if place.position is None or target.settings.paused:
            return Seen(job, State.PENDING, place.position)
        waits_s = wait_s(target.settings, line, place.position)
        return Seen(job, State.PENDING, place.position, waits_s)
    if place.where == "called" and job.kind == "online":
        ends_ms = place.ends_ms or line.now_ms
        job.fence = place.fence
        permit = target.permits.write(job.id, place.fence, ends_ms)
        return Seen(job, State.CALLED, permit=permit, permit_expires_ms=ends_ms)
    if place.where in {"used", "running"}:
        job.fence = max(job.fence, place.fence)
        return Seen(job, State.PROCESSING)
    return Seen(job, job.state)
