"""Jobs in SQL, as their reconcilers see them: the queue, what is over, callbacks, targets, history;
on SQLite, MariaDB and PostgreSQL."""

import asyncio
from dataclasses import replace

from sidecar.jobs.model import ENDED_STATES, AttemptEnd, EndedJobs, JobQuery, QueueEntry, State
from sidecar.jobs.store import due_jobs
from sidecar.jobs.store import jobs as search
from sidecar.jobs.store.due_jobs import DEFAULT_TTL_MS, MAX_CLAIM_WINDOW_MS
from tests.support.jobs import NOW_MS, count_chunks, job, record_statements

LATER_MS = NOW_MS + 5000
URL = "https://shop.example/back"


async def insert(store, *some):
    return await asyncio.gather(*(store.jobs.insert(one) for one in some))


async def end(store, made, state=State.COMPLETED, *, fence=7, started_ms=NOW_MS, **values):
    """Begun and ended; it is kept for a second."""
    await store.attempts.start([(made.id, fence)], at_ms=started_ms)
    at_ms = values.pop("at_ms", LATER_MS)
    assert await store.attempts.finish(
        AttemptEnd(made.id, fence, state, at_ms, at_ms + 1000, **values)
    )


# The queue ----------------------------------------------------------------------------------------


async def test_who_waits_is_told_page_by_page_in_order(store):
    """Also where several have the same place; without those who are called, run or have ended."""
    orders = [5, -(1 << 53), 5, 7, 5, 1 << 53, 6, 5]
    made = await insert(store, *(job(queue_order=order) for order in orders))
    await insert(store, job(target="other"), job(target="Images"))
    online = await store.jobs.insert(job(kind="online", queue_order=8, created_ms=NOW_MS + 1))
    called = await store.jobs.insert(job(kind="online"))
    await store.attempts.mark_called(called.id, 1, at_ms=NOW_MS)
    await store.attempts.start([(made[6].id, 1)], at_ms=NOW_MS)
    await store.jobs.cancel(made[3].id, at_ms=NOW_MS, expires_ms=LATER_MS)
    again = await store.jobs.insert(job(queue_order=9))
    await end(store, again, State.PENDING, not_before_ms=LATER_MS)
    rows, after = [], None
    while page := await store.attempts.list_waiting_jobs("images", after, 2):
        rows += page
        after = page[-1].order, page[-1].id
    assert [row.order for row in rows] == [-(1 << 53), 5, 5, 5, 5, 8, 9, 1 << 53]
    assert {row.id for row in rows} == {
        *(made[n].id for n in (0, 1, 2, 4, 5, 7)), online.id, again.id,
    }  # fmt: skip
    assert rows[5:7] == [
        QueueEntry(online.id, 8, is_online=True),
        QueueEntry(again.id, 9, not_before_ms=LATER_MS),
    ]
    submitted = await store.attempts.list_waiting_jobs("images", None, 10, before_ms=NOW_MS + 1)
    assert online.id not in {row.id for row in submitted}
    assert len(submitted) == len(rows) - 1


async def test_what_runs_is_told_with_its_fence(store):
    """And what is called, of that target."""
    runs, called, *_ = await insert(
        store, job(queue_order=2), job(kind="online", queue_order=1), job(), job(target="other")
    )
    await store.attempts.start([(runs.id, 4)], at_ms=NOW_MS)
    await store.attempts.mark_called(called.id, 5, at_ms=NOW_MS)
    found = await store.attempts.list_running_jobs("images")
    assert [(one.id, one.fence, one.state, one.kind, one.started_ms) for one in found] == [
        (called.id, 5, State.CALLED, "online", None),
        (runs.id, 4, State.PROCESSING, "offline", NOW_MS),
    ]


async def test_when_the_last_call_began_is_known(store):
    """Whether it runs, waits for its next try, or has ended, even after calls that began before;
    nothing is known of a target that was never called."""
    made = await insert(store, *(job() for _ in range(4)))
    assert await store.attempts.find_last_start_ms("images") is None
    await store.jobs.cancel(made[3].id, at_ms=LATER_MS + 9, expires_ms=LATER_MS)
    assert await store.attempts.find_last_start_ms("images") is None
    await end(store, made[0], started_ms=NOW_MS + 1, at_ms=LATER_MS + 5)
    assert await store.attempts.find_last_start_ms("images") == NOW_MS + 1
    await end(store, made[1], started_ms=NOW_MS + 2, at_ms=LATER_MS)
    assert await store.attempts.find_last_start_ms("images") == NOW_MS + 2
    await store.attempts.start([(made[2].id, 7)], at_ms=NOW_MS + 3)
    assert await store.attempts.find_last_start_ms("images") == NOW_MS + 3
    await store.attempts.finish(AttemptEnd(made[2].id, 7, State.PENDING, LATER_MS))
    assert await store.attempts.find_last_start_ms("images") == NOW_MS + 3
    assert await store.attempts.find_last_start_ms("other") is None


async def test_jobs_are_counted_by_target_and_state(store):
    """All, or some of them."""
    made = await insert(store, *(job() for _ in range(3)), job(target="other"))
    await end(store, made[0], State.FAILED)
    counts = {("images", "failed"): 1, ("images", "pending"): 2, ("other", "pending"): 1}
    assert await store.jobs.count_by_state() == counts
    assert await store.jobs.count_by_state("images", [State.PENDING]) == {("images", "pending"): 2}
    assert await store.jobs.count_by_state("images", ENDED_STATES) == {("images", "failed"): 1}
    assert await store.attempts.find_busy_targets(["images", "none"]) == {"images"}
    assert await store.attempts.find_busy_targets([]) == set()


# What is over -------------------------------------------------------------------------------------


async def test_what_waited_too_long_expires_and_is_kept_as_its_target_says(store):
    """Not what runs, and not before its time; at most as many as asked for."""
    made = await insert(
        store, job(expires_ms=NOW_MS, callback_url=URL), job(expires_ms=NOW_MS, target="other"),
        job(expires_ms=NOW_MS + 1), job(expires_ms=NOW_MS + 1, kind="online"),
        job(expires_ms=NOW_MS + 1), job(expires_ms=NOW_MS + 2, error="the target says 503"),
    )  # fmt: skip
    await store.attempts.mark_called(made[3].id, 1, at_ms=NOW_MS)
    await store.attempts.start([(made[4].id, 1)], at_ms=NOW_MS)
    ttl = {"images": 50}
    assert set(await store.due_jobs.expire_jobs(NOW_MS, 10, ttl)) == {
        (made[0].id, "images"), (made[1].id, "other"),
    }  # fmt: skip
    found = await store.jobs.find_many([made[0].id, made[1].id])
    assert [(found[one.id].state, found[one.id].ended_ms, found[one.id].expires_ms,
             found[one.id].callback_ms) for one in made[:2]] == [
        (State.EXPIRED, NOW_MS, NOW_MS + 50, NOW_MS),
        (State.EXPIRED, NOW_MS, NOW_MS + DEFAULT_TTL_MS, None),
    ]  # fmt: skip
    expired = [await store.due_jobs.expire_jobs(LATER_MS, 1, ttl) for _ in range(3)]
    assert sorted(expired) == sorted([[(made[2].id, "images")], [(made[5].id, "images")], []])
    # What was called has a permit that may be used until it ends, in an hour at most.
    over_ms = NOW_MS + 1 + MAX_CLAIM_WINDOW_MS
    assert await store.due_jobs.expire_jobs(over_ms - 1, 1, ttl) == []
    assert await store.due_jobs.expire_jobs(over_ms, 1, ttl) == [(made[3].id, "images")]
    assert (await store.jobs.find(made[4].id)).state == State.PROCESSING
    found = await store.jobs.find_many([one.id for one in made])
    assert [found[one.id].error for one in made] == [
        "it waited longer than pending_ttl", "it waited longer than pending_ttl",
        "it waited longer than pending_ttl", "nobody used the permit", "",
        "it waited longer than pending_ttl; its last attempt: the target says 503",
    ]  # fmt: skip


async def test_what_was_kept_long_enough_is_removed_with_its_answer(store):
    """But not before its caller was told, and not what is tried again."""
    made = await insert(store, *(job() for _ in range(3)), job(callback_url=URL), job())
    for one in made[:4]:
        await end(store, one, body=b"x")
    await end(store, made[4], State.FAILED, body=b"x")
    gone_ms = LATER_MS + 1000
    assert await store.due_jobs.delete_old_jobs(gone_ms - 1, 10) == 0
    assert await store.jobs.retry(made[4].id, order=1, at_ms=NOW_MS, expires_ms=gone_ms)
    assert [await store.due_jobs.delete_old_jobs(gone_ms, 2) for _ in range(3)] == [2, 1, 0]
    assert {one.id for one in (await store.search.find_page(JobQuery()))[0]} == {
        made[3].id,
        made[4].id,
    }
    assert await count_chunks(store) == 1
    await store.due_jobs.record_callback(
        made[3].id, ended_ms=(await store.jobs.find(made[3].id)).ended_ms, next_ms=None, tries=1
    )
    assert await store.due_jobs.delete_old_jobs(gone_ms, 2) == 1
    assert await count_chunks(store) == 0


async def test_two_reconcilers_do_the_work_once(database, store, open_store):
    """What is overdue is ended once, what is old is removed once, a callback is made once; and
    callers who are at it at the same moment are not refused."""
    other = await open_store(database.url)
    made = await insert(store, *(job(expires_ms=LATER_MS, callback_url=URL) for _ in range(60)))
    late = await insert(store, *(job() for _ in range(20)))

    async def until_none(work):
        found = []
        while batch := await work():
            found += batch
        return found

    async def cancel_some():
        return [
            one.id for one in made[::7]
            if await other.jobs.cancel(one.id, at_ms=LATER_MS, expires_ms=LATER_MS)
        ]  # fmt: skip

    first, second, cancelled, *_ = await asyncio.gather(
        until_none(lambda: store.due_jobs.expire_jobs(LATER_MS, 20, {"images": 0})),
        until_none(lambda: other.due_jobs.expire_jobs(LATER_MS, 20, {"images": 0})),
        cancel_some(),
        *(end(store, one) for one in late),
    )
    ended = sorted([*(id_ for id_, _ in (*first, *second)), *cancelled])
    assert ended == sorted(one.id for one in made)
    due = await asyncio.gather(*(
        until_none(lambda at=at: at.due_jobs.claim_callbacks(LATER_MS, 20, claim_ms=1))
        for at in (store, other)
    ))  # fmt: skip
    assert sorted(one.id for one in (*due[0], *due[1])) == ended
    await asyncio.gather(*(
        store.due_jobs.record_callback(one.id, ended_ms=one.ended_ms, next_ms=None, tries=1)
        for one in (*due[0], *due[1])
    ))  # fmt: skip

    async def remove(at):
        return sum([await at.due_jobs.delete_old_jobs(LATER_MS, 20) for _ in range(4)])

    assert sum(await asyncio.gather(remove(store), remove(other))) == len(made)


async def test_a_reconciler_that_finds_nothing_to_do_locks_nothing(store):
    """It asks one question each time."""
    await store.jobs.insert(job())
    seen = record_statements(store)
    assert await store.due_jobs.expire_jobs(NOW_MS, 10, {}) == []
    assert await store.due_jobs.delete_old_jobs(NOW_MS, 10) == 0
    assert await store.due_jobs.claim_callbacks(NOW_MS, 10, claim_ms=1) == []
    assert [statement.split()[0] for statement in seen] == ["SELECT"] * 3
    assert not any("FOR UPDATE" in statement for statement in seen)


# Callbacks ----------------------------------------------------------------------------------------


async def test_callbacks_are_due_longest_first_and_come_again_until_they_are_made(store):
    """Who takes one has it for a while; a job without an address has none."""
    made = await insert(store, *(job(callback_url=URL) for _ in range(3)), job())
    for n, one in enumerate(made):
        await end(store, one, at_ms=LATER_MS - n)
    assert await store.due_jobs.claim_callbacks(LATER_MS - 3, 10, claim_ms=100) == []
    due = await store.due_jobs.claim_callbacks(LATER_MS, 2, claim_ms=100)
    assert [one.id for one in due] == [made[2].id, made[1].id]
    due = await store.due_jobs.claim_callbacks(LATER_MS, 10, claim_ms=100)
    assert [one.id for one in due] == [made[0].id]
    await store.due_jobs.record_callback(made[0].id, ended_ms=LATER_MS, next_ms=None, tries=1)
    await store.due_jobs.record_callback(
        made[1].id, ended_ms=LATER_MS - 1, next_ms=LATER_MS + 500, tries=1
    )  # fmt: skip
    due = await store.due_jobs.claim_callbacks(LATER_MS + 100, 10, claim_ms=1000)
    assert [(one.id, one.callback_tries) for one in due] == [(made[2].id, 0)]
    due = await store.due_jobs.claim_callbacks(LATER_MS + 500, 10, claim_ms=1000)
    assert [(one.id, one.callback_tries) for one in due] == [(made[1].id, 1)]


async def test_callbacks_of_one_receiver_do_not_hide_those_of_others(store, monkeypatch):
    """So many of each at a time: one that has enough under way is passed over, however many of it
    are due, and however its address is written."""
    monkeypatch.setattr(due_jobs, "MAX_CANDIDATES", 5)
    slow = ("https://slow_1.example/a", "https://SLOW_1.example/b")
    many = await insert(store, *(job(callback_url=slow[n % 2]) for n in range(6)))
    [other] = await insert(store, job(callback_url="https://slow-1.example/a"))
    for n, one in enumerate([*many, other]):
        await end(store, one, at_ms=LATER_MS + n)
    asked = {"claim_ms": 1000, "max_per_receiver": 2}
    due = await store.due_jobs.claim_callbacks(LATER_MS + 9, 10, **asked)
    assert [one.id for one in due] == [many[0].id, many[1].id]
    in_flight = {"https://slow_1.example": 2}
    due = await store.due_jobs.claim_callbacks(LATER_MS + 9, 10, **asked, in_flight=in_flight)
    assert [one.id for one in due] == [other.id]
    in_flight = {"https://slow_1.example": 1}
    due = await store.due_jobs.claim_callbacks(LATER_MS + 9, 10, **asked, in_flight=in_flight)
    assert [one.id for one in due] == [many[2].id]


async def test_a_job_that_is_tried_again_tells_of_its_new_end_alone(store):
    """What was still to be told of the old one is not told, nor does it come back."""
    made = await store.jobs.insert(job(callback_url=URL))
    await end(store, made, State.FAILED)
    [held] = await store.due_jobs.claim_callbacks(LATER_MS, 1, claim_ms=1)
    assert await store.jobs.retry(made.id, order=1, at_ms=NOW_MS, expires_ms=LATER_MS)
    old = {"ended_ms": held.ended_ms, "tries": 1}
    await store.due_jobs.record_callback(held.id, next_ms=LATER_MS + 1, **old)
    assert await store.due_jobs.claim_callbacks(LATER_MS + 9, 1, claim_ms=1) == []
    await end(store, made, fence=8, at_ms=LATER_MS - 1)
    await store.due_jobs.record_callback(held.id, next_ms=None, **old)
    [held] = await store.due_jobs.claim_callbacks(LATER_MS, 1, claim_ms=1)
    assert (held.state, held.callback_tries) == (State.COMPLETED, 0)


# Targets and history ------------------------------------------------------------------------------


async def test_targets_that_are_changed_at_run_time_are_kept(store):
    """The last settings of each, with all characters."""
    await store.targets.put("images", '{"rate": 1}', NOW_MS)
    await store.targets.put("video", '{"headers": {"a": "ü\N{GRINNING FACE}"}}', NOW_MS)
    await store.targets.put("images", '{"rate": 2}', LATER_MS)
    assert await store.targets.all() == {
        "images": '{"rate": 2}', "video": '{"headers": {"a": "ü\N{GRINNING FACE}"}}',
    }  # fmt: skip
    assert [await store.targets.delete("images") for _ in range(2)] == [True, False]
    assert list(await store.targets.all()) == ["video"]


async def test_failed_jobs_are_grouped_by_reason(store, monkeypatch):
    """The most frequent first, with the time of the last; other states and filters count not; only
    the newest are read."""
    made = await insert(store, *(job(created_ms=NOW_MS + n) for n in range(7)), job(target="other"))
    for n, (state, status, error) in enumerate([
        (State.FAILED, None, "no answer"), (State.FAILED, 503, "it says 503"),
        (State.FAILED, 503, "it says 503"), (State.FAILED, 404, "it says 404"),
        (State.FAILED, 503, "it says 503"), (State.COMPLETED, 503, "it says 503"),
        (State.FAILED, None, "no answer"), (State.FAILED, 500, "of another target"),
    ]):  # fmt: skip
        await end(store, made[n], state, at_ms=LATER_MS + n, status=status, error=error)
    of_images = JobQuery(target="images")
    assert await store.search.group_failed_jobs(of_images) == [
        (503, "it says 503", 3, LATER_MS + 4),
        (None, "no answer", 2, LATER_MS + 6),
        (404, "it says 404", 1, LATER_MS + 3),
    ]
    by_status = replace(of_images, statuses=(400, 499))
    assert [group[0] for group in await store.search.group_failed_jobs(by_status)] == [404]
    monkeypatch.setattr(search, "MAX_GROUPED_JOBS", 2)
    assert await store.search.group_failed_jobs(of_images) == [
        (None, "no answer", 1, LATER_MS + 6), (503, "it says 503", 1, LATER_MS + 4),
    ]  # fmt: skip


async def test_the_history_is_told_in_steps(store):
    """By when jobs ended: how many of each kind, how long those waited and took that were begun;
    empty steps are left out, and so is what lies outside of the period."""
    made = await insert(store, *(job() for _ in range(7)), job(target="other"))
    for n, (state, started, at) in enumerate([
        (State.COMPLETED, 10, 1000), (State.COMPLETED, 30, 1999), (State.FAILED, 50, 1501),
        (State.COMPLETED, 5, 999), (State.COMPLETED, 5, 5000), (State.COMPLETED, 7, 4999),
    ]):  # fmt: skip
        await end(store, made[n], state, started_ms=NOW_MS + started, at_ms=NOW_MS + at)
    await store.jobs.cancel(made[6].id, at_ms=NOW_MS + 2000, expires_ms=LATER_MS)
    await end(store, made[7], at_ms=NOW_MS + 1000)
    steps = await store.jobs.count_ended_jobs("images", NOW_MS + 1000, NOW_MS + 5000, 1000)
    assert [replace(step, at_ms=step.at_ms - NOW_MS) for step in steps] == [
        EndedJobs(1000, 2, 1, 0, 30, (990 + 1969 + 1451) // 3),
        EndedJobs(2000, 0, 0, 1, None, None),
        EndedJobs(4000, 1, 0, 0, 7, 4992),
    ]
