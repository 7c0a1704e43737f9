"""The headers that are written by hand, for speed, are what the models say, and none is in vain."""

from unittest.mock import AsyncMock

from aiohttp import web

from sidecar.http.metrics import METRICS
from sidecar.jobs.endpoints import check_permit
from sidecar.jobs.service import JOBS
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
    target.store.use_permit = AsyncMock(side_effect=StoreError("it does not answer"))
    replies.append(await check(permit))
    assert find_unsent_headers(endpoint, replies, "Cache-Control") == set()
    assert [reply.headers["X-Waitroom-State"] for reply in replies] == [
        "admitted", "used", "admitted", "over", "expired", "forged", "none", "unknown-target",
        "permit-away",
    ]  # fmt: skip
