"""The measurement of the scripts, at a small size: what it fills, counts and says."""

import asyncio

import pytest

from loadtest.bench.scale import (
    ALONE,
    Now,
    draw,
    enters,
    measure_size,
    room_store,
    section,
)
from loadtest.redis_server import fill_line, redis_server
from sidecar.visitors.model import QueueOutcome


async def _join(server, room, now):
    store = room_store(server.redis, room, now, total_active_users=0)
    for _ in range(10):
        now.ms += 1000
        standings = await enters([store], 100)
        assert {standing.outcome for standing in standings} == {QueueOutcome.WAITING}


async def test_the_line_is_as_large_as_one_of_real_joins():
    """To 3 % by key, for towers of the sorted sets are drawn at random; the stream to 10 %, for
    it grows by a node of some 60 events. `used_memory` is not compared: at this size the
    buffers of connections are a tenth of it, and come and go."""
    now = Now()
    async with redis_server() as server:
        await fill_line(server.redis, "filled", 1000)
        await _join(server, "joined", now)
        filled, joined = [
            [await server.size(room, key) for key in ("waiting", "due", "events")]
            for room in ("filled", "joined")
        ]
    assert filled[:2] == pytest.approx(joined[:2], rel=0.03)
    assert filled[2] == pytest.approx(joined[2], rel=0.1)


async def test_polls_sweeps_and_calls_are_what_they_are_named():
    """Whoever is said to be swept or called was; the report names each."""
    small, large = [await measure_size(number, polls=640) for number in (1000, 2000)]
    assert small["swept"] == 100
    assert large["swept"] == 200
    scripts = large["scripts"]
    assert scripts["poll, 64 a batch"]["scripts"] == 10
    assert scripts["poll, 64 a batch"]["visitors"] == 640
    assert scripts["poll, 1 a batch"]["scripts"] == scripts["poll, 1 a batch"]["visitors"] == 64
    joined = scripts["join, full room, 64 a batch"]["visitors"] + 7 * ALONE
    assert scripts["raised cap"]["visitors"] == 2000 + joined - 200
    assert all(cost["cpu_us"] > 0 for cost in scripts.values())
    text = section({"sizes": [small, large]})
    assert "2,000 waiting" in text
    assert "reached" in text
    chart = await asyncio.to_thread(draw, {"sizes": [small, large]})
    assert chart.axes[0].get_xlabel().startswith("visitors waiting")
