"""What is written by hand, for speed, is what the models say, and no header is in vain."""

import itertools
import json

from aiohttp import web

from sidecar.http.json_text import to_json
from sidecar.http.metrics import METRICS
from sidecar.jobs.endpoints import check_permit
from sidecar.jobs.endpoints.jobs import describe_new
from sidecar.jobs.model import Job, State
from sidecar.jobs.schemas import JobDocument
from sidecar.jobs.service import JOBS, JobView
from sidecar.kit.errors import StoreError
from tests.support.verdicts import find_unsent_headers


async def test_verdicts_are_as_their_models_say(here, aiohttp_client):
    """Each header that is sent is described; each that is described is sent; each state occurs."""
    (endpoint,) = check_permit.ENDPOINTS
    app = web.Application()
    app[JOBS], app[METRICS] = here.jobs, here.metrics
    app.cleanup_ctx.append(check_permit.finish_writes)
    app.add_routes([endpoint.route()])
    client = await aiohttp_client(app)
    target = await here.target()
    id_ = await here.submit(target, kind="online")
    [claim] = (await target.store.claim(0, target.settings)).claims
    ends_ms = here.time() + 60_000

    async def check(permit="", *, to=target.name, **more):
        headers = {"X-Waitroom-Target": to, "X-Waitroom-Permit": permit, **more}
        return await client.get("/check-permit", headers=headers)

    async def fail(*_):
        raise StoreError("it does not answer")

    permit = target.permits.write(id_, claim.fence, ends_ms)
    replies = [
        await check(permit),
        await check(permit),
        await check(permit, **{"X-Waitroom-Given": id_}),
        await check(target.permits.write(id_, claim.fence + 1, ends_ms)),
        await check(target.permits.write(id_, claim.fence, 1)),
        await check("forged"),
        await check(),
        await check(permit, to="nowhere"),
    ]
    target.store.use_permit = fail
    replies.append(await check(permit))
    assert find_unsent_headers(endpoint, replies, "Cache-Control") == set()
    assert [reply.headers["X-Waitroom-State"] for reply in replies] == [
        "admitted", "used", "admitted", "over", "expired", "forged", "none", "unknown-target",
        "permit-away",
    ]  # fmt: skip


def test_a_new_job_is_described_as_its_model_says():
    """With its members in the same order: without a place, in the queue, for later, and called."""
    trace = {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01"}
    jobs = [
        Job("x" * 22, "shop", "images", "offline", 1_800_000_000_123, 1_800_000_060_000, 8),
        Job(
            "y" * 22, "shop", "images", "online", 1, 2, 8, class_name="vip", method="POST",
            path="a", query="b=1", headers=trace, attempts=0, idempotency_key="k",
        ),
    ]  # fmt: skip
    views = [
        (State.PENDING,),
        (State.PENDING, 3, 1.23456),
        (State.PENDING, 1, 0.0),
        (State.PENDING, None, None, 1_800_000_000_000),
        (State.CALLED, None, None, None, None, "images~permit", 1_800_000_000_000),
    ]
    for job, values in itertools.product(jobs, views):
        view = JobView(job, *values)
        expected = json.loads(JobDocument.model_validate(view).model_dump_json(by_alias=True))
        written = json.loads(to_json(describe_new(view)))
        assert [*written.items()] == [*expected.items()]
