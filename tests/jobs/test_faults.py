"""What breaks while jobs are called: a worker, the target, Redis, a replica. (The database:
test_story.py.)

JOBS_FULL=1 in the environment lets the target be down for a minute; otherwise all of it takes
seconds.
"""

import asyncio
import os
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest.mock import AsyncMock

import pytest

from sidecar.jobs.call_result import CallResult
from sidecar.jobs.model import CHUNK_BYTES, Job, State, WrongStateError
from sidecar.jobs.store.target_queue import LOCK_S
from sidecar.jobs.worker import reconciler as reconcilers
from sidecar.jobs.worker import target_worker as workers
from sidecar.jobs.worker.reconciler import Reconciler
from sidecar.kit.errors import DatabaseLockedError, StoreError
from sidecar.storage.redis.leader_lease import LeaderLease
from tests.jobs.bench import fail, running, until
from tests.support.jobs import job as make_job
from tests.support.processes import wait_until
from tests.support.rooms import new_room_name
from tests.support.works import (
    JobSystem,
    SubmittedJob,
    count_most_open,
    count_most_within,
    count_overtaken,
)

IS_FULL = os.environ.get("JOBS_FULL") == "1"
DOWN_S = 60 if IS_FULL else 4
#: Calls of a target that one worker makes at a time, and how many workers there are.
AT_A_TIME, RUNNERS = 8, 3
#: Of the jobs that Redis forgets: how many wait, and how many calls there are in a window.
WAITING, RATE, WINDOW_US = 1000, 100, 400_000
#: Failures in a row that open the breaker, and calls at a time.
BREAK_AFTER, AT_ONCE = 3, 4

pytestmark = pytest.mark.timeout(900)


class Phase:
    """What a fault did: how the jobs of a target ended, and what the target noted."""

    def __init__(
        self, sent: list[SubmittedJob], rows: dict[str, Job], notes: list[dict[str, Any]]
    ) -> None:
        self.sent, self.rows = sent, rows
        ids = {one.id for one in sent}
        self.calls: dict[str, list[dict[str, Any]]] = {id_: [] for id_ in ids}
        for note in notes:
            if note["job"] in ids:
                self.calls[note["job"]].append(note)

    def states(self) -> Counter[str]:
        return Counter(row.state.value for row in self.rows.values())


# The worker ---------------------------------------------------------------------------------------


def kill_a_runner(works: JobSystem) -> Phase:
    """Each of them makes as many calls as it can, which take long; others wait behind them."""
    slow = range(AT_A_TIME * RUNNERS)
    orders = [{"target": "killed", "path": "slow", "query": f"seconds=5&n={n}"} for n in slow]
    orders += [{"target": "killed", "path": f"ok/{n}"} for n in range(20)]
    sent = works.submit_all(orders)
    wait_until(lambda: works.target.open() == AT_A_TIME * RUNNERS, "slow calls")
    works.runners[0].kill()
    rows = works.wait_for([one.id for one in sent])
    works.start_runner()
    return Phase(sent, rows, works.target.calls())


# The target ---------------------------------------------------------------------------------------


@dataclass
class Down:
    phase: Phase
    #: Of the time during which it was down.
    calls: int
    #: How its breaker was told to stand.
    seen: list[dict[str, Any]]


def take_the_target_down(works: JobSystem) -> Down:
    """A target that is made at run time; it closes each connection for a while."""
    target, operator = works.start_second_target(), works.caller("operator")
    # So late is a job tried again that the failures of three have opened the breaker by then.
    settings = {"url": target.url, "private": True, "concurrency": AT_ONCE, "retries": 1,
                "retry_delay": "3s", "break_after": BREAK_AFTER}  # fmt: skip
    assert operator.call("PATCH", "/targets/down", settings).status == 200
    orders = [{"target": "down", "path": f"ok/{n}"} for n in range(40)]
    sent = works.submit_all(orders[:10])
    works.wait_for([one.id for one in sent])
    target.set_mood("down")
    end, seen = time.monotonic() + DOWN_S, []
    sent += works.submit_all(orders[10:])
    # On a busy machine the calls that fail may begin late.
    latest = end + 30
    while time.monotonic() < end or (time.monotonic() < latest and seen[-1]["breaker"] == "closed"):
        seen.append(operator.target("down"))
        time.sleep(0.25)
    calls = len(target.calls()) - 10
    target.set_mood("ok")
    rows = works.wait_for([one.id for one in sent], timeout_s=60 + DOWN_S)
    return Down(Phase(sent, rows, target.calls()), calls, seen)


# Redis --------------------------------------------------------------------------------------------


def submit_many(works: JobSystem) -> list[SubmittedJob]:
    """They wait for as long as their target is paused."""
    return works.submit_all([{"target": "many", "path": f"ok/{n}"} for n in range(WAITING)])


def lose_the_store_twice(works: JobSystem, sent: list[SubmittedJob]) -> Phase:
    before = works.count_ended_calls()
    operator = works.caller("operator")
    assert operator.call("PATCH", "/targets/many", {"paused": False}).status == 200

    def wait_for(count: int) -> None:
        wait_until(lambda: works.count_ended_calls() - before >= count, f"{count} calls", 60)

    wait_for(WAITING // 5)
    works.redis_cli("flushall")
    wait_for(WAITING // 2)
    works.restart_redis()
    return Phase(sent, works.wait_for([one.id for one in sent]), works.target.calls())


# All of them, at the same time where one does not disturb the other -------------------------------


class Faults:
    """What came of each; a fault that could not be done is its tests' failure, not the others'."""

    def __init__(self) -> None:
        settings = {
            "killed": {"concurrency": AT_A_TIME * RUNNERS},
            "many": {
                "concurrency": AT_A_TIME * RUNNERS,
                "rate": RATE,
                "window": WINDOW_US / 1e6,
                "paused": True,
            },
        }
        with (
            JobSystem(settings, runners=RUNNERS, at_a_time=AT_A_TIME) as works,
            ThreadPoolExecutor(3) as pool,
        ):
            many = pool.submit(submit_many, works)
            self._killed = pool.submit(kill_a_runner, works)
            self._down = pool.submit(take_the_target_down, works)
            for future in (self._killed, self._down):
                future.exception()
            self._lost = pool.submit(lambda: lose_the_store_twice(works, many.result()))

    def killed(self) -> Phase:
        return self._killed.result()

    def down(self) -> Down:
        return self._down.result()

    def lost(self) -> Phase:
        return self._lost.result()


@pytest.fixture(scope="module")
def faults():
    return Faults()


def test_the_jobs_of_a_worker_that_was_killed_are_taken_up(faults):
    """By others, once its locks have ended: none is lost, no other is called twice, and the second
    attempt is counted."""
    phase = faults.killed()
    assert phase.states() == {"completed": AT_A_TIME * RUNNERS + 20}
    cut = {id_ for id_, notes in phase.calls.items() if notes[0]["status"] is None}
    assert len(cut) == AT_A_TIME
    for id_, notes in phase.calls.items():
        assert len(notes) == phase.rows[id_].attempts == 1 + (id_ in cut)


def test_a_job_of_a_killed_worker_is_not_called_by_two_at_a_time(faults):
    """Nor are more called than the target bears."""
    phase = faults.killed()
    assert {count_most_open(notes) for notes in phase.calls.values()} == {1}
    together_ = [note for notes in phase.calls.values() for note in notes]
    assert max(note["open"] for note in together_) <= AT_A_TIME * RUNNERS


def test_a_target_that_is_down_is_not_hammered(faults):
    """A few failures, those that were under way with them, and then one call now and then."""
    down = faults.down()
    trials = 4  # 5, 10, 20 and 40 seconds apart
    assert BREAK_AFTER <= down.calls <= BREAK_AFTER - 1 + AT_ONCE + trials


def test_a_breaker_that_is_open_is_shown(faults):
    """With when the next call is made; and those who wait are told that they wait longer."""
    shown = [one for one in faults.down().seen if one["breaker"] == "open"]
    assert shown
    assert all(one["open_until"] and one["wait_seconds"] > 0 for one in shown)
    assert shown[-1]["counters"]["failed"] >= BREAK_AFTER


def test_no_job_fails_because_its_target_was_down(faults):
    """What was lost while it was down is tried again when it is up: trials cost no retry."""
    phase = faults.down().phase
    assert phase.states() == {"completed": 40}
    assert all(notes[-1]["status"] == 200 for notes in phase.calls.values())
    assert max(row.failures for row in phase.rows.values()) <= 1


def test_jobs_outlive_redis(faults):
    """Emptied, and then killed, with hundreds of jobs waiting: all are called, once."""
    phase = faults.lost()
    assert phase.states() == {"completed": WAITING}
    assert Counter(map(len, phase.calls.values())) == {1: WAITING}


def test_jobs_keep_their_order_when_redis_is_lost(faults):
    """The number of a call grows from call to call; it is that of the order of submission. (Those
    that a worker was given, and could not call before it was lost, had their turn.)"""
    phase = faults.lost()
    fences = {id_: row.fence for id_, row in phase.rows.items() if row.attempts == 1}
    assert len(fences) >= WAITING - 2 * AT_A_TIME * RUNNERS
    sent = [one for one in phase.sent if one.id in fences]
    before = [(one.ended_us, fences[one.id]) for one in sent]
    after = [(one.began_us, fences[one.id]) for one in sent]
    assert count_overtaken(before, after) == 0


def test_the_rate_holds_when_redis_is_lost(faults):
    """It has forgotten the calls of this window; none is made until that is over."""
    moments = [row.fence for row in faults.lost().rows.values()]
    # Each of those that are claimed together has a number more than the moment.
    assert count_most_within(moments, WINDOW_US - AT_A_TIME) <= RATE


# A reconciler or a worker, within this process ----------------------------------------------------


async def insert(here, target, count) -> list[str]:
    """Jobs in SQL alone, in their order, as of a replica that died before it put them in Redis."""
    now_ms = here.time()
    rows = [
        make_job(target=target.name, created_ms=now_ms, expires_ms=now_ms + 600_000,
                 queue_order=now_ms * 1000 + 8 * n)
        for n in range(count)
    ]  # fmt: skip
    await asyncio.gather(*map(here.store.jobs.insert, rows))
    return [row.id for row in rows]


async def called(target) -> list[str]:
    """All jobs, in the order in which they are called."""
    many, ids = target.settings.with_changes({"concurrency": 100_000}), []
    while claims := (await target.store.claim(1000, many)).claims:
        ids += [claim.id for claim in claims]
    return ids


@pytest.fixture
async def target(here):
    """Its queue is new."""
    return await here.make(new_room_name(), concurrency=5)


async def test_two_reconcilers_rebuild_one_queue(here, target):
    """Neither knows of the other: no job is there twice, none is lost, and all are in order."""
    ids = await insert(here, target, 2500)
    other = Reconciler(
        here.jobs, here.wake_ups, partial(LeaderLease, here.redis, owner="two", timeout_s=5)
    )
    detected_us = (await target.store.claim(0, target.settings)).detected_us
    assert detected_us > 0
    await asyncio.gather(
        *(one.queues.rebuild(target, detected_us=detected_us) for one in (here.reconciler, other))
    )
    assert await called(target) == ids


async def test_a_rebuilt_queue_has_the_jobs_that_run(here, target):
    """Their locks last, and these jobs are not in the queue a second time."""
    ids = await insert(here, target, 10)
    running = [(id_, 7) for id_ in ids[:3]]
    await here.store.attempts.start(running, at_ms=here.time())
    await here.reconciler.queues.rebuild(target, detected_us=0)
    _, places = await target.store.inspect(ids, target.settings)
    assert [place.where for place in places] == ["running"] * 3 + ["line"] * 7
    assert await target.store.renew(running) == ["held"] * 3
    assert await called(target) == ids[3:]


async def test_a_rebuilt_queue_waits_for_its_rate(here):
    """Redis has forgotten how many were called; nothing is called until these no longer count."""
    target = await here.make(new_room_name(), rate=1, window="1m")
    ids = await insert(here, target, 2)
    await here.store.attempts.start([(ids[0], 7)], at_ms=here.time())
    await here.reconciler.queues.rebuild(target, detected_us=0)
    claimed = await target.store.claim(10, target.settings)
    assert claimed.is_ready
    assert claimed.claims == []
    assert claimed.next_s is not None


async def test_a_job_that_only_sql_has_comes_into_the_queue(here, target, monkeypatch):
    """The replica that took it died before. It has its place by its order."""
    monkeypatch.setattr(reconcilers, "RECONCILE_S", -1.0)
    await here.reconciler.queues.rebuild(target, detected_us=0)
    ids = await insert(here, target, 5)
    await here.reconciler._reconcile(target)
    assert await called(target) == ids


async def test_a_job_that_is_being_submitted_is_left_alone(here, target):
    """Its replica puts it in the queue in a moment."""
    await here.reconciler.queues.rebuild(target, detected_us=0)
    await insert(here, target, 1)
    await here.reconciler._reconcile(target)
    assert await called(target) == []


async def test_a_job_that_runs_and_is_in_no_queue_is_called_again(here, target, monkeypatch):
    """Its worker has died, and Redis has forgotten it."""
    monkeypatch.setattr(reconcilers, "RECONCILE_S", -1.0)
    await here.reconciler.queues.rebuild(target, detected_us=0)
    [id_] = await insert(here, target, 1)
    await here.store.attempts.start([(id_, 7)], at_ms=here.time())
    await here.reconciler._reconcile(target)
    here.time.forward(LOCK_S)
    [claim] = (await target.store.claim(10, target.settings)).claims
    assert claim.id == id_
    [job] = await here.store.attempts.start([(id_, claim.fence)], at_ms=here.time())
    assert (job.state, job.attempts) == (State.PROCESSING, 2)


async def test_nothing_is_called_when_locks_end_before_sql_answers(here, target, monkeypatch):
    """Other workers may call the jobs by then; these go back to where they were."""
    monkeypatch.setattr(workers, "LOCK_S", 0)
    monkeypatch.setattr(workers, "LOCK_MARGIN_S", 0)
    monkeypatch.setattr(workers, "SLOW_START_S", 0)
    [id_], worker = await insert(here, target, 1), here.worker(target)
    await here.reconciler.queues.rebuild(target, detected_us=0)
    assert await worker._claim_jobs() > 0
    assert len(worker) == 0
    assert (await here.place(target, id_)).where == "later"


async def test_a_worker_that_cannot_ask_about_its_locks_waits_for_redis(here, target, monkeypatch):
    """When beginning took long: jobs that are given up would be overtaken until their locks end."""
    monkeypatch.setattr(workers, "SLOW_START_S", -1)
    monkeypatch.setattr(workers, "RENEW_RETRY_S", 0.01)
    renew = fail(monkeypatch, target.store, "renew", StoreError("it is away"), 2)
    await insert(here, target, 1)
    await here.reconciler.queues.rebuild(target, detected_us=0)
    async with running(here.worker(target).run()):
        await until(lambda: bool(here.egress.called))
        assert renew.await_count == 3


async def test_a_call_whose_lock_cannot_be_renewed_is_cut_off(here, target, monkeypatch):
    """Before another worker can have it: Redis is away here, and may be there for others."""
    monkeypatch.setattr(workers, "LOCK_S", 1)
    monkeypatch.setattr(workers, "LOCK_MARGIN_S", 0)
    monkeypatch.setattr(workers, "RENEW_INTERVAL_S", 0.02)
    await insert(here, target, 1)
    await here.reconciler.queues.rebuild(target, detected_us=0)
    async with running(here.worker(target).run()):
        await until(lambda: bool(here.egress.called))
        target.store.renew = AsyncMock(side_effect=StoreError("it is away"))
        await until(lambda: here.egress.open == 0, seconds=10)


async def test_a_timed_out_job_that_somebody_keeps_locked_stops_no_other(here, monkeypatch):
    """Its row is for later; the others end at once, and are not told of again."""
    target = await here.target(kinds=["online"], claim_window="5s")
    ids = [await here.submit(target, kind="online") for _ in range(3)]
    await here.reconciler._maintain(target)
    finish, locked = here.store.attempts.finish, ids[:1]

    async def finish_unless_locked(ending: Any) -> bool:
        if ending.id in locked:
            raise DatabaseLockedError("another transaction has locked the row")
        return await finish(ending)

    monkeypatch.setattr(here.store.attempts, "finish", finish_unless_locked)
    here.time.forward(6)
    await here.reconciler._maintain(target)
    states = [(await here.row(id_)).state for id_ in ids]
    assert states == [State.CALLED, State.EXPIRED, State.EXPIRED]
    assert [call[0] for call in await target.store.read_timed_out_calls()] == locked
    locked.clear()
    await here.reconciler._maintain(target)
    assert (await here.row(ids[0])).state == State.EXPIRED
    assert await target.store.read_timed_out_calls() == []


async def test_a_large_answer_waits_for_a_locked_row(here, monkeypatch):
    """The target is not called again for it."""
    monkeypatch.setattr(workers, "ERROR_PAUSE_S", 0.01)
    target = await here.target()
    id_ = await here.submit(target)
    locked, called = DatabaseLockedError("another transaction has locked the row"), []
    add_chunk = fail(monkeypatch, here.store.attempts, "add_chunk", locked, 2)

    async def answer(_: object, job: Job, *, sink: Any, **__: object) -> CallResult:
        called.append(job.id)
        await sink(0, b"x" * CHUNK_BYTES)
        return CallResult("answered", status=200, size=CHUNK_BYTES)

    monkeypatch.setattr(here.egress, "call", answer)
    async with running(here.worker(target).run()), asyncio.timeout(20):
        while not (row := await here.row(id_)).is_ended:
            await asyncio.sleep(0.01)
    assert (row.state, row.result_size) == (State.COMPLETED, CHUNK_BYTES)
    assert add_chunk.await_count == 3
    assert called == [id_]


async def test_a_worker_that_claims_all_it_can_claims_again_at_once(here, target, monkeypatch):
    """Also where online jobs were called with them."""
    monkeypatch.setattr(workers, "MAX_CLAIMS", 2)
    await target.store.mark_ready(0)
    for kind in ("online", "offline", "offline", "offline"):
        await here.submit(target, kind=kind)
    worker = here.worker(target)
    assert await worker._claim_jobs() == 0
    assert len(worker) == 2
    await worker._claim_jobs()
    assert len(worker) == 3
    for call in list(worker._calls.values()):
        call.task.cancel()


async def test_a_job_of_a_kind_that_its_target_has_no_more_is_not_tried_again(here):
    """An online job would get a permit for a target that only workers may call."""
    target = await here.target()
    id_ = await here.submit(target, kind="online")
    await here.jobs.cancel(id_, None)
    await here.make(target.name, kinds=["offline"])
    with pytest.raises(WrongStateError, match="offline"):
        await here.jobs.retry(id_, None)
    assert (await here.line(target)).waiting == 0
    await here.make(target.name, kinds=["online", "offline"])
    assert (await here.jobs.retry(id_, None)).state == State.PENDING
