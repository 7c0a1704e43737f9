"""Giving up places, over and over."""

import pytest

from sidecar.gate import leave as leave_endpoint
from tests.support.replica import cookie_of


@pytest.fixture(autouse=True)
def _few(monkeypatch):
    monkeypatch.setattr(leave_endpoint, "LEAVES_AT_ONCE", 3)
    monkeypatch.setattr(leave_endpoint, "LEAVES_PER_S", 1e-6)


async def leave(site, cookie, address="192.0.2.1", **headers):
    named = {"Cookie": cookie, "X-Real-IP": address, **headers}
    return await site.edge.post(f"/_waitroom/{site.room.name}/leave", headers=named)


async def give_up(site, times, address="192.0.2.1"):
    """The statuses of so many who join and leave."""
    replies = [
        await leave(site, cookie_of(await site.check()), address=address) for _ in range(times)
    ]
    return [reply.status for reply in replies]


async def test_an_address_gives_up_so_many_places(replica):
    """Further places get 429 and stay; other addresses can leave, and refusals are counted."""
    site = await replica(total_active_users=0)
    assert await give_up(site, 5) == [200, 200, 200, 429, 429]
    assert await give_up(site, 1, address="192.0.2.2") == [200]
    waits = cookie_of(await site.check())
    reply = await leave(site, waits)
    assert (reply.status, (await reply.json())["status"]) == (429, 429)
    assert int(reply.headers["Retry-After"]) >= 1
    status = await (await site.status(waits)).json()
    assert (status["state"], status["position"]) == ("waiting", 3)
    metrics = await (await site.ops.get("/metrics")).text()
    name = site.room.name
    assert f'waitroom_refused_leaves_total{{room="{name}"}} 3.0' in metrics


async def test_sessions_that_end_are_not_counted(replica):
    """Sessions, a site's own releases and requests without a ticket are not limited."""
    site = await replica(total_active_users=9)
    assert await give_up(site, 9) == [200] * 9
    ticket = cookie_of(await site.check())
    for _ in range(9):
        assert (await leave(site, "waitroom_x=y")).status == 200
    site_says = {"X-Waitroom-Release": "site"}
    assert (await leave(site, ticket, **site_says)).status == 200
