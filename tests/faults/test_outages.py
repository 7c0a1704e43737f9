"""Outages on a turned clock: nobody is overtaken because nobody could be heard."""

import pytest

from sidecar.storage.redis.connect import close, connect
from tests.faults.outages import CAP, Outage, Scene


@pytest.mark.slow
@pytest.mark.parametrize(
    ("outage", "first_call_s"),
    [
        (Outage(150, replicas="down"), 3),
        (Outage(60, insiders_stay=True), 30),
        (Outage(150, loses_data=True, replicas="down"), 70),
    ],
    ids=lambda value: value.name if isinstance(value, Outage) else "",
)
async def test_nobody_is_overtaken(redis_socket, outage, first_call_s):
    """By nobody who stood behind them and by no newcomer; and the queue goes on in seconds, or when
    pages had time to come back to a store that was emptied."""
    redis = connect(f"unix://{redis_socket}", timeout_s=10)
    try:
        result = await Scene(redis, outage).play()
    finally:
        await close(redis)
    assert (result.overtaken, result.worst, result.by_newcomers) == (0, 0, 0)
    assert result.called >= 90
    assert result.first_call_s <= first_call_s
    assert result.peak <= CAP
    assert result.thrown_out == 0
