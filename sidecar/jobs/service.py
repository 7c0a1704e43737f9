"""Submits, reads, cancels and retries jobs for clients, and records the calls of online jobs.
Workers make the calls of offline jobs (worker/target_worker.py)."""

import contextlib
import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from aiohttp import web

from sidecar.http.metrics import Metrics
from sidecar.jobs.call_result import describe_status
from sidecar.jobs.changes import JobChanges
from sidecar.jobs.estimate import estimate_wait_s
from sidecar.jobs.metrics import JobMetrics
from sidecar.jobs.model import (
    ENDED_STATES,
    WAITING_STATES,
    AttemptEnd,
    GrantNeededError,
    IdempotencyKeyUsedError,
    Job,
    NewJob,
    QueueEntry,
    QueueFullError,
    State,
    WrongStateError,
    make_job_id,
    to_ms,
)
from sidecar.jobs.store.target_queue import Claim, QueuePlace, QueueState
from sidecar.jobs.targets import Target, TargetRegistry
from sidecar.kit.errors import DatabaseLockedError, InputError, StoreError, UnknownNameError
from sidecar.visitors.grants import Grant, GrantError

if TYPE_CHECKING:  # SQL is an extra
    from sidecar.jobs.store.job_store import JobStore

#: How long a result can be read again after its first read, if delete_after_read is set, in ms.
READ_GRACE_MS = 20_000
#: The fields of a NewJob that its Job has too.
_COMMON_FIELDS = {field.name for field in fields(NewJob)} & {field.name for field in fields(Job)}
#: How long the counts of jobs are cached, in seconds.
COUNTS_TTL_S = 2.0


@dataclass(frozen=True, slots=True)
class JobView:
    """A job and its current state."""

    job: Job
    state: State
    #: The position in the queue; 1 is next. None if the job does not wait in the queue.
    position: int | None = None
    #: The expected wait until the call, in seconds.
    wait_s: float | None = None
    #: The earliest time of the first attempt, and of a retry. None if the job need not wait for it.
    run_ms: int | None = None
    retry_ms: int | None = None
    permit: str | None = None
    permit_expires_ms: int | None = None


class Jobs:
    """The jobs of all targets. Every method raises DatabaseError if SQL is unavailable, StoreError
    if Redis is unavailable, and UnknownNameError for unknown jobs and those of another owner.
    `owner` is None for operators, who see all jobs."""

    def __init__(
        self,
        targets: TargetRegistry,
        store: "JobStore",
        metrics: Metrics,
        changes: JobChanges,
    ) -> None:
        self.targets = targets
        self.store = store
        self.changes = changes
        self.metrics = metrics.of(JobMetrics)
        self._counts: dict[tuple[str, str], int] = {}
        self._counted_at = float("-inf")

    async def submit(
        self, owner: str, new: NewJob, *, needs_grant: bool = True
    ) -> tuple[JobView, bool]:
        """Submit a job. Return the stored job and True, or the earlier job with the same
        idempotency key and False. Unless `needs_grant`, the owner may choose any class. Raises
        GrantNeededError, IdempotencyKeyUsedError, InputError, QueueFullError."""
        target, key = self.targets.get(new.target), new.idempotency_key
        # Checked first, because for a repeated request the queue may be full, or the grant spent.
        if key and (earlier := await self.store.jobs.find_by_key(owner, key)):
            return await self.view_one(await self._check_same_job(earlier, new)), False
        if not target.clock.is_known:  # each reply of Redis sets the clock
            await target.store.inspect([], target.settings)
        now_ms = target.clock.now_ms()
        if new.class_name and not new.grant and not needs_grant:
            grant, class_name = None, _check_class(new.class_name, target)
        else:
            grant = _read_grant(new, target, now_ms)
            class_name = grant.class_name if grant else ""
        id_, due_ms = make_job_id(), new.find_due_ms(now_ms)
        queue_order = await self._reserve(target, id_, class_name, due_ms)
        values = {name: getattr(new, name) for name in _COMMON_FIELDS} | {"class_name": class_name}
        job = Job(
            id=id_,
            owner=owner,
            created_ms=now_ms,
            expires_ms=(due_ms or now_ms) + to_ms(target.settings.pending_ttl),
            not_before_ms=due_ms,
            queue_order=queue_order,
            fingerprint=new.fingerprint if key else "",
            **values,
        )
        # Derived from the key, so that two concurrent requests for one job spend its grant once.
        spender = hashlib.sha256(f"{owner} {key}".encode()).hexdigest() if key else id_
        try:
            if grant and grant.id:
                until_ms = grant.expires_s * 1000
                if not await target.store.spend_grant(grant.id, spender, until_ms):
                    raise GrantNeededError("The grant was used for another job.")  # noqa: TRY301
            written = await self.store.jobs.insert(job)
        except BaseException:
            with contextlib.suppress(StoreError):  # a reservation expires by itself
                # With a key, the grant remains spent, but a repeated request may use it again.
                if grant and grant.id and not key:
                    await target.store.return_grant(grant.id, id_)
                await target.store.unreserve(id_)
            raise
        if written.id != id_:  # a concurrent request submitted the same job
            with contextlib.suppress(StoreError):
                await target.store.unreserve(id_)
            return await self.view_one(await self._check_same_job(written, new)), False
        self._count_job(target, "submitted")
        return await self._enqueue(target, written), True

    async def _check_same_job(self, earlier: Job, new: NewJob) -> Job:
        """Return the earlier job. Raises IdempotencyKeyUsedError if the new job is different."""
        if earlier.fingerprint != new.fingerprint:
            body = await self.store.jobs.read_request_body(earlier.id)
            if not new.has_equal_content(earlier, body):
                raise IdempotencyKeyUsedError(
                    "This idempotency_key names another job: its content was different."
                )
        return earlier

    async def _enqueue(self, target: Target, job: Job) -> JobView:
        """Add a stored job to the queue. If Redis is unavailable, the reconciler adds the job."""
        entry = QueueEntry(job.id, job.queue_order, job.kind == "online", job.not_before_ms)
        try:
            [(queue, place)] = await target.store.add([entry], target.settings)
        except StoreError:
            return JobView(job, job.state)
        return _make_view(job, target, queue, place)

    def _count_job(self, target: Target, state: str) -> None:
        self.metrics.jobs.labels(target.name, state).inc()

    async def _reserve(
        self, target: Target, id_: str, class_name: str, due_ms: int | None = None
    ) -> int:
        """Reserve a place in the queue, and return its order. Raises QueueFullError."""
        queue_order = await target.store.reserve(id_, class_name, target.settings, due_ms=due_ms)
        if queue_order is None:
            self._count_job(target, "refused")
            raise QueueFullError(
                f"{target.settings.max_pending} jobs wait for {target.name} (max_pending), "
                "and no more are taken."
            )
        return queue_order

    async def find(self, id_: str, owner: str | None) -> Job:
        """Return a job without its body. Raises UnknownNameError."""
        job = await self.store.jobs.find(id_)
        if job is None or (owner is not None and job.owner != owner):
            raise UnknownNameError("job", id_)
        return job

    async def view(self, jobs: Sequence[Job]) -> list[JobView]:
        """Return the current state and position of each of these jobs, in the same order."""
        ids_by_target: dict[str, list[str]] = {}
        for job in jobs:
            if not job.is_ended:
                ids_by_target.setdefault(job.target, []).append(job.id)
        places: dict[str, tuple[Target, QueueState, QueuePlace]] = {}
        for name, ids in ids_by_target.items():
            if (target := self.targets.find(name)) is not None:
                queue, found = await target.store.inspect(ids, target.settings)
                places |= {
                    id_: (target, queue, place) for id_, place in zip(ids, found, strict=True)
                }
        return [
            _make_view(job, *places[job.id]) if job.id in places else JobView(job, job.state)
            for job in jobs
        ]

    async def view_one(self, job: Job) -> JobView:
        """Return the view of a job, without its position if Redis is unavailable."""
        try:
            [view] = await self.view([job])
        except StoreError:
            return JobView(job, job.state)
        return view

    async def count_jobs(self) -> dict[tuple[str, str], int]:
        """Return the number of jobs by (target, state). It is cached for COUNTS_TTL_S."""
        if time.monotonic() - self._counted_at >= COUNTS_TTL_S:
            self._counts = await self.store.jobs.count_by_state()
            self._counted_at = time.monotonic()
        return self._counts

    async def mark_read(self, job: Job) -> None:
        """Let a job whose result was read expire soon, if its target has `delete_after_read`."""
        target = self.targets.find(job.target)
        if target is None or not target.settings.delete_after_read:
            return
        if job.read_ms is None and job.is_ended:
            now_ms = target.clock.now_ms()
            expires_ms = min(job.expires_ms, now_ms + READ_GRACE_MS)
            await self.store.jobs.mark_read(job.id, at_ms=now_ms, expires_ms=expires_ms)

    async def cancel(self, id_: str, owner: str | None) -> State:
        """Cancel a job. Return CANCELLED, or PROCESSING if the job's call is being aborted. Raises
        WrongStateError if the job has ended, or if its call has begun and cannot be aborted."""
        job = await self.find(id_, owner)
        target = self.targets.find(job.target)
        if not job.is_ended:
            now_ms = target.clock.now_ms() if target else job.created_ms
            expires_ms = now_ms + (to_ms(target.settings.result_ttl) if target else 0)
            if await self.store.jobs.cancel(id_, at_ms=now_ms, expires_ms=expires_ms):
                job.state = State.CANCELLED
                self.changes.announce(id_)
                if target is not None:
                    self._count_job(target, "cancelled")
            else:
                job = await self.find(id_, owner)
        if job.state is State.CANCELLED:
            if target is not None:
                await target.store.remove(id_)  # repeated, in case Redis was unavailable before
            return State.CANCELLED
        if job.is_ended:
            raise WrongStateError(f"The job has ended: it is {job.state}.")
        if target is None or not target.settings.abort or job.kind == "online":
            raise WrongStateError(
                "The call was begun, and its target does not let calls be cut off."
            )
        if not await target.store.abort(id_):
            # No worker has the job any more, so no worker would end it.
            if await self.finish(target.make_abort_ending(id_, job.fence)):
                self._count_job(target, "cancelled")
                await target.store.remove(id_)
                return State.CANCELLED
            await target.store.abort(id_)
        return State.PROCESSING

    async def retry(self, id_: str, owner: str | None) -> Job:
        """Reset an ended job to pending, at the end of the queue and without its result. Raises
        WrongStateError or QueueFullError."""
        job = await self.find(id_, owner)
        target = self.targets.get(job.target)
        if not job.is_ended:
            raise WrongStateError(
                f"The job is {job.state}: it can be tried again when it has ended."
            )
        if job.kind not in target.settings.kinds:
            kinds = " and ".join(target.settings.kinds)
            raise WrongStateError(
                f"The job is {job.kind}, and {target.name} takes only {kinds} jobs now (kinds)."
            )
        queue_order = await self._reserve(target, id_, job.class_name)
        now_ms = target.clock.now_ms()
        expires_ms = now_ms + to_ms(target.settings.pending_ttl)
        if not await self.store.jobs.retry(
            id_, order=queue_order, at_ms=now_ms, expires_ms=expires_ms
        ):
            await target.store.unreserve(id_)
            raise WrongStateError("The job was changed by somebody else meanwhile.")
        job.queue_order = queue_order
        await self._enqueue(target, job)
        return await self.find(id_, owner)

    async def finish(self, ending: AttemptEnd) -> bool:
        """Write an attempt's ending, and announce the job if it has ended. Return False if another
        attempt has the job. Idempotent."""
        is_written = await self.store.attempts.finish(ending)
        if is_written and ending.state in ENDED_STATES:
            self.changes.announce(ending.id)
        return is_written

    async def record_calls(self, target: Target, claims: Sequence[Claim]) -> None:
        """Write to SQL that online jobs were called. Release jobs that have ended meanwhile. Skip
        jobs that another transaction has locked: SQL learns of the calls when permits are used."""
        now_ms = target.clock.now_ms()
        for claim in claims:
            with contextlib.suppress(DatabaseLockedError):
                if not await self.store.attempts.mark_called(claim.id, claim.fence, at_ms=now_ms):
                    await target.store.drop(
                        [(claim.id, claim.fence)], target.settings, wake_others=True
                    )
                    continue
            self.changes.announce(claim.id)

    async def record_permit_use(self, target: Target, id_: str, fence: int) -> None:
        """Write to SQL that a job's permit was used, so that its call has begun."""
        await self.store.attempts.mark_permit_used(id_, fence, at_ms=target.clock.now_ms())

    async def report_end(self, id_: str, owner: str | None) -> Job:
        """End an online job whose client reports the end of its call. Raises WrongStateError."""
        job = await self.find(id_, owner)
        if job.kind != "online":
            raise WrongStateError("A worker makes this call, and says when it is over.")
        if not job.is_ended:
            [view] = await self.view([job])
            if view.state not in {State.CALLED, State.PROCESSING}:
                raise WrongStateError("The job was not called yet.")
            await self.end_call(self.targets.get(job.target), id_, job.fence)
        return await self.find(id_, owner)

    async def end_call(
        self, target: Target, id_: str, fence: int, *, status: int | None = None
    ) -> bool:
        """End an online job and its call: in Redis first, so that the slot becomes free even while
        SQL is unavailable. Return False if Redis has no such call."""
        has_failed = status is not None and target.settings.fails_on(status)
        is_ended = await target.store.end_call(id_, fence, has_failed=has_failed)
        if is_ended:  # the use of the permit may not be in SQL yet
            await self.record_permit_use(target, id_, fence)
        state = State.FAILED if has_failed else State.COMPLETED
        error = describe_status(status, is_online=True) if status and has_failed else ""
        ending = target.make_ending(id_, fence, state, error, status)
        if await self.finish(ending):
            self._count_job(target, state)
            self.metrics.count_response(target.name, status)
        return is_ended


#: The key of the jobs in an application, which has none if no targets are configured.
JOBS = web.AppKey("jobs", Jobs)


def _check_class(class_name: str, target: Target) -> str:
    """Return the class name. Raises InputError if the target does not have this class."""
    if class_name not in target.settings.classes:
        names = ", ".join(target.settings.classes) or "none"
        raise InputError([f"class: {target.name} has none of this name; it has {names}"])
    return class_name


def _read_grant(new: NewJob, target: Target, now_ms: int) -> Grant | None:
    """Return the verified grant of a new job, or None if the job has no grant and no class. Raises
    GrantNeededError if the grant is missing, invalid or for another class."""
    class_name = new.class_name
    if not new.grant:
        if class_name:
            raise GrantNeededError(
                f"A class needs a grant: send one for {class_name!r}, signed for {target.name}."
            )
        return None
    try:
        grant = target.grants.read(new.grant, now_ms)
    except GrantError as error:
        hint = " It was signed without its kind, target: sign a new one."
        text = f"The grant is {error.reason}.{hint if error.reason == 'outdated' else ''}"
        raise GrantNeededError(text) from None
    if class_name and class_name != grant.class_name:
        raise GrantNeededError(f"The grant is for {grant.class_name}, not for {class_name!r}.")
    if grant.class_name not in target.settings.classes:
        names = ", ".join(target.settings.classes) or "none"
        raise GrantNeededError(f"{target.name} has no class {grant.class_name} (it has: {names}).")
    return grant


def _make_view(job: Job, target: Target, queue: QueueState, place: QueuePlace) -> JobView:
    """Return a job's view from its row and its place in the queue, which is more up to date."""
    if place.where in {"line", "later"} and job.state in WAITING_STATES:
        if place.where == "later":
            if not job.attempts:
                return JobView(job, State.PENDING, run_ms=place.ends_ms)
            return JobView(job, State.PENDING, retry_ms=place.ends_ms)
        if place.position is None or target.settings.paused:
            return JobView(job, State.PENDING, place.position)
        wait_s = estimate_wait_s(target.settings, queue, place.position)
        return JobView(job, State.PENDING, place.position, wait_s)
    if place.where == "called" and job.kind == "online":
        ends_ms = place.ends_ms or queue.now_ms
        job.fence = place.fence
        permit = target.permits.write(job.id, place.fence, ends_ms)
        return JobView(job, State.CALLED, permit=permit, permit_expires_ms=ends_ms)
    if place.where in {"used", "running"}:
        job.fence = max(job.fence, place.fence)
        return JobView(job, State.PROCESSING)
    return JobView(job, job.state)
