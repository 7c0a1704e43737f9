"""Places that lapsed, and whose visitors come back with their tickets."""

import pytest

from sidecar.rooms.redis_keys import room_keys
from sidecar.visitors.model import TICKET_RENEW_MS
from tests.support.replica import cookie_of


def from_address(number):
    return {"X-Real-IP": f"198.51.100.{number}"}


async def join(site, number):
    """Somebody new from there, who polls once."""
    cookie = cookie_of(await site.check(headers=from_address(number)))
    await poll(site, cookie, number)
    return cookie


async def poll(site, cookie, number=1):
    return await (await site.status(cookie, headers=from_address(number))).json()


async def lapse(site):
    site.turn.forward(site.room.settings.heartbeat_timeout + 100)
    await site.room.store.sweep()


async def test_tickets_of_one_address_count(replica):
    """Four times three places lapse and all tickets are shown: only as many are restored as the
    address may have."""
    site = await replica(total_active_users=0, max_places_per_address=3)
    collected = []
    for _ in range(4):
        collected += [await join(site, 1) for _ in range(3)]
        await lapse(site)
    waiting = [await join(site, 10 + number) for number in range(10)]
    shown = [await poll(site, cookie) for cookie in collected]
    assert [one["state"] for one in shown] == ["waiting"] * 3 + ["full"] * 9
    places = [(await poll(site, cookie, 10 + n))["position"] for n, cookie in enumerate(waiting)]
    assert places == [4 + number for number in range(10)]


async def test_whoever_has_the_place_still_is_not_counted_twice(replica):
    """A poll for an existing place is not counted again."""
    site = await replica(total_active_users=0, max_places_per_address=1)
    cookie = await join(site, 1)
    for _ in range(3):
        site.turn.forward(5)
        assert (await poll(site, cookie))["position"] == 1


@pytest.mark.parametrize(("away_s", "position"), [(500, 1), (2000, None)])
async def test_an_order_is_kept_for_a_while(replica, away_s, position):
    """For `rejoin_window` after the last poll a ticket restores the place. Later it is void."""
    site = await replica(total_active_users=0, rejoin_window=600)
    first = await join(site, 1)
    site.turn.forward(away_s)
    await site.room.store.sweep()
    second = await join(site, 2)
    site.turn.forward(2)
    assert (await poll(site, first)).get("position") == position
    if position is None:
        assert (await poll(site, cookie_of(await site.check(first))))["position"] == 2
    assert (await poll(site, second))["position"] == (2 if position else 1)


async def test_who_keeps_polling_is_never_too_late(replica):
    """The ticket is signed again, so it has about the time of the last poll."""
    site = await replica(total_active_users=0, rejoin_window=600)
    cookie = await join(site, 1)
    for _ in range(30):
        site.turn.forward(60)
        answer = await site.status(cookie, headers=from_address(1))
        cookie = cookie_of(answer) if "Set-Cookie" in answer.headers else cookie
        assert (
            site.room.tokens.read(cookie.partition("=")[2]).signed_ms
            > site.turn() - TICKET_RENEW_MS
        )


async def test_a_store_that_was_emptied_believes_them(replica, redis):
    """All tickets of an address count at first, for as long as a place may lapse."""
    site = await replica(total_active_users=0, max_places_per_address=1)
    first = [await join(site, number) for number in (1, 2, 3)]
    await site.room.refresh()
    await redis.delete(*room_keys(site.room.name))
    site.turn.forward(30)
    assert [(await poll(site, cookie))["state"] for cookie in first] == ["waiting"] * 3
