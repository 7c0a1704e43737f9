"""The measurement of the scripts, at a small size: what it fills, counts and says."""

import asyncio

from loadtest.bench.scale import ALONE, draw, measure_size, section


async def test_polls_sweeps_and_calls_are_what_they_are_named():
    """Whoever is said to be swept or called was; the report names each."""
    small, large = [await measure_size(number, polls=640) for number in (1000, 2000)]
    assert small.swept == 100
    assert large.swept == 200
    scripts = large.scripts
    assert scripts["poll, 64 a batch"].scripts == 10
    assert scripts["poll, 64 a batch"].visitors == 640
    assert scripts["poll, 1 a batch"].scripts == scripts["poll, 1 a batch"].visitors == 64
    joined = scripts["join, full room, 64 a batch"].visitors + 7 * ALONE
    assert scripts["raised cap"].visitors == 2000 + joined - 200
    assert all(cost.cpu_us > 0 for cost in scripts.values())
    text = section([small, large])
    assert "2,000 waiting" in text
    assert "reached" in text
    chart = await asyncio.to_thread(draw, [small, large])
    assert chart.axes[0].get_xlabel().startswith("visitors waiting")
