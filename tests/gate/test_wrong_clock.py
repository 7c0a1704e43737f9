"""A replica that starts with a wrong clock while Redis is unavailable: nginx's time counts."""

import time

import pytest

from sidecar.kit.clock import StoreClock
from sidecar.visitors.model import Pass
from sidecar.visitors.tokens import Tokens, new_visitor
from tests.support.replica import KEYS, break_redis, cookie_of

HOUR_MS = 3_600_000


@pytest.fixture
def started(replica, monkeypatch):
    """Makes a replica that has never heard from Redis, on a machine whose clock is off."""

    async def make(off_ms: int, **settings):
        site = await replica(total_active_users=9, session_duration=600, **settings)
        await break_redis(site)
        machine = time.time
        monkeypatch.setattr(time, "time", lambda: machine() + off_ms / 1000)
        clock = StoreClock()
        room = site.room
        room.clock, room.tokens = clock, Tokens(room.name, KEYS, clock)
        return site, int(machine() * 1000)

    return make


def said(now_ms: int) -> dict[str, str]:
    """What nginx's include sends: its $msec."""
    return {"X-Waitroom-Msec": f"{now_ms // 1000}.{now_ms % 1000:03}"}


def inside(site, now_ms: int) -> str:
    """The cookie of somebody whom the store let in five minutes ago."""
    began_ms = now_ms - 300_000
    pass_ = Pass(new_visitor(), began_ms * 1000, began_ms, 0, began_ms, began_ms, now_ms + 300_000)
    return f"{site.room.tokens.cookie_name}={site.room.tokens.write(pass_)}"


@pytest.mark.parametrize("off_ms", [HOUR_MS, -HOUR_MS, 0])
async def test_passes_are_judged_by_the_time_that_nginx_says(started, off_ms):
    """An hour ahead, each was taken for expired."""
    site, now_ms = await started(off_ms)
    reply = await site.check(inside(site, now_ms), headers=said(now_ms))
    assert reply.status == 204
    [pass_] = [site.room.tokens.read(cookie_of(reply).partition("=")[2])]
    assert abs(pass_.expires_ms - now_ms - 600_000) < 30_000
    over = inside(site, now_ms - HOUR_MS)
    assert (await site.check(over, headers=said(now_ms))).status == 401


@pytest.mark.parametrize(
    ("off_ms", "status"), [(HOUR_MS, 401), (-HOUR_MS, 401), (70_000, 401), (50_000, 204), (0, 204)]
)
async def test_nobody_is_let_in_by_clocks_that_disagree(started, off_ms, status):
    """Nobody is admitted from outside or the queue, whatever `on_store_failure` says."""
    site, now_ms = await started(off_ms, on_store_failure="admit")
    assert (await site.check(headers=said(now_ms))).status == status


@pytest.mark.parametrize("msec", ["", "x", "-1.000", "1e9.000", "9" * 40 + ".000", "1700000000"])
async def test_what_is_no_time_is_not_heard(started, msec):
    """The machine's clock it is, as with a proxy that does not say its own."""
    site, _ = await started(0, on_store_failure="admit")
    assert (await site.check(headers={"X-Waitroom-Msec": msec})).status == 204


async def test_the_store_decides(started, replica):
    """Once it has said the time, nobody asks nginx any more."""
    site, now_ms = await started(-HOUR_MS, on_store_failure="admit")
    assert (await site.check(headers=said(now_ms))).status == 401
    site.room.clock.observe(now_ms)
    assert (await site.check(headers=said(now_ms - HOUR_MS))).status == 204
    assert abs(site.room.clock.now_ms() - now_ms) < 30_000
