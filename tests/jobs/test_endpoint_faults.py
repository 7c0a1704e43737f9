"""The endpoints of jobs when something fails at the worst moment, within one process."""

import asyncio
import contextlib
from types import SimpleNamespace
from unittest.mock import AsyncMock

import pytest
from aiohttp import web

from sidecar.app.access import TOKENS, authorise, list_tokens
from sidecar.app.routes import add_jobs
from sidecar.http import app_keys as keys
from sidecar.http.auth.operators import Operators
from sidecar.http.auth.session import OPERATORS
from sidecar.http.metrics import METRICS
from sidecar.http.problems import problems
from sidecar.jobs.endpoints import long_poll as job_polls
from sidecar.jobs.model import CHUNK_BYTES, AttemptEnd, NewJob, State
from sidecar.jobs.service import JOBS, JobView
from sidecar.kit.errors import DatabaseError, StoreError
from tests.jobs.bench import until

SERVICE = {"Authorization": "Bearer of-the-service"}
OPERATOR = {"Authorization": "Bearer of-the-operator"}


@pytest.fixture
async def client(here, aiohttp_client):
    app = web.Application(middlewares=[problems, authorise])
    app[keys.SETTINGS] = SimpleNamespace(
        admin_token="of-the-operator", service_token="of-the-service", tokens={}, scopes={}
    )
    app[TOKENS] = list_tokens(app[keys.SETTINGS])
    app[OPERATORS] = Operators(["k" * 32], "of-the-operator")
    app[METRICS] = here.metrics
    app[JOBS] = here.jobs
    add_jobs(app, here.jobs)
    return await aiohttp_client(app)


async def completed(here, *, part=b"x" * CHUNK_BYTES, parts=1, missing=0, **settings):
    """A job with a result of so many parts, of which the last ones are missing."""
    target = await here.target(**settings)
    id_ = await here.submit(target)
    [claim] = (await target.store.claim(1, target.settings)).claims
    await here.store.attempts.start([(id_, claim.fence)], at_ms=here.time())
    for number in range(parts - missing):
        await here.store.attempts.add_chunk(id_, claim.fence, number, part)
    now_ms = here.time()
    ending = AttemptEnd(
        id_, claim.fence, State.COMPLETED, now_ms, now_ms + 3_600_000,
        status=200, size=parts * len(part),
    )  # fmt: skip
    assert await here.store.attempts.finish(ending)
    return id_


async def raw(client, path):
    """All that is sent until the connection ends."""
    reader, writer = await asyncio.open_connection(client.host, client.port)
    head = f"GET {path} HTTP/1.1\r\nHost: here\r\nAuthorization: {SERVICE['Authorization']}\r\n\r\n"
    writer.write(head.encode())
    came = b""
    async with asyncio.timeout(15):
        with contextlib.suppress(ConnectionResetError):
            while part := await reader.read(1 << 16):
                came += part
    writer.close()
    return came


@pytest.mark.parametrize("fault", ["parts are missing", "the database fails"])
async def test_a_result_that_cannot_be_sent_whole_is_cut_off(here, client, fault):
    """The connection ends early, which its reader notices; no problem document is put into the
    body."""
    is_missing, read_body = fault == "parts are missing", here.store.jobs.read_body
    id_ = await completed(here, parts=6, missing=2 * is_missing)

    async def read_some(id_):
        parts = read_body(id_)
        for _ in range(4):
            yield await anext(parts)
        raise DatabaseError("it went away")

    if not is_missing:
        here.store.jobs.read_body = read_some
    head, _, body = (await raw(client, f"/v1/jobs/{id_}/body")).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ")
    assert f"Content-Length: {6 * CHUNK_BYTES}".encode() in head
    assert not body.strip(b"x")
    assert len(body) < 6 * CHUNK_BYTES
    assert (await here.row(id_)).read_ms is None


async def test_a_job_that_is_in_the_database_is_taken(here, client):
    """202, also where Redis fails before the job is in the queue, or its place is known."""
    target = await here.target()
    target.store.add = target.store.inspect = AsyncMock(side_effect=StoreError("away"))
    answer = await client.post("/v1/jobs", json={"target": target.name}, headers=SERVICE)
    job = await answer.json()
    assert (answer.status, job["state"], job["position"]) == (202, "pending", None), job
    assert answer.headers["Location"] == f"/v1/jobs/{job['id']}"
    assert (await here.row(job["id"])).state == State.PENDING


async def test_a_submission_takes_two_scripts(here, client, sent):
    """One gives its order, the other adds it to the queue and tells its position."""
    target = await here.target(rate=10)
    for position in (1, 2):
        sent.clear()
        answer = await client.post("/v1/jobs", json={"target": target.name}, headers=SERVICE)
        job = await answer.json()
        assert (answer.status, job["position"], job["wait_seconds"] is None) == (
            202, position, False,
        )  # fmt: skip
    assert sent == ["FCALL"] * 2


async def read(client, path, headers):
    """When it has returned, nothing more is done for that request: the connection's next one was
    answered."""
    for asked in (path, "/v1/jobs?limit=1"):
        answer = await client.get(asked, headers=headers)
        assert (answer.status, bool(await answer.read())) == (200, True)


@pytest.mark.parametrize("path", ["", "/body"])
async def test_an_operator_who_reads_a_result_reads_it_for_nobody(here, client, path):
    """It is its caller's reading after which it is deleted."""
    id_ = await completed(here, part=b"ok", delete_after_read=True, result_ttl="1h")
    kept = await here.row(id_)
    await read(client, f"/v1/jobs/{id_}{path}", OPERATOR)
    after = await here.row(id_)
    assert (after.read_ms, after.expires_ms) == (None, kept.expires_ms)
    await read(client, f"/v1/jobs/{id_}{path}", SERVICE)
    after = await here.row(id_)
    assert after.read_ms is not None
    assert after.expires_ms < kept.expires_ms


async def test_the_results_of_many_jobs(here, client):
    """Those that have ended, in the order of the ids; with `wait` as soon as there is one. Only its
    owner and operators learn of a job, and the reading of the owner counts."""
    done = await completed(here, part=b"ok", delete_after_read=True, result_ttl="1h")
    target = await here.target()
    waiting = await here.submit(target)
    view, _ = await here.jobs.submit("another", NewJob(target.name))

    async def ask(*ids, query="", headers=SERVICE):
        path = f"/v1/jobs/bulk/results{query}"
        answer = await client.post(path, json={"ids": ids}, headers=headers)
        return answer.status, await answer.json()

    assert await ask(waiting) == (200, {"jobs": []})
    _, document = await ask(waiting, done, done, headers=OPERATOR)
    assert [(job["id"], job["result"]["body"]) for job in document["jobs"]] == [(done, "ok")]
    assert (await here.row(done)).read_ms is None
    await ask(waiting, done)
    assert (await here.row(done)).read_ms is not None
    assert [(await ask(waiting, id_))[0] for id_ in ("x" * 22, view.job.id)] == [404, 404]
    assert (await ask(view.job.id, headers=OPERATOR))[0] == 200
    assert (await ask())[0] == (await ask(waiting, query="?wait=61"))[0] == 422
    held = asyncio.create_task(ask(waiting, query="?wait=60"))
    await until(lambda: len(client.app[job_polls.JOB_POLLS]) == 1)
    await here.jobs.cancel(waiting, None)
    async with asyncio.timeout(20):
        _, document = await held
    assert [(job["id"], job["state"]) for job in document["jobs"]] == [(waiting, "cancelled")]


async def test_a_permit_that_is_used_is_waited_for_no_more(here, client):
    """Whatever the database still says: there is no permit in such a reply, and no result."""
    target = await here.target(kinds=["online"])
    id_ = await here.submit(target, kind="online")
    [claim] = (await target.store.claim(0, target.settings)).claims
    await here.jobs.record_calls(target, [claim])

    async def ask(query=""):
        path = f"/v1/jobs/bulk/results{query}"
        answer = await client.post(path, json={"ids": [id_]}, headers=SERVICE)
        return [(job["state"], "permit" in job) for job in (await answer.json())["jobs"]]

    assert await ask() == [("called", True)]
    assert await target.store.use_permit(id_, claim.fence, target.settings) == "ok"
    assert await ask() == []
    held = asyncio.create_task(ask("?wait=60"))
    await until(lambda: len(client.app[job_polls.JOB_POLLS]) == 1)
    await here.jobs.end_call(target, id_, claim.fence)
    async with asyncio.timeout(20):
        assert [state for state, _ in await held] == ["completed"]


async def test_a_client_that_waits_goes_on_waiting_after_a_look_that_failed(here, monkeypatch):
    """A wait that it concerned ends with its error; one that began meanwhile goes on."""
    monkeypatch.setattr(job_polls, "POLL_S", 0.01)
    target = await here.target()
    ids = [await here.submit(target) for _ in range(2)]
    first, second = [JobView(await here.row(id_), State.PENDING) for id_ in ids]
    looks, goes_on, find_many = asyncio.Event(), asyncio.Event(), here.store.jobs.find_many

    async def fail(_):
        here.store.jobs.find_many = find_many
        looks.set()
        await goes_on.wait()
        raise DatabaseError("it went away")

    here.store.jobs.find_many = fail
    request = SimpleNamespace(transport=SimpleNamespace(is_closing=lambda: False))
    polls = job_polls.JobPolls(here.jobs)
    early = asyncio.create_task(polls.wait(request, first, 5))
    await looks.wait()
    late = asyncio.create_task(polls.wait(request, second, 5))
    await until(lambda: len(polls) == 2)
    goes_on.set()
    with pytest.raises(DatabaseError):
        await early
    await here.store.jobs.cancel(ids[1], at_ms=here.time(), expires_ms=here.time() + 1000)
    assert (await asyncio.wait_for(late, 2)).state == State.CANCELLED
