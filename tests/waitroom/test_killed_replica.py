"""A replica is killed with a thousand waiting holders on it."""

import asyncio

import pytest

from tests.support.processes import wait_until
from tests.support.service import TOKEN, Api, Service
from waitroom import AsyncClient

WAITERS = 1000
#: No heartbeat is due while the test runs, so only a release, or the next request of a client whose
#: replica is gone, can bring a holder its lease.
RULES = """
[leases]
rare = {term = "1h", heartbeat_interval = "1h", heartbeat_timeout = "1h", claim_window = "5m"}
"""


@pytest.mark.timeout(600)
@pytest.mark.slow
async def test_no_turn_is_lost():
    """Their clients go on at the other replica. Each of them holds the lease once, in the order of
    coming and with growing fencing numbers, and nobody is skipped."""
    with Service(RULES, replicas=2) as service:
        api, held = Api(service.urls[1]), []

        async def edit(client, number):
            async with client.lease("rare", "a", holder=f"h{number}", wait=True) as lease:
                held.append((f"h{number}", lease.fence))

        async with AsyncClient(service.urls, token=TOKEN) as client:
            async with client.lease("rare", "a", holder="first") as first:
                tasks = [asyncio.create_task(edit(client, number)) for number in range(WAITERS)]
                await asyncio.to_thread(
                    wait_until, lambda: queue(api)[0] == WAITERS, "the queue", 300
                )
                _, names = queue(api)
                service.replicas[0].kill()
            await asyncio.gather(*tasks)
        assert [name for name, _ in held] == names
        fences = [first.fence, *(fence for _, fence in held)]
        assert fences == sorted(set(fences))
        assert queue(api) == (0, [])
        api.close()


def queue(api):
    """Return how many holders wait, and their names in the order of the queue."""
    _, document = api.call("GET", "/leases/rare/a/queue?limit=1000")
    return document["waiting"], [place["holder"] for place in document["queue"]]
