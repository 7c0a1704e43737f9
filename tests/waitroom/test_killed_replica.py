"""Waiting holders with open requests lose no turn: a replica is killed, or Redis is emptied."""

import asyncio

import pytest
from redis import Redis

from tests.support.processes import wait_until
from tests.support.redis_servers import RedisServer
from tests.support.service import TOKEN, Service
from tests.support.site import call
from waitroom import AsyncClient

WAITERS = 1000
#: No heartbeat is due while the test runs, so only a release, or the next request of a client whose
#: replica is gone, can bring a holder its lease.
RULES = """
[leases]
rare = {term = "1h", heartbeat_interval = "1h", heartbeat_timeout = "1h", claim_window = "5m"}
brief = {term = "6s", renewable = true}
"""


@pytest.mark.timeout(600)
@pytest.mark.slow
async def test_no_turn_is_lost():
    """Their clients go on at the other replica. Each of them holds the lease once, in the order of
    coming and with growing fencing numbers, and nobody is skipped."""
    with Service(RULES, replicas=2) as service:
        url, held = service.urls[1], []

        async def edit(client, number):
            async with client.lease("rare", "a", holder=f"h{number}", wait=True) as lease:
                held.append((f"h{number}", lease.fence))

        async with AsyncClient(service.urls, token=TOKEN) as client:
            async with client.lease("rare", "a", holder="first") as first:
                tasks = [asyncio.create_task(edit(client, number)) for number in range(WAITERS)]
                await asyncio.to_thread(
                    wait_until, lambda: queue(url, "rare")[0] == WAITERS, "the queue", 300
                )
                _, names = queue(url, "rare")
                service.replicas[0].kill()
            await asyncio.gather(*tasks)
        assert [name for name, _ in held] == names
        fences = [first.fence, *(fence for _, fence in held)]
        assert fences == sorted(set(fences))
        assert queue(url, "rare") == (0, [])


async def test_an_emptied_redis_costs_no_place():
    """The clients send the orders of their places, and the holder renews its lease by itself. So
    everything is as before."""
    with RedisServer() as server, Service(RULES, replicas=2, store=server.url) as service:
        url, held = service.urls[1], []
        client = AsyncClient(service.urls, token=TOKEN)

        async def edit(number):
            async with client.lease("brief", "a", holder=f"h{number}", wait=True) as lease:
                held.append((f"h{number}", lease.fence))

        def is_queue(count):
            return queue(url, "brief") == (count, [f"h{number}" for number in range(count)])

        async with client.lease("brief", "a", holder="first", renew=True) as first:
            tasks = []
            for number in range(5):
                tasks.append(asyncio.create_task(edit(number)))
                await asyncio.to_thread(wait_until, lambda n=number: is_queue(n + 1), "the next")
            with Redis.from_url(server.url) as redis:
                redis.flushall()
            await asyncio.to_thread(wait_until, lambda: is_queue(5), "all in their order", 60)
            fence = first.fence
        await asyncio.gather(*tasks)
        await client.aclose()
    assert [name for name, _ in held] == [f"h{number}" for number in range(5)]
    fences = [fence, *(fence for _, fence in held)]
    assert fences == sorted(set(fences))


def queue(url, template):
    """Return how many holders wait, and their names in the order of the queue."""
    document = call("GET", f"{url}/v1/leases/{template}/a/queue?limit=1000", TOKEN)
    return document["waiting"], [place["holder"] for place in document["queue"]]
