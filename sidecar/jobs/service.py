"""Jobs: what clients may do with them. Workers make the calls (worker/target_worker.py)."""

import contextlib
import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from sidecar.http.metrics import Metrics
from sidecar.http.problem_kinds import QUEUE_FULL
from sidecar.http.problems import ProblemError
from sidecar.jobs.metrics import JobMetrics
from sidecar.jobs.model import READ_GRACE_MS, WAITS, Job, Kind, State, ms, new_job_id
from sidecar.jobs.request import Call
from sidecar.jobs.schemas import GRANT_NEEDED, IDEMPOTENCY_KEY_USED, WRONG_STATE
from sidecar.jobs.store.target_replies import Claim, Place, QueueState, Release, Waiting
from sidecar.jobs.targets import Target, Targets, wait_s
from sidecar.kit.errors import StoreError, UnknownNameError
from sidecar.visitors.grants import Grant, GrantError

if TYPE_CHECKING:  # SQL is an extra
    from sidecar.jobs.store.job_store import JobStore

#: `Retry-After` of a full queue, seconds.
FULL_RETRY_S = 60
#: How old counts of all jobs may be, seconds.
COUNTS_S = 2.0


@dataclass(frozen=True, slots=True)
class Order:
    """A job as it is submitted; its call was checked (request.py)."""

    target: Target
    kind: Kind = "offline"
    call: Call = field(default_factory=Call)
    class_name: str = ""
    grant: str = ""
    idempotency_key: str | None = None
    callback_url: str | None = None

    @property
    def fingerprint(self) -> str:
        """The same for the same content. Without the grant, which is signed anew each time."""
        call = self.call
        request = [call.method, call.path, call.query, sorted(call.headers.items())]
        content = [self.target.name, self.kind, *request, self.class_name, self.callback_url]
        return hashlib.sha256(json.dumps(content).encode() + b"\0" + call.body).hexdigest()


@dataclass(frozen=True, slots=True)
class Seen:
    """A job as it stands now. Without a place where it has ended, or Redis is unavailable."""

    job: Job
    state: State
    position: int | None = None
    wait_s: float | None = None
    #: It is not retried before.
    retry_ms: int | None = None
    permit: str | None = None
    permit_expires_ms: int | None = None


class Jobs:
    """Every method raises DatabaseError and StoreError where SQL or Redis is unavailable, and
    UnknownNameError for a job of another `owner`; None is the operator, who has all."""

    def __init__(self, targets: Targets, store: "JobStore", metrics: Metrics) -> None:
        self.targets = targets
        self.store = store
        self.metrics = metrics.of(JobMetrics)
        self._counts: dict[tuple[str, str], int] = {}
        self._counted_at = float("-inf")

    async def submit(self, owner: str, order: Order) -> tuple[Job, bool]:
        """The job, and whether it is new: the same idempotency key names the same job. When this
        has returned, the job is in the database, and nothing that happens loses it.

        Raises ProblemError.
        """
        target, key = order.target, order.idempotency_key
        # Before all else: the queue may be full by now, and the grant expired or spent for this.
        if key and (known := await self.store.jobs.find_by_key(owner, key)):
            return _same(known, order), False
        now_ms = target.clock.now_ms()
        grant = _grant_of(order, now_ms)
        class_name = grant.class_name if grant else ""
        id_ = new_job_id()
        queue_order = await self._reserve(target, id_, class_name)
        job = Job(
            id=id_,
            owner=owner,
            target=target.name,
            kind=order.kind,
            created_ms=now_ms,
            expires_ms=now_ms + ms(target.settings.pending_ttl),
            queue_order=queue_order,
            class_name=class_name,
            idempotency_key=key,
            fingerprint=order.fingerprint,
            callback_url=order.callback_url,
            **asdict(order.call),
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
            return _same(written, order), False
        self._count(target, "submitted")
        await self._enqueue(target, written)
        return written, True

    async def _enqueue(self, target: Target, job: Job) -> None:
        """The database has it: should Redis be unavailable, the reconciler does this."""
        with contextlib.suppress(StoreError):
            await target.store.add([Waiting(job.id, job.queue_order, job.kind == "online")])

    def _count(self, target: Target, state: str) -> None:
        self.metrics.jobs.labels(target.name, state).inc()

    async def _reserve(self, target: Target, id_: str, class_name: str) -> int:
        """A job's order in the queue. Raises ProblemError where that is full."""
        queue_order = await target.store.reserve(id_, class_name, target.settings)
        if queue_order is None:
            self._count(target, "refused")
            raise ProblemError(
                QUEUE_FULL,
                detail=f"{target.settings.max_pending} jobs wait for {target.name} (max_pending), "
                "and no more are taken.",
                retry_after=FULL_RETRY_S,
            )
        return queue_order

    async def find(self, id_: str, owner: str | None) -> Job:
        job = await self.store.jobs.find(id_)
        if job is None or (owner is not None and job.owner != owner):
            raise UnknownNameError("job", id_)
        return job

    async def see(self, jobs: Sequence[Job]) -> list[Seen]:
        """These jobs with their places, in this order."""
        by_target: dict[str, list[str]] = {}
        for job in jobs:
            if not job.is_ended:
                by_target.setdefault(job.target, []).append(job.id)
        found: dict[str, tuple[Target, QueueState, Place]] = {}
        for name, ids in by_target.items():
            if (target := self.targets.find(name)) is not None:
                line, places = await target.store.look(ids, target.settings)
                found |= {id_: (target, line, at) for id_, at in zip(ids, places, strict=True)}
        return [
            _seen(job, *found[job.id]) if job.id in found else Seen(job, job.state) for job in jobs
        ]

    async def counts(self) -> dict[tuple[str, str], int]:
        """By target and state, some seconds old at most: each job is counted."""
        if time.monotonic() - self._counted_at >= COUNTS_S:
            self._counts = await self.store.jobs.counts()
            self._counted_at = time.monotonic()
        return self._counts

    async def was_read(self, job: Job) -> None:
        """The owner has the result: it is deleted soon where the target's settings say so."""
        target = self.targets.find(job.target)
        if target is None or not target.settings.delete_after_read:
            return
        if job.read_ms is None and job.is_ended:
            now_ms = target.clock.now_ms()
            expires_ms = min(job.expires_ms, now_ms + READ_GRACE_MS)
            await self.store.jobs.mark_read(job.id, at_ms=now_ms, expires_ms=expires_ms)

    async def cancel(self, id_: str, owner: str | None) -> State:
        """CANCELLED, or PROCESSING where the call is being cut off. Raises ProblemError where it
        has ended, or the target does not let calls be cut off."""
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
            raise ProblemError(WRONG_STATE, detail=f"The job has ended: it is {job.state}.")
        if target is None or not target.settings.abort or job.kind == "online":
            raise ProblemError(
                WRONG_STATE,
                detail="The call was begun, and its target does not let calls be cut off.",
            )
        if not await target.store.abort(id_):
            # Its worker is gone: none would learn of it.
            if await self.store.attempts.finish(target.aborted(id_, job.fence)):
                self._count(target, "cancelled")
                await target.store.remove(id_)
                return State.CANCELLED
            await target.store.abort(id_)
        return State.PROCESSING

    async def retry(self, id_: str, owner: str | None) -> Job:
        """A job that has ended in any state waits again, at the end of the queue; its result is
        forgotten."""
        job = await self.find(id_, owner)
        target = self.targets.get(job.target)
        if not job.is_ended:
            raise ProblemError(
                WRONG_STATE,
                detail=f"The job is {job.state}: it can be tried again when it has ended.",
            )
        queue_order = await self._reserve(target, id_, job.class_name)
        now_ms = target.clock.now_ms()
        expires_ms = now_ms + ms(target.settings.pending_ttl)
        if not await self.store.jobs.retry(
            id_, order=queue_order, at_ms=now_ms, expires_ms=expires_ms
        ):
            await target.store.unreserve(id_)
            raise ProblemError(
                WRONG_STATE, detail="The job was changed by somebody else meanwhile."
            )
        job.queue_order = queue_order
        await self._enqueue(target, job)
        return await self.find(id_, owner)

    # Online jobs ------------------------------------------------------------------------------

    async def called(self, target: Target, claims: Sequence[Claim]) -> None:
        """These were called, and have their permits unless they ended meanwhile."""
        now_ms = target.clock.now_ms()
        for claim in claims:
            if not await self.store.attempts.set_called(claim.id, claim.fence, at_ms=now_ms):
                over = Release(claim.id, claim.fence, "gone")
                await target.store.release([over], target.settings, wakes=True)

    async def used(self, target: Target, id_: str, fence: int) -> None:
        """The permit was used: the call has begun."""
        await self.store.attempts.set_used(id_, fence, at_ms=target.clock.now_ms())

    async def done(self, id_: str, owner: str | None) -> Job:
        """The client reports that its call is over."""
        job = await self.find(id_, owner)
        if job.kind != "online":
            raise ProblemError(
                WRONG_STATE, detail="A worker makes this call, and says when it is over."
            )
        if not job.is_ended:
            [seen] = await self.see([job])
            if seen.state not in {State.CALLED, State.PROCESSING}:
                raise ProblemError(WRONG_STATE, detail="The job was not called yet.")
            await self.end(self.targets.get(job.target), id_, job.fence)
        return await self.find(id_, owner)

    async def end(self, target: Target, id_: str, fence: int, *, status: int | None = None) -> bool:
        """An online call is over. Redis first: its slot is free even while SQL is unavailable.
        Whether it was this call's end."""
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


def _grant_of(order: Order, now_ms: int) -> Grant | None:
    """Raises ProblemError where it does not give the class."""
    target, wanted = order.target, order.class_name
    if not order.grant:
        if wanted:
            raise ProblemError(
                GRANT_NEEDED,
                detail=f"A class needs a grant: send one for {wanted!r}, signed for {target.name}.",
            )
        return None
    try:
        grant = target.grants.read(order.grant, now_ms)
    except GrantError as error:
        hint = " It was signed without its kind, target: sign a new one."
        text = f"The grant is {error.word}.{hint if error.word == 'outdated' else ''}"
        raise ProblemError(GRANT_NEEDED, detail=text) from None
    if wanted and wanted != grant.class_name:
        raise ProblemError(
            GRANT_NEEDED, detail=f"The grant is for {grant.class_name}, not for {wanted!r}."
        )
    if grant.class_name not in target.settings.classes:
        known = ", ".join(target.settings.classes) or "none"
        raise ProblemError(
            GRANT_NEEDED, detail=f"{target.name} has no class {grant.class_name} (it has: {known})."
        )
    return grant


def _same(job: Job, order: Order) -> Job:
    """The job that has the order's idempotency_key. Raises ProblemError where it is another."""
    if job.fingerprint != order.fingerprint:
        raise ProblemError(
            IDEMPOTENCY_KEY_USED,
            detail="This idempotency_key names another job: its content was different.",
        )
    return job


async def _spend(target: Target, grant: Grant, spender: str) -> None:
    """A grant with an id gives its class to one job. Raises ProblemError."""
    if not await target.store.spend_grant(grant.id, spender, grant.expires_s * 1000):
        raise ProblemError(GRANT_NEEDED, detail="The grant was used for another job.")


def _seen(job: Job, target: Target, line: QueueState, place: Place) -> Seen:
    """Redis knows sooner than the database that a job was called."""
    if place.where in {"line", "later"} and job.state in WAITS:
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
