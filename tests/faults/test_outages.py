"""Outages on a simulated clock: nobody is overtaken because Redis or replicas are down."""

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
    """No visitor behind and no newcomer overtakes. Calls go on within seconds, or after data loss
    when pages have had time to return."""
    redis = connect(f"unix://{redis_socket}", timeout_s=10)
    try:
        scene = Scene(redis, outage)
        result = await scene.simulate()
    finally:
        await close(redis)
    assert (result.people, result.worst, result.by_newcomers) == (0, 0, 0)
    assert result.called >= 90
    assert result.first_call_s <= first_call_s
    assert scene.peak <= CAP
    assert scene.thrown_out == 0
