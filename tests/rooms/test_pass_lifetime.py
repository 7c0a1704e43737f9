"""When a pass is renewed: in time for its own life, and never for nothing."""

import pytest

from sidecar.visitors.verdict_lifetime import RELEASE_GRACE_MS
from tests.support.replica import break_redis, cookie_of


class Insider:
    """An active visitor with the newest cookie."""

    def __init__(self, site, reply) -> None:
        self.site = site
        self.cookie = cookie_of(reply)
        self.renewals = 0

    async def ask(self) -> int:
        reply = await self.site.check(self.cookie)
        if "Set-Cookie" in reply.headers:
            self.cookie = cookie_of(reply)
            self.renewals += 1
        return reply.status

    async def asks_each_second(self, seconds: int) -> None:
        for _ in range(seconds):
            self.site.turn.forward(1)
            assert await self.ask() == 204


async def enters(site) -> Insider:
    inside = Insider(site, await site.check())
    assert (await inside.ask(), inside.renewals) == (204, 0)  # the store knows it is used
    return inside


async def changes(site, **settings) -> None:
    await site.room.store.configure(settings)
    await site.room.refresh()


@pytest.mark.parametrize(("before", "after"), [(5, 600), (7.5, 30), (30, 7.5), (600, 5)])
async def test_nobody_who_stays_active_expires_when_session_duration_changes(
    replica, before, after
):
    """A pass is renewed by its own lifetime, so it does not expire when session_duration is
    raised."""
    site = await replica(session_duration=before)
    inside = await enters(site)
    await inside.asks_each_second(3)
    await changes(site, session_duration=after)
    await inside.asks_each_second(700)
    shot = await site.room.refresh()
    assert (shot.active, shot.counters["admitted"]) == (1, 1)


async def test_a_session_raised_while_redis_is_unavailable_is_a_session_again(replica):
    """An extended pass is due for renewal at once, so Redis gets it before the slot is given
    away."""
    site = await replica(session_duration=30, recovery_window=0)
    inside = await enters(site)
    await changes(site, session_duration=600)
    back = await break_redis(site)
    await inside.asks_each_second(6)
    back()
    await site.room.refresh()
    await inside.asks_each_second(1)
    site.turn.forward(60)
    assert (await site.room.refresh()).active == 1


@pytest.mark.parametrize("duration", [5, 6, 8])
async def test_a_short_pass_is_due_when_half_of_it_is_over(replica, duration):
    site = await replica(session_duration=duration)
    inside = await enters(site)
    site.turn.forward(duration / 2 - 0.001)
    assert (await inside.ask(), inside.renewals) == (204, 0)
    site.turn.forward(0.001)
    assert (await inside.ask(), inside.renewals) == (204, 1)


@pytest.mark.parametrize(
    "settings", [{"disable_session_renewal": True}, {"session_max_duration": 60}]
)
async def test_a_pass_that_cannot_last_longer_is_not_given_anew(replica, settings):
    """Such a request needs no script and no new cookie, and nginx may cache the verdict."""
    site = await replica(session_duration=60, **settings)
    inside = await enters(site)
    site.room.store.renew = None
    for _ in range(11):
        site.turn.forward(5)
        reply = await site.check(inside.cookie)
        assert (reply.status, "Set-Cookie" in reply.headers) == (204, False)
        assert "X-Accel-Expires" in reply.headers
    site.turn.forward(5)
    assert (await site.check(inside.cookie)).status == 401


async def test_renewals_go_on_when_they_may_again(replica):
    """The current settings decide whether a renewal would change the end."""
    site = await replica(session_duration=60, disable_session_renewal=True)
    inside = await enters(site)
    await inside.asks_each_second(50)
    assert inside.renewals == 0
    await changes(site, disable_session_renewal=False)
    await inside.asks_each_second(100)


async def test_a_lowered_session_duration_renews_for_nothing_once_in_that_time(replica):
    """The pass is not renewed every five seconds, although its end cannot be moved yet."""
    site = await replica(session_duration=600)
    inside = await enters(site)
    await changes(site, session_duration=30)
    await inside.asks_each_second(300)
    assert inside.renewals == 10


async def test_a_released_pass_of_a_longer_session_stays_refused(replica):
    """Replicas forget a release after session_duration, and then ask Redis."""
    site = await replica(session_duration=600)
    copy = (await enters(site)).cookie
    await changes(site, session_duration=5)
    await site.edge.post(f"/_waitroom/{site.room.name}/leave", headers={"Cookie": copy})
    for _ in range(60):
        site.turn.forward(RELEASE_GRACE_MS / 1000)
        await site.room.refresh()
        assert (await site.check()).status in {204, 401}
        assert cookie_of(await site.check(copy)) != copy
