"""Jobs in SQL, as callers and workers write them, on SQLite, MariaDB and PostgreSQL."""

import asyncio
import gc
from dataclasses import fields, replace

from sidecar.jobs.model import AttemptEnd, Job, JobQuery, State, make_job_id
from sidecar.jobs.store import jobs as search
from sidecar.jobs.store.job_store import JobStore
from sidecar.kit.errors import DatabaseError
from sidecar.storage.sql import database as sql
from tests.support.jobs import NOW_MS, count_chunks, job, record_statements

HOUR_MS = 3_600_000
LATER_MS = NOW_MS + 5000


async def insert(store, *some):
    return await asyncio.gather(*(store.jobs.insert(one) for one in some))


async def begun(store, fence=7, **values):
    """A job that is processing."""
    made = await store.jobs.insert(job(**values))
    [begun] = await store.attempts.start([(made.id, fence)], at_ms=NOW_MS)
    return begun


def completed(made, fence=7, **values):
    default = {"at_ms": LATER_MS, "expires_ms": LATER_MS + HOUR_MS, "status": 200}
    return AttemptEnd(made.id, fence, State.COMPLETED, **{**default, **values})


async def body_of(store, id_):
    return b"".join([part async for part in store.jobs.read_body(id_)])


# Submitting ---------------------------------------------------------------------------------------


async def test_a_job_comes_back_as_it_was_submitted(store):
    """Every field, with characters and octets that some databases do not like; its body comes to
    who begins it, and to nobody else."""
    made = job(
        class_name="gold", idempotency_key="k!~", fingerprint="f" * 64, method="POST",
        path="/ä/\N{GRINNING FACE}/%'\"\\", query="a=%25&b=:x?", body=bytes(range(256)) * 512,
        headers={"X-Grüße": "it's \\ 100%", "a": "b"}, callback_url="https://shop.example/back",
        queue_order=-(1 << 53), not_before_ms=NOW_MS + 1, result_headers={"x": "y\0"},
    )  # fmt: skip
    assert await store.jobs.insert(made) == made
    assert await store.jobs.find(made.id) == replace(made, body=b"")
    [found] = await store.attempts.start([(made.id, 1)], at_ms=NOW_MS)
    assert found.body == made.body
    assert {f.name for f in fields(Job) if getattr(found, f.name) != getattr(made, f.name)} == {
        "state", "fence", "attempts", "started_ms", "not_before_ms",
    }  # fmt: skip
    assert await store.jobs.find_many([made.id, make_job_id()]) == {
        made.id: replace(found, body=b"")
    }


async def test_the_same_key_of_the_same_owner_is_the_same_job(store):
    """Also as it stands by now; another owner's, and one of other letters, are others."""
    first = await store.jobs.insert(job(idempotency_key="Key-1", fingerprint="one"))
    await store.attempts.start([(first.id, 3)], at_ms=NOW_MS)
    again = await store.jobs.insert(job(idempotency_key="Key-1", fingerprint="two"))
    assert (again.id, again.fingerprint, again.state) == (first.id, "one", State.PROCESSING)
    others = [
        job(idempotency_key="key-1"), job(owner="Shop", idempotency_key="Key-1"),
        job(idempotency_key=None), job(idempotency_key=None),
    ]  # fmt: skip
    assert await insert(store, *others) == others
    assert len((await store.search.find_page(JobQuery()))[0]) == 5


async def test_many_who_submit_the_same_at_once_get_the_same_job(database, store, open_store):
    """Of two replicas, in batches of either; each has its own keys, too, in another order."""
    other = await open_store(database.url)
    keys = [f"k{n}" for n in range(30)]
    mine = [job(idempotency_key=key) for key in keys for _ in range(2)]
    theirs = [job(idempotency_key=key) for key in reversed(keys)]
    found = await asyncio.gather(insert(store, *mine), insert(other, *theirs))
    ids = {key: set() for key in keys}
    for one in (*found[0], *found[1]):
        ids[one.idempotency_key].add(one.id)
    assert all(len(same) == 1 for same in ids.values())
    assert len((await store.search.find_page(JobQuery()))[0]) == len(keys)


async def test_a_job_that_cannot_be_written_does_not_take_others_along(store):
    """It alone is refused, whatever batch it came in."""
    good = [job(idempotency_key=f"k{n}") for n in range(4)]
    bad = [job(path="/\ud800"), job(created_ms=1 << 70)]
    tasks = [store.jobs.insert(one) for one in (good[0], good[1], bad[0], good[2], bad[1], good[3])]
    told = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(one) for one in told] == [Job, Job, DatabaseError, Job, DatabaseError, Job]
    assert {one.id for one in (await store.search.find_page(JobQuery()))[0]} == {
        one.id for one in good
    }


# Looking up ---------------------------------------------------------------------------------------


async def test_pages_are_newest_first_and_leave_none_out(store):
    """Also where many were submitted in the same millisecond."""
    made = [
        job(created_ms=NOW_MS + n // 3, owner=("shop", "desk")[n % 2], target=f"t{n % 3}")
        for n in range(14)
    ]
    await insert(store, *made)
    await store.jobs.cancel(made[4].id, at_ms=NOW_MS, expires_ms=LATER_MS)
    wanted = sorted(made, key=lambda one: (one.created_ms, one.id), reverse=True)
    for query, which in (
        (JobQuery(), lambda _: True),
        (JobQuery(owner="shop"), lambda one: one.owner == "shop"),
        (
            JobQuery(owner="desk", target="t1"),
            lambda one: (one.owner, one.target) == ("desk", "t1"),
        ),
        (JobQuery(states=frozenset({State.CANCELLED})), lambda one: one.id == made[4].id),
        (JobQuery(states=frozenset({"pending"}), target="t0"), lambda one: one.target == "t0"),
    ):
        found, after = [], None
        while True:
            page, after = await store.search.find_page(replace(query, after=after, limit=4))
            assert len(page) == 4 or after is None
            found += page
            if after is None:
                break
        assert {one.id for one in found} == {one.id for one in wanted if which(one)}
        keys = [(one.created_ms, one.id) for one in found]
        if store.engine.dialect.name != "postgresql":  # it sorts letters as its locale does
            assert keys == sorted(keys, reverse=True)
        assert [ms for ms, _ in keys] == sorted((ms for ms, _ in keys), reverse=True)


async def test_a_search_goes_through_all_in_windows(store, monkeypatch):
    """What no index has is looked for among some at a time; no page leaves one out or has one
    twice, and no window is larger."""
    monkeypatch.setattr(search, "SCAN_LIMIT", 5)
    monkeypatch.setattr(search, "MAX_COUNTED_JOBS", 6)
    made = [job(created_ms=NOW_MS + n // 3) for n in range(23)]
    await insert(store, *made)
    for n, one in enumerate(made):
        if n % 4 == 0:
            await store.attempts.start([(one.id, 7)], at_ms=NOW_MS)
            await store.attempts.finish(completed(one, status=(500, 503, 404)[n % 3]))
    bad = {one.id for n, one in enumerate(made) if n % 4 == 0 and n % 3 != 2}
    one = made[8]
    for query, wanted in (
        (JobQuery(statuses=(500, 599)), bad),
        (JobQuery(statuses=(503, 503)), {made[4].id, made[16].id}),
        (JobQuery(id=one.id[:4]), {each.id for each in made if each.id[:4] == one.id[:4]}),
        (JobQuery(id=one.id[:4].swapcase() + "-"), set()),
        (JobQuery(id=one.id), {one.id}),
        (JobQuery(from_ms=NOW_MS + 2, to_ms=NOW_MS + 4), {each.id for each in made[6:12]}),
    ):
        found, after, pages = [], None, 0
        while True:
            page, after = await store.search.find_page(replace(query, after=after, limit=2))
            found += [each.id for each in page]
            pages += 1
            if after is None:
                break
        assert (set(found), len(found)) == (wanted, len(wanted))
        if query.needs_scan:
            assert pages >= len(made) // 5
        count, after = await store.search.count(query)
        while after is not None:
            more, after = await store.search.count(replace(query, after=after))
            count += more
        assert count == len(wanted)


async def test_what_can_be_no_id_is_found_nowhere(store):
    """Whatever a caller sends, the database is not blamed for it."""
    for odd in ("é", "a\0b", "\ud800", "%", "x" * 9999, "", "a b"):
        assert await store.jobs.find(odd) is None
        assert (await store.search.find_page(JobQuery(target=odd)))[0] == []
        assert not odd or (await store.search.find_page(JobQuery(id=odd)))[0] == []
        assert (await store.search.find_page(JobQuery(after=(NOW_MS, odd))))[0] == []


# Running ------------------------------------------------------------------------------------------


async def test_a_job_is_begun_by_who_claimed_it_last(store):
    """Not by who is late, nor when it is overdue or has ended; the attempts are counted, once for
    a claim however often it is told."""
    made = [job(), job(expires_ms=NOW_MS), job()]
    await insert(store, *made)
    await store.jobs.cancel(made[2].id, at_ms=NOW_MS, expires_ms=LATER_MS)
    claims = [(one.id, 5) for one in made] + [(make_job_id(), 5)]
    for _ in range(2):
        [found] = await store.attempts.start(claims, at_ms=NOW_MS)
        assert (found.id, found.attempts, found.fence) == (made[0].id, 1, 5)
        assert await store.jobs.find(found.id) == found
    assert await store.attempts.start([(made[0].id, 4)], at_ms=NOW_MS) == []
    [found] = await store.attempts.start([(made[0].id, 6)], at_ms=LATER_MS)
    assert (found.attempts, found.fence, found.started_ms) == (2, 6, LATER_MS)
    assert await store.attempts.start([], at_ms=NOW_MS) == []


async def test_fifty_claims_take_few_statements(store):
    """One that reads and one that writes; and endings are written together."""
    made = await insert(store, *(job() for _ in range(50)))
    seen = record_statements(store)
    assert len(await store.attempts.start([(one.id, 7) for one in made], at_ms=NOW_MS)) == 50
    assert len(seen) == 2
    seen.clear()
    told = await asyncio.gather(*(store.attempts.finish(completed(one, body=b"x")) for one in made))
    assert told == [True] * 50
    assert len(seen) <= 6  # the first goes alone: to read, to write, its body; the others together


async def test_an_ending_is_written_once_and_by_nobody_who_is_late(store):
    """What was written stays, and a second time equals once."""
    made = await begun(store)
    await store.attempts.start([(made.id, 8)], at_ms=NOW_MS)
    assert not await store.attempts.finish(completed(made, fence=7))
    ending = completed(made, fence=8, headers={"a": "ü"}, body=b"\0\xff", size=2)
    told = await asyncio.gather(
        *(store.attempts.finish(ending) for _ in range(3)), store.attempts.finish(ending)
    )
    assert told == [True] * 4
    assert not await store.attempts.finish(replace(ending, state=State.FAILED))
    assert not await store.attempts.finish(completed(job()))
    found = await store.jobs.find(made.id)
    assert (found.state, found.status, found.result_headers, found.result_size, found.ended_ms,
            found.expires_ms, found.callback_ms) == (
        State.COMPLETED, 200, {"a": "ü"}, 2, LATER_MS, LATER_MS + HOUR_MS, None,
    )  # fmt: skip
    assert await body_of(store, made.id) == b"\0\xff"


async def test_a_job_that_is_tried_again_keeps_its_time_and_counts_its_failures(store):
    """Those that count. What is left of it when it ends in the end is the last answer alone."""
    made = await begun(store, callback_url="https://shop.example/")
    assert await store.attempts.add_chunk(made.id, 7, 0, b"half of an ans")
    again = AttemptEnd(made.id, 7, State.PENDING, NOW_MS, error="cut\0 off\ud800",
                   not_before_ms=LATER_MS, is_counted=True)  # fmt: skip
    assert [await store.attempts.finish(again), await store.attempts.finish(again)] == [True, True]
    found = await store.jobs.find(made.id)
    assert (found.state, found.failures, found.attempts, found.not_before_ms, found.error) == (
        State.PENDING, 1, 1, LATER_MS, "cut off?",
    )  # fmt: skip
    assert (found.expires_ms, found.ended_ms, found.callback_ms) == (made.expires_ms, None, None)
    assert not await store.attempts.add_chunk(made.id, 7, 1, b"late")
    [found] = await store.attempts.start([(made.id, 8)], at_ms=LATER_MS)
    assert (found.attempts, found.not_before_ms) == (2, None)
    assert not await store.attempts.add_chunk(made.id, 7, 1, b"late")
    assert await store.attempts.finish(replace(again, fence=8, is_counted=False))
    assert (await store.jobs.find(made.id)).failures == 1
    await store.attempts.start([(made.id, 9)], at_ms=LATER_MS)
    assert await store.attempts.finish(completed(made, fence=9, body=b"whole", size=5))
    assert (await store.jobs.find(made.id)).callback_ms == LATER_MS
    assert await body_of(store, made.id) == b"whole"
    assert await count_chunks(store) == 1


async def test_a_long_answer_is_read_as_it_was_written(store):
    """In parts, in their order, one of them told twice; not before the job has ended."""
    made = await begun(store)
    parts = [bytes([n]) * (1000 + n) for n in range(11)]
    for number, part in reversed(list(enumerate([*parts, parts[10]]))):
        assert await store.attempts.add_chunk(made.id, 7, min(number, 10), part)
    assert await body_of(store, made.id) == b""
    assert await store.attempts.finish(completed(made, size=sum(map(len, parts))))
    assert await body_of(store, made.id) == b"".join(parts)


async def test_an_online_job_is_called_used_and_ended(store):
    """Each step is for who has its permit, and the last attempt of it counts."""
    made = await store.jobs.insert(job(kind="online"))
    assert await store.attempts.mark_called(made.id, 3, at_ms=NOW_MS)
    assert not await store.attempts.mark_called(made.id, 2, at_ms=NOW_MS)
    assert not await store.attempts.mark_permit_used(made.id, 2, at_ms=NOW_MS)
    for _ in range(2):
        assert await store.attempts.mark_permit_used(made.id, 3, at_ms=LATER_MS)
    assert not await store.attempts.mark_called(made.id, 4, at_ms=LATER_MS)
    found = await store.jobs.find(made.id)
    assert (found.state, found.called_ms, found.started_ms, found.attempts, found.fence) == (
        State.PROCESSING, NOW_MS, LATER_MS, 1, 3,
    )  # fmt: skip
    assert await store.attempts.finish(completed(made, fence=3, status=None))
    assert not await store.attempts.mark_permit_used(made.id, 3, at_ms=LATER_MS)


async def test_an_online_job_that_nobody_used_expires(store):
    """One that was used before it was noted that it was called is used; one that is overdue is
    not called."""
    unused, quick = await insert(store, *(job(kind="online") for _ in range(2)))
    await store.attempts.mark_called(unused.id, 3, at_ms=NOW_MS)
    assert await store.attempts.finish(replace(completed(unused, fence=3), state=State.EXPIRED))
    assert await store.attempts.mark_permit_used(quick.id, 4, at_ms=NOW_MS)
    overdue = await store.jobs.insert(job(kind="online", expires_ms=NOW_MS))
    assert not await store.attempts.mark_called(overdue.id, 5, at_ms=NOW_MS)
    states = [(await store.jobs.find(one.id)).state for one in (unused, quick, overdue)]
    assert states == [State.EXPIRED, State.PROCESSING, State.PENDING]


# The caller ---------------------------------------------------------------------------------------


async def test_what_waits_can_be_cancelled_and_what_runs_cannot(store):
    """Once; who wished to be called back is told of it."""
    waits, called, runs = await insert(
        store, job(callback_url="https://shop.example/"), job(kind="online"), job()
    )
    await store.attempts.mark_called(called.id, 3, at_ms=NOW_MS)
    await store.attempts.start([(runs.id, 3)], at_ms=NOW_MS)
    told = [
        await store.jobs.cancel(one.id, at_ms=NOW_MS, expires_ms=LATER_MS)
        for one in (waits, called, runs, waits)
    ]
    assert told == [True, True, False, False]
    assert await store.attempts.start([(waits.id, 9), (called.id, 9)], at_ms=NOW_MS) == []
    assert not await store.attempts.mark_permit_used(called.id, 3, at_ms=NOW_MS)
    found = await store.jobs.find_many([waits.id, called.id])
    assert [(one.state, one.ended_ms, one.expires_ms) for one in found.values()] == [
        (State.CANCELLED, NOW_MS, LATER_MS)
    ] * 2
    assert [found[one.id].callback_ms for one in (waits, called)] == [NOW_MS, None]


async def test_a_job_that_ended_can_be_tried_again_from_the_start(store):
    """Without its failures and its answer, at another place in the queue; however it ended."""
    made = await begun(store, callback_url="https://shop.example/")
    ending = completed(made, body=b"no", size=2, headers={"a": "b"}, error="e", is_counted=True)
    await store.attempts.finish(replace(ending, state=State.FAILED))
    again = {"order": 99, "at_ms": LATER_MS, "expires_ms": LATER_MS + 1}
    assert await store.jobs.retry(made.id, **again)
    assert not await store.jobs.retry(made.id, **again)
    found = await store.jobs.find(made.id)
    changed = {"queue_order": 99, "expires_ms": LATER_MS + 1, "attempts": 1, "fence": 7,
               "started_ms": NOW_MS}  # fmt: skip
    assert found == replace(made, body=b"", state=State.PENDING, **changed)
    assert await count_chunks(store) == 0
    await store.attempts.start([(made.id, 8)], at_ms=LATER_MS)
    assert not await store.jobs.retry(made.id, **again)
    await store.attempts.finish(completed(made, fence=8))
    assert await store.jobs.retry(made.id, **again)


async def test_a_job_that_is_about_to_be_removed_is_not_tried_again(store):
    """Else it could be gone before it is put into the queue."""
    made = await store.jobs.insert(job())
    await store.jobs.cancel(made.id, at_ms=NOW_MS, expires_ms=LATER_MS)
    again = {"order": 1, "expires_ms": LATER_MS + HOUR_MS}
    assert not await store.jobs.retry(made.id, at_ms=LATER_MS, **again)
    assert await store.jobs.retry(made.id, at_ms=LATER_MS - 1, **again)


async def test_a_result_that_was_read_may_be_removed_sooner_but_never_later(store):
    """The first reading counts."""
    made = await begun(store)
    await store.jobs.mark_read(made.id, at_ms=NOW_MS, expires_ms=1)
    assert (await store.jobs.find(made.id)).read_ms is None
    await store.attempts.finish(completed(made))
    await store.jobs.mark_read(made.id, at_ms=LATER_MS, expires_ms=LATER_MS + 10)
    await store.jobs.mark_read(made.id, at_ms=LATER_MS + 5, expires_ms=LATER_MS + 1)
    found = await store.jobs.find(made.id)
    assert (found.read_ms, found.expires_ms) == (LATER_MS, LATER_MS + 10)
    other = await begun(store)
    await store.attempts.finish(completed(other, expires_ms=LATER_MS + 3))
    await store.jobs.mark_read(other.id, at_ms=LATER_MS, expires_ms=LATER_MS + 10)
    assert (await store.jobs.find(other.id)).expires_ms == LATER_MS + 3


async def test_a_store_closes_the_connection_of_a_transaction_in_progress(tmp_path):
    """A batch whose callers were cancelled is written all the same."""
    store = JobStore(sql.open_database(f"sqlite:///{tmp_path}/jobs.db"))
    await store.migrate()
    writing = asyncio.create_task(store.targets.put("images", "{}", NOW_MS))
    while store.engine.sync_engine.pool.checkedout() == 0:
        await asyncio.sleep(0)
    await store.close()
    await writing
    assert await store.targets.all() == {"images": "{}"}
    await store.close()
    del store, writing
    gc.collect()  # a connection that is still open warns
