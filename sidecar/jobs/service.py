"""What clients do with jobs. Workers make the calls (worker/target_worker.py)."""

import contextlib
import hashlib
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from sidecar.http.metrics import Metrics
from sidecar.jobs.estimate import wait_s
from sidecar.jobs.metrics import JobMetrics
from sidecar.jobs.model import (
    WAITS,
    GrantNeededError,
    IdempotencyKeyUsedError,
    Job,
    NewJob,
    QueueEntry,
    QueueFullError,
    State,
    WrongStateError,
    ms,
    new_job_id,
)
from sidecar.jobs.store.target_queue import Claim, QueuePlace, QueueState
from sidecar.jobs.targets import Target, TargetRegistry
from sidecar.kit.errors import StoreError, UnknownNameError
from sidecar.visitors.grants import Grant, GrantError

if TYPE_CHECKING:  # SQL is an extra
    from sidecar.jobs.store.job_store import JobStore

#: With delete_after_read: how long a result is kept after the first read, for a repeated one, ms.
READ_GRACE_MS = 20_000
#: How old counts of all jobs may be, seconds.
COUNTS_S = 2.0


@dataclass(frozen=True, slots=True)
class JobView:
    """A job as it stands. It has a position only while it waits in the queue and Redis answers."""

    job: Job
    state: State
    position: int | None = None
    wait_s: float | None = None
    #: No retry is made before this time.
    retry_ms: int | None = None
    permit: str | None = None
    permit_expires_ms: int | None = None


class Jobs:
    """The jobs of all targets. Every method raises DatabaseError or StoreError if SQL or Redis is
    unavailable, and UnknownNameError for a job of another `owner`; operators, None, see
    all jobs."""

    def __init__(self, targets: TargetRegistry, store: "JobStore", metrics: Metrics) -> None:
        self.targets = targets
        self.store = store
        self.metrics = metrics.of(JobMetrics)
        self._counts: dict[tuple[str, str], int] = {}
        self._counted_at = float("-inf")

    async def submit(self, owner: str, new: NewJob) -> tuple[Job, bool]:
        """Submit a job. Return it, and whether it is new: the same idempotency key names the same
        job. On return the job is in the database, and nothing that happens loses it.

        Raises GrantNeededError, IdempotencyKeyUsedError, QueueFullError.
        """
        target, key = self.targets.get(new.target), new.idempotency_key
        # Before all else: the queue may be full by now, and the grant expired or spent for this.
        if key and (earlier := await self.store.jobs.find_by_key(owner, key)):
            return _same_job(earlier, new), False
        now_ms = target.clock.now_ms()
        grant = _grant_of(new, target, now_ms)
        class_name = grant.class_name if grant else ""
        id_ = new_job_id()
        queue_order = await self._reserve(target, id_, class_name)
        values = asdict(new) | {"class_name": class_name}
        del values["grant"]
        job = Job(
            id=id_,
            owner=owner,
            created_ms=now_ms,
            expires_ms=now_ms + ms(target.settings.pending_ttl),
            queue_order=queue_order,
            fingerprint=new.fingerprint,
            **values,
        )
        # The same job may be submitted elsewhere at the same moment, and spends the grant once.
        spender = hashlib.sha256(f"{owner} {key}".encode()).hexdigest() if key else id_
        try:
            if grant and grant.id:
                await _spend(target, grant, spender)
            written = await self.store.jobs.insert(job)
        except BaseException:
            with contextlib.suppress(StoreError):  # what is not given back ends by itself
                # With a key the grant stays spent: the job may be submitted again with it.
                if grant and grant.id and not key:
                    await target.store.return_grant(grant.id, id_)
                await target.store.unreserve(id_)
            raise
        if written.id != id_:  # somebody was faster
            with contextlib.suppress(StoreError):
                await target.store.unreserve(id_)
            return _same_job(written, new), False
        self._count(target, "submitted")
        await self._enqueue(target, written)
        return written, True

    async def _enqueue(self, target: Target, job: Job) -> None:
        """Put a job of the database in the queue. If Redis is unavailable, the reconciler will."""
        with contextlib.suppress(StoreError):
            await target.store.add([QueueEntry(job.id, job.queue_order, job.kind == "online")])

    def _count(self, target: Target, state: str) -> None:
        self.metrics.jobs.labels(target.name, state).inc()

    async def _reserve(self, target: Target, id_: str, class_name: str) -> int:
        """Return a job's order in the queue. Raises QueueFullError."""
        queue_order = await target.store.reserve(id_, class_name, target.settings)
        if queue_order is None:
            self._count(target, "refused")
            raise QueueFullError(
                f"{target.settings.max_pending} jobs wait for {target.name} (max_pending), "
                "and no more are taken."
            )
        return queue_order

    async def find(self, id_: str, owner: str | None) -> Job:
        job = await self.store.jobs.find(id_)
        if job is None or (owner is not None and job.owner != owner):
            raise UnknownNameError("job", id_)
        return job

    async def view(self, jobs: Sequence[Job]) -> list[JobView]:
        """Return these jobs with their places, in this order."""
        ids_by_target: dict[str, list[str]] = {}
        for job in jobs:
            if not job.is_ended:
                ids_by_target.setdefault(job.target, []).append(job.id)
        places: dict[str, tuple[Target, QueueState, QueuePlace]] = {}
        for name, ids in ids_by_target.items():
            if (target := self.targets.find(name)) is not None:
                queue, queue_places = await target.store.look(ids, target.settings)
                places |= {
                    id_: (target, queue, at) for id_, at in zip(ids, queue_places, strict=True)
                }
        return [
            _view(job, *places[job.id]) if job.id in places else JobView(job, job.state)
            for job in jobs
        ]

    async def counts(self) -> dict[tuple[str, str], int]:
        """Return the numbers of jobs by target and state, COUNTS_S old at most."""
        if time.monotonic() - self._counted_at >= COUNTS_S:
            self._counts = await self.store.jobs.counts()
            self._counted_at = time.monotonic()
        return self._counts

    async def was_read(self, job: Job) -> None:
        """Note that the owner has the result, which is deleted soon with `delete_after_read`."""
        target = self.targets.find(job.target)
        if target is None or not target.settings.delete_after_read:
            return
        if job.read_ms is None and job.is_ended:
            now_ms = target.clock.now_ms()
            expires_ms = min(job.expires_ms, now_ms + READ_GRACE_MS)
            await self.store.jobs.mark_read(job.id, at_ms=now_ms, expires_ms=expires_ms)

    async def cancel(self, id_: str, owner: str | None) -> State:
        """Cancel a job. Return CANCELLED, or PROCESSING if the call is being cut off. Raises
        WrongStateError if the job has ended, or the target does not let calls be cut off."""
        job = await self.find(id_, owner)
        target = self.targets.find(job.target)
        if not job.is_ended:
            now_ms = target.clock.now_ms() if target else job.created_ms
            expires_ms = now_ms + (ms(target.settings.result_ttl) if target else 0)
            if await self.store.jobs.cancel(id_, at_ms=now_ms, expires_ms=expires_ms):
                job.state = State.CANCELLED
                if target is not None:
                    self._count(target, "cancelled")
            else:
                job = await self.find(id_, owner)
        if job.state is State.CANCELLED:
            if target is not None:
                await target.store.remove(id_)  # again where Redis was unavailable the first time
            return State.CANCELLED
        if job.is_ended:
            raise WrongStateError(f"The job has ended: it is {job.state}.")
        if target is None or not target.settings.abort or job.kind == "online":
            raise WrongStateError(
                "The call was begun, and its target does not let calls be cut off."
            )
        if not await target.store.abort(id_):
            # Its worker is gone: none would learn of it.
            if await self.store.attempts.finish(target.abort_ending(id_, job.fence)):
                self._count(target, "cancelled")
                await target.store.remove(id_)
                return State.CANCELLED
            await target.store.abort(id_)
        return State.PROCESSING

    async def retry(self, id_: str, owner: str | None) -> Job:
        """Set an ended job back to pending, at the end of the queue and without its result. Raises
        WrongStateError, QueueFullError."""
        job = await self.find(id_, owner)
        target = self.targets.get(job.target)
        if not job.is_ended:
            raise WrongStateError(
                f"The job is {job.state}: it can be tried again when it has ended."
            )
        queue_order = await self._reserve(target, id_, job.class_name)
        now_ms = target.clock.now_ms()
        expires_ms = now_ms + ms(target.settings.pending_ttl)
        if not await self.store.jobs.retry(
            id_, order=queue_order, at_ms=now_ms, expires_ms=expires_ms
        ):
            await target.store.unreserve(id_)
            raise WrongStateError("The job was changed by somebody else meanwhile.")
        job.queue_order = queue_order
        await self._enqueue(target, job)
        return await self.find(id_, owner)

    # Online jobs ------------------------------------------------------------------------------

    async def called(self, target: Target, claims: Sequence[Claim]) -> None:
        """Write that jobs were called, and have their permits unless they ended meanwhile."""
        now_ms = target.clock.now_ms()
        for claim in claims:
            if not await self.store.attempts.set_called(claim.id, claim.fence, at_ms=now_ms):
                await target.store.drop([(claim.id, claim.fence)], target.settings, wakes=True)

    async def used(self, target: Target, id_: str, fence: int) -> None:
        """Write that a permit was used: the call has begun."""
        await self.store.attempts.set_used(id_, fence, at_ms=target.clock.now_ms())

    async def done(self, id_: str, owner: str | None) -> Job:
        """End a job's call, as its client reports. Raises WrongStateError."""
        job = await self.find(id_, owner)
        if job.kind != "online":
            raise WrongStateError("A worker makes this call, and says when it is over.")
        if not job.is_ended:
            [view] = await self.view([job])
            if view.state not in {State.CALLED, State.PROCESSING}:
                raise WrongStateError("The job was not called yet.")
            await self.end(self.targets.get(job.target), id_, job.fence)
        return await self.find(id_, owner)

    async def end(self, target: Target, id_: str, fence: int, *, status: int | None = None) -> bool:
        """End an online call, in Redis first, so that its slot is free even while SQL is
        unavailable. Return False if Redis has no such call."""
        has_failed = status is not None and target.settings.fails_on(status)
        is_over = await target.store.done(id_, fence, has_failed=has_failed)
        if is_over:  # that the permit was used may not be in the database yet
            await self.used(target, id_, fence)
        state = State.FAILED if has_failed else State.COMPLETED
        error = f"the target says {status}" if has_failed else ""
        ending = target.ending(id_, fence, state, error, status)
        if await self.store.attempts.finish(ending):
            self._count(target, state)
            self.metrics.count_response(target.name, status)
        return is_over


def _grant_of(new: NewJob, target: Target, now_ms: int) -> Grant | None:
    """Return a new job's grant. Raises GrantNeededError if it does not give the job's class."""
    wanted = new.class_name
    if not new.grant:
        if wanted:
            raise GrantNeededError(
                f"A class needs a grant: send one for {wanted!r}, signed for {target.name}."
            )
        return None
    try:
        grant = target.grants.read(new.grant, now_ms)
    except GrantError as error:
        hint = " It was signed without its kind, target: sign a new one."
        text = f"The grant is {error.word}.{hint if error.word == 'outdated' else ''}"
        raise GrantNeededError(text) from None
    if wanted and wanted != grant.class_name:
        raise GrantNeededError(f"The grant is for {grant.class_name}, not for {wanted!r}.")
    if grant.class_name not in target.settings.classes:
        names = ", ".join(target.settings.classes) or "none"
        raise GrantNeededError(f"{target.name} has no class {grant.class_name} (it has: {names}).")
    return grant


def _same_job(job: Job, new: NewJob) -> Job:
    """Return the job that has the new one's idempotency key. Raises IdempotencyKeyUsedError if its
    content is different."""
    if job.fingerprint != new.fingerprint:
        raise IdempotencyKeyUsedError(
            "This idempotency_key names another job: its content was different."
        )
    return job


async def _spend(target: Target, grant: Grant, spender: str) -> None:
    """Use up a grant with an id, which gives its class to one job. Raises GrantNeededError."""
    if not await target.store.spend_grant(grant.id, spender, grant.expires_s * 1000):
        raise GrantNeededError("The grant was used for another job.")


def _view(job: Job, target: Target, queue: QueueState, place: QueuePlace) -> JobView:
    """Combine a row with its place: Redis knows sooner than the database that a job was called."""
    if place.where in {"line", "later"} and job.state in WAITS:
        if place.where == "later":
            return JobView(job, State.PENDING, retry_ms=place.ends_ms)
        if place.position is None or target.settings.paused:
            return JobView(job, State.PENDING, place.position)
        waits_s = wait_s(target.settings, queue, place.position)
        return JobView(job, State.PENDING, place.position, waits_s)
    if place.where == "called" and job.kind == "online":
        ends_ms = place.ends_ms or queue.now_ms
        job.fence = place.fence
        permit = target.permits.write(job.id, place.fence, ends_ms)
        return JobView(job, State.CALLED, permit=permit, permit_expires_ms=ends_ms)
    if place.where in {"used", "running"}:
        job.fence = max(job.fence, place.fence)
        return JobView(job, State.PROCESSING)
    return JobView(job, job.state)
