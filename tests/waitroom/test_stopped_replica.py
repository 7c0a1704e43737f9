"""One of two replicas is killed midway, and every call goes on with the other one."""

import pytest

from tests.support.installation import installation
from tests.support.site import ADMIN_TOKEN
from waitroom import AsyncClient, Client


@pytest.fixture(scope="module")
def service():
    with installation() as service:
        yield service


async def test_every_call_goes_on(service):
    """Without a try more than one at each replica: a lease, a permit and jobs of before are the
    same after it, and what is new is taken."""
    client = Client(service.urls, token=ADMIN_TOKEN, retries=0)
    aclient = AsyncClient(service.urls, token=ADMIN_TOKEN, retries=0)
    with client, client.lease("title", "a") as lease, client.permit("export", n="a"):
        held = client.jobs.submit("held", path="a", idempotency_key="before")
        with client.jobs.permit("files") as job:
            assert (await aclient.acquire("many", n="a", id="before")).remaining == 299
            service.replicas[0].kill()
            assert client.jobs.get(job["id"])["state"] == "called"
        assert (await aclient.acquire("many", n="a", id="before")).remaining == 299
        assert client.jobs.submit("held", path="a", idempotency_key="before")["id"] == held["id"]
        fence = lease.fence
        lease.renew()
        assert lease.fence == fence
    fresh = Client(service.urls, token=ADMIN_TOKEN, retries=0)
    async with aclient:
        with fresh:
            done = fresh.jobs.submit("images", path="ok")
            assert fresh.jobs.wait(done["id"], wait=30)["state"] == "completed"
            assert b"".join(fresh.jobs.body(done["id"]))
            assert [each["id"] for each in fresh.jobs.results([done["id"]])] == [done["id"]]
            assert held["id"] in {each["id"] for each in fresh.jobs.iterate(target="held")}
            assert fresh.jobs.cancel(held["id"])["state"] == "cancelled"
            assert fresh.rooms.pause("shop")["mode"] == "paused"
            assert fresh.rooms.resume("shop")["mode"] == "running"
    for call in (
        lambda one: one.look("many", n="a"),
        lambda one: one.acquire("many", n="b"),
        lambda one: one.jobs.retry(done["id"]),
        lambda one: one.rooms.list(),
        lambda one: one.rooms.reset("shop"),
        lambda one: one.request("GET", "/v1/leases"),
    ):
        with Client(service.urls, token=ADMIN_TOKEN, retries=0) as each:  # asks the dead one first
            call(each)
