"""Fixtures that create the stores of rate limits."""

from functools import partial

import pytest

from sidecar.storage.redis.connect import close, connect
from tests.support.limits import RedisTimeUs, make_limit
from tests.support.rooms import new_room_name


@pytest.fixture
def clock():
    return RedisTimeUs()


@pytest.fixture
def make(redis, clock):
    """Return a function that creates the store of a new limit from its settings."""
    return partial(make_limit, redis, clock)


@pytest.fixture
async def replicas(redis, clock, store_url):
    """Return a function that creates four stores of the same limit, as four replicas have. Each has
    a connection of its own, unless the store is in memory."""
    memory = store_url == "memory://"
    clients = [redis if memory else connect(store_url, timeout_s=5) for _ in range(4)]
    name = new_room_name()
    yield lambda *args, **settings: [
        make_limit(client, clock, *args, name=name, **settings) for client in clients
    ]
    if not memory:
        for client in clients:
            await close(client)
