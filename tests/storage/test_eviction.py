"""Whether Redis evicts, as a replica sees and says it: real servers of each policy."""

import asyncio
import math
from functools import partial

import pytest
from structlog.testing import capture_logs

from sidecar.http.metrics import Metrics
from sidecar.storage.redis.connect import close, connect
from sidecar.storage.redis.eviction import SAFE, UNSEEN, read_eviction_policy, watch_eviction
from tests.support.receiver import until
from tests.support.redis_servers import RedisServer


@pytest.fixture
def server():
    with RedisServer() as server:
        yield server


@pytest.fixture
async def store(server):
    redis = connect(server.url, timeout_s=5)
    yield redis
    await close(redis)


@pytest.mark.parametrize("policy", ["noeviction", "allkeys-lru", "volatile-ttl"])
async def test_the_policy_is_seen(store, policy):
    await store.config_set("maxmemory-policy", policy)
    assert await read_eviction_policy(store, timeout_s=5) == policy


async def test_where_info_is_not_allowed_it_is_unseen(store, server):
    """For the user of docs/operations.md it is allowed."""
    rights = ["+@all", "-@admin", "-@dangerous"]
    for name, more, seen in (("strict", [], UNSEEN), ("documented", ["+info"], SAFE)):
        await store.execute_command("ACL", "SETUSER", name, "on", ">secret", "~*", *rights, *more)
        other = connect(f"redis://{name}:secret@{server.address}", timeout_s=5)
        assert await read_eviction_policy(other, timeout_s=5) == seen
        await close(other)


async def test_a_store_that_is_away_is_no_store_that_evicts(tmp_path):
    redis = connect(f"unix://{tmp_path}/nothing.sock", timeout_s=1)
    assert await read_eviction_policy(redis, timeout_s=1) is None
    await close(redis)


async def test_changes_are_logged_and_counted(store, monkeypatch):
    """Nothing is said of a Redis that keeps all."""
    monkeypatch.setattr("sidecar.storage.redis.eviction.CHECK_INTERVAL_S", 0.01)
    metrics = Metrics()
    read = partial(metrics.registry.get_sample_value, "waitroom_store_evicts")
    assert math.isnan(read())
    with capture_logs() as logs:
        watch = asyncio.create_task(watch_eviction(store, metrics.set_eviction, timeout_s=5))
        await until(lambda: read() == 0, "the first look")
        assert logs == []
        await store.config_set("maxmemory-policy", "allkeys-lru")
        await until(lambda: read() == 1, "the change")
        watch.cancel()
    assert [(line["event"], line["policy"]) for line in logs] == [("store_evicts", "allkeys-lru")]
    assert "noeviction" in logs[0]["hint"]
