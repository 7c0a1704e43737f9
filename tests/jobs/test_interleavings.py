"""What happens between two steps of a job: the queue is lost, a worker goes, a target is made
again. Each at its exact moment, within one process."""

import asyncio
import contextlib
import socket
import ssl
import subprocess
import time
from unittest.mock import AsyncMock

import pytest
from structlog.testing import capture_logs

from sidecar.jobs import retry_policy
from sidecar.jobs.call_result import CallResult
from sidecar.jobs.metrics import JobMetrics
from sidecar.jobs.model import AttemptEnd, Job, QueueEntry, State, make_job_id
from sidecar.jobs.store.due_jobs import BYTES_PER_DELETE
from sidecar.jobs.store.target_queue import LOCK_S
from sidecar.jobs.worker import reconciler, target_worker
from sidecar.jobs.worker.target_call import Egress, LateCallError
from sidecar.jobs.worker.target_worker import LATE_WARNING_ATTEMPT, WorkerPool
from sidecar.kit.egress import open_session
from sidecar.kit.errors import StoreError
from tests.jobs.bench import fail, running, until

MIB = 1 << 20


async def begun(here, target, id_, *, fence=None):
    """A worker has the job, and is not heard of again. Its fence."""
    if fence is None:
        claimed = await target.store.claim(1, target.settings)
        [fence] = [claim.fence for claim in claimed.claims if claim.id == id_]
    [job] = await here.store.attempts.start([(id_, fence)], at_ms=here.time())
    return job.fence


# The queue is lost between a claim and its call ---------------------------------------------------


def lost_once(here, target, *, seconds=0.0):
    """The queue is lost, and built again, just before the next job is begun; which takes so
    long."""

    async def lose(claims, *, at_ms):
        here.store.attempts.start = start
        await here.lose_line(target)
        await asyncio.sleep(seconds)
        return await start(claims, at_ms=at_ms)

    start, here.store.attempts.start = here.store.attempts.start, lose


async def test_a_worker_that_gets_its_own_job_again_cuts_the_older_call_off(here, monkeypatch):
    """A job is in the new queue though its worker calls by the old one: never two calls of one job
    at a time."""
    monkeypatch.setattr(target_worker, "SLOW_START_S", 60)  # it looks like a quick one
    target = await here.target()
    id_ = await here.submit(target)
    worker = here.worker(target)
    lost_once(here, target)
    await worker._claim_jobs()
    await until(lambda: here.egress.called == [id_])
    await worker._claim_jobs()
    await until(lambda: here.egress.called == [id_] * 2)
    assert here.egress.most == 1
    here.egress.over.set()
    await until(lambda: not len(worker))
    assert (await here.row(id_)).state == State.COMPLETED
    assert (await here.line(target)).active == 0


async def test_a_worker_that_was_slow_to_begin_asks_whether_the_job_is_still_its_own(here):
    """Meanwhile the queue was lost and the job is another worker's: only that one calls."""
    target = await here.target()
    id_ = await here.submit(target)
    first, second = here.worker(target), here.worker(target)
    lost_once(here, target, seconds=target_worker.SLOW_START_S)
    await first._claim_jobs()
    await second._claim_jobs()
    await until(lambda: bool(here.egress.called))
    assert (len(first), len(second), here.egress.called) == (0, 1, [id_])
    here.egress.over.set()
    await until(lambda: not len(second))
    assert (await here.row(id_)).state == State.COMPLETED


# The reconciler -----------------------------------------------------------------------------------


async def test_a_call_that_is_too_late_for_strict_is_made_later(here):
    """It was not sent, so it is no failure; the next claim makes it, in a time of its own."""
    target = await here.target(strict=True, rate=5, kinds=["offline"])
    windows = []

    async def call(_settings, job, *, window, **_):
        windows.append(window)
        if len(windows) == 1:
            raise LateCallError
        return CallResult("answered", status=200)

    here.egress.call = call
    id_ = await here.submit(target)
    async with running(here.worker(target).run()):
        while not (row := await here.row(id_)).is_ended:
            await asyncio.sleep(0.01)
            here.time.forward(0.1)
    assert (row.state, row.failures) == (State.COMPLETED, 0)
    late, sent = windows
    assert late.from_s < late.until_s
    assert late.from_s < sent.from_s


async def test_a_call_that_is_always_too_late_for_strict_is_warned_of(here):
    """It would be claimed again and again until its job expires, and nobody would know why."""
    target = await here.target(strict=True, rate=5, kinds=["offline"])
    here.egress.call = AsyncMock(side_effect=LateCallError)
    id_ = await here.submit(target)
    with capture_logs() as logs:
        async with running(here.worker(target).run()), asyncio.timeout(20):
            while (await here.row(id_)).attempts < LATE_WARNING_ATTEMPT + 1:
                await asyncio.sleep(0.01)
                here.time.forward(0.1)
    late = [entry for entry in logs if entry["event"] == "call_too_late"]
    levels = [(entry["log_level"], "hint" in entry) for entry in late[:LATE_WARNING_ATTEMPT]]
    assert levels == [("info", False)] * (LATE_WARNING_ATTEMPT - 1) + [("warning", True)]


#: How long a server waits with the TLS handshake of a connection, in seconds.
HANDSHAKE_S = 0.5


async def serve_slowly(listener: socket.socket, context: ssl.SSLContext) -> None:
    """Accept connections whose TLS handshake begins late, as from far away. Respond 200."""
    loop = asyncio.get_running_loop()

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    async def shake_hands(connection: socket.socket) -> None:
        await asyncio.sleep(HANDSHAKE_S)
        await loop.connect_accepted_socket(
            lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader(), respond),
            connection,
            ssl=context,
        )

    async with asyncio.TaskGroup() as group:
        while True:
            connection, _ = await loop.sock_accept(listener)
            group.create_task(shake_hands(connection))


async def test_a_strict_target_far_away_is_called_at_a_low_rate(here, tmp_path):
    """Opening a connection takes longer than a claimed call may wait, and none stays open until the
    next claim: so it is opened before the claim."""
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
         "-nodes", "-days", "1", "-subj", "/CN=localhost", "-addext",
         "subjectAltName=DNS:localhost", "-keyout", key, "-out", cert],
        check=True, capture_output=True,
    )  # fmt: skip
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(cert, key)
    here.egress = egress = Egress()
    await egress._private.close()
    egress._private = open_session(is_private=True, verify=ssl.create_default_context(cafile=cert))
    here.time = lambda: round(time.time() * 1000)
    with socket.create_server(("localhost", 0)) as listener:
        listener.setblocking(False)
        target = await here.target(
            url=f"https://localhost:{listener.getsockname()[1]}/", private=True,
            strict=True, rate=1, window="2s", kinds=["offline"],
        )  # fmt: skip
        ids = [await here.submit(target) for _ in range(2)]
        async with (
            running(serve_slowly(listener, context)),
            running(here.worker(target).run()),
            asyncio.timeout(40),
        ):
            while not all([(await here.row(id_)).is_ended for id_ in ids]):
                await asyncio.sleep(0.05)
    await egress.close()
    rows = [await here.row(id_) for id_ in ids]
    assert [(row.state, row.failures) for row in rows] == [(State.COMPLETED, 0)] * 2


async def test_what_ended_while_redis_was_away_leaves_the_queue(here):
    """Cancelled or removed in the database alone; also what waits for its next try. The others
    stay."""
    target = await here.target(retry_delay="1h")
    stays, cancelled, later = [await here.submit(target) for _ in range(3)]
    await target.store.remove(later)
    await here.store.jobs.cancel(cancelled, at_ms=here.time(), expires_ms=here.time())
    await here.store.jobs.cancel(later, at_ms=here.time(), expires_ms=here.time())
    entry = QueueEntry(later, 9, False, here.time() + 60_000)
    await target.store.add([entry], target.settings)
    assert ((line := await here.line(target)).waiting, line.later) == (2, 1)
    await here.reconciler._reconcile(target)
    assert ((line := await here.line(target)).waiting, line.later) == (1, 0)
    assert (await here.place(target, stays)).position == 1


async def test_a_job_that_ended_while_its_queue_was_built_again_has_no_slot(here):
    """The reconciler read it as running just before: its slot is free for the next one all the
    same."""
    target = await here.target(concurrency=1)
    id_ = await here.submit(target)
    fence = await begun(here, target, id_)
    read = await here.store.attempts.list_running_jobs(target.name)
    now_ms = here.time()
    assert await here.store.attempts.finish(
        AttemptEnd(id_, fence, State.COMPLETED, now_ms, now_ms + 1000)
    )
    await here.lose_line(target)
    await here.reconciler.queues.restore_calls(target, read)
    assert (await here.line(target)).active == 0
    following = await here.submit(target)
    claimed = await target.store.claim(1, target.settings)
    assert [claim.id for claim in claimed.claims] == [following]


async def test_a_clean_goes_on_when_redis_is_away(here):
    """What waited too long expires all the same."""
    target = await here.target(pending_ttl="1s")
    id_ = await here.submit(target)
    target.store.remove = AsyncMock(side_effect=StoreError("remove: away"))
    here.time.forward(2)
    await target.store.claim(0, target.settings.with_changes({"paused": True}))
    assert (await here.reconciler.clean())[0] == 1
    assert (await here.row(id_)).state == State.EXPIRED


def measured(here):
    """The targets that have metrics."""
    families = here.jobs.metrics.targets.collect()
    return {sample.labels["target"] for family in families for sample in family.samples}


async def test_a_removed_target_has_no_metrics_any_more(here):
    """From the moment when its reconciler stops."""
    target = await here.target()
    async with running(here.reconciler.run()):
        await until(lambda: target.name in measured(here))
        await here.targets.restore(target.name)
        here.wake_ups.wake(f"settings {target.name}")
        await until(lambda: target.name not in measured(here))


async def test_old_results_are_removed_some_megabytes_at_a_time(here):
    """At most about 16 MiB, but always one; all of them go in the end."""
    now_ms = here.time()

    async def ended(size):
        id_ = make_job_id()
        await here.store.jobs.insert(Job(id_, "service", "t", "offline", 1, now_ms, 1))
        await here.store.attempts.start([(id_, 1)], at_ms=2)
        await here.store.attempts.finish(AttemptEnd(id_, 1, State.COMPLETED, 3, 4, size=size))

    await asyncio.gather(*(ended(4 * MIB) for _ in range(6)))
    assert BYTES_PER_DELETE == 16 * MIB
    assert [await here.store.due_jobs.delete_old_jobs(now_ms, 500) for _ in range(3)] == [4, 2, 0]
    await asyncio.gather(ended(BYTES_PER_DELETE * 2), ended(BYTES_PER_DELETE * 2))
    assert [await here.store.due_jobs.delete_old_jobs(now_ms, 500) for _ in range(3)] == [1, 1, 0]


# Workers that are gone ----------------------------------------------------------------------------


async def test_a_job_whose_worker_is_gone_is_cancelled_at_once(here):
    """It is in the queue again, and nobody is there to cut its call off."""
    target = await here.target(abort=True)
    id_ = await here.submit(target)
    await begun(here, target, id_)
    here.time.forward(LOCK_S + 1)
    await target.store.claim(0, target.settings)
    assert await here.jobs.cancel(id_, "service") == State.CANCELLED
    assert (await here.row(id_)).state == State.CANCELLED
    assert ((line := await here.line(target)).waiting, line.active) == (0, 0)


async def test_a_job_that_a_worker_has_is_cut_off_by_it(here):
    """It is not cancelled behind its back."""
    target = await here.target(abort=True)
    id_ = await here.submit(target)
    fence = await begun(here, target, id_)
    assert await here.jobs.cancel(id_, "service") == State.PROCESSING
    assert (await here.row(id_)).state == State.PROCESSING
    assert await target.store.renew([(id_, fence)]) == ["abort"]


@pytest.mark.parametrize(("more", "state"), [(0, State.COMPLETED), (1, State.FAILED)])
async def test_a_job_outlives_some_workers(here, more, state):
    """As many as it has retries, and five more; then it fails, and is not called again."""
    target = await here.target(retries=1)
    id_ = await here.submit(target)
    for fence in range(1, 1 + 1 + retry_policy.MAX_LOST_WORKERS + more):
        await begun(here, target, id_, fence=fence)
    here.egress.over.set()
    worker = here.worker(target)
    await worker._claim_jobs()
    await until(lambda: not len(worker))
    row = await here.row(id_)
    assert (row.state, here.egress.called) == (state, [id_] * (1 - more))
    assert ("were gone" in row.error) is bool(more)
    assert ((line := await here.line(target)).waiting, line.active) == (0, 0)


# Target workers and reconcilers go on -------------------------------------------------------------


async def test_an_error_in_a_turn_does_not_end_the_target_worker(here, monkeypatch):
    """Whatever it is: calls under way go on, and new ones are begun."""
    monkeypatch.setattr(target_worker, "ERROR_PAUSE_S", 0.01)
    target = await here.target()
    first = await here.submit(target)
    async with running(here.worker(target).run()) as task:
        await until(lambda: here.egress.called == [first])
        claim = fail(monkeypatch, target.store, "claim", RuntimeError("nobody foresaw it"), 1)
        second = await here.submit(target)
        here.wake_ups.wake(target.name)
        await until(lambda: task.done() or here.egress.called == [first, second])
        assert (claim.await_count > 1, task.done(), here.egress.open) == (True, False, 2)


async def test_an_online_job_that_ended_meanwhile_ends_no_target_worker_where_redis_is_away(here):
    """Its call cannot be given back: that is for later, and offline jobs are called."""
    target = await here.target(kinds=["offline", "online"])
    online = await here.submit(target, kind="online")
    await here.store.jobs.cancel(online, at_ms=here.time(), expires_ms=here.time())
    target.store.drop = AsyncMock(side_effect=StoreError("release: away"))
    assert await here.worker(target)._claim_jobs() == target_worker.ERROR_PAUSE_S


async def again(here, target):
    """The target deleted and made again, with other settings."""
    assert await here.targets.restore(target.name) is None
    made = await here.make(target.name, concurrency=2)
    assert made is not target
    return made


async def test_a_target_that_is_made_again_is_kept(here, monkeypatch):
    """By its own settings, however soon that was."""
    monkeypatch.setattr(reconciler, "REFRESH_S", 0.01)
    old = await here.target()
    async with running(here.reconciler._refresh_forever()):
        await until(lambda: old.store.claims[0] > 0)
    new = await again(here, old)  # between two looks of the keeper
    async with running(here.reconciler._refresh_forever()):
        await until(lambda: new.store.claims[0] > 0)
        assert here.reconciler._tasks[new.name][0] is new
    for _, task in here.reconciler._tasks.values():
        task.cancel()


async def test_a_target_that_is_made_again_is_called_at_once(here):
    """While a call of the old one goes on, which is not cut off."""
    old = await here.target()
    first = await here.submit(old)
    workers = WorkerPool(here.jobs, here.wake_ups, here.egress, max_calls=5)
    stop = asyncio.Event()
    async with running(workers.run(stop, grace_s=5, poll_s=0.01)) as task:
        await until(lambda: here.egress.called == [first])
        new = await again(here, old)
        await until(lambda: new.store.claims[1] > 0)
        second = await here.submit(new)
        here.wake_ups.wake(new.name)
        await until(lambda: here.egress.called == [first, second])
        assert here.egress.open == 2
        here.egress.over.set()
        stop.set()
        await asyncio.wait_for(task, 5)
    assert {(await here.row(id_)).state for id_ in (first, second)} == {State.COMPLETED}


async def test_answers_are_counted_by_their_status(here):
    """A worker's, and what nginx said of an online call, which one in retry_on or fail_on fails."""
    target = await here.target(fail_on=[404])
    counted = here.metrics.of(JobMetrics).job_responses
    await here.submit(target)
    here.egress.over.set()
    worker = here.worker(target)
    await worker._claim_jobs()
    await until(lambda: not len(worker))
    assert counted.labels(target.name, "200")._value.get() == 1
    ends = {200: "completed", 404: "failed", 502: "failed", None: "completed"}
    for status, state in ends.items():
        id_ = await here.submit(target, kind="online")
        [claim] = (await target.store.claim(0, target.settings)).claims
        assert await here.jobs.end_call(target, id_, claim.fence, status=status)
        row = await here.row(id_)
        assert (row.state, row.status) == (state, status)
    assert counted.labels(target.name, "200")._value.get() == 2
    assert counted.labels(target.name, "502")._value.get() == 1
    assert (await here.line(target)).counters["failed"] == 2


# Time ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [{}, {"rate": 5, "window": 1}], ids=["no rate", "a rate"])
async def test_a_clock_that_jumps_back_stops_no_calls(here, settings):
    """Redis', by an hour."""
    target = await here.target(**settings)
    await target.store.claim(1, target.settings)
    id_ = await here.submit(target)
    here.time.forward(-3600)
    claimed = await target.store.claim(1, target.settings)
    assert [claim.id for claim in claimed.claims] == [id_]
