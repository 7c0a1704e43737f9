"""A room that is for a share of the newcomers, and for some requests not at all."""

import re

import pytest

from sidecar.kit.errors import StoreUnavailableError
from sidecar.rooms.exemptions import ROLLOUT_NUMBERS, compute_rollout_number
from tests.support.replica import cookie_of

KEPT_S = "2"


def browser(site, *, is_outside: bool, percent: float = 50):
    """Return a User-Agent that is on this side of the percentage."""
    for number in range(10_000):
        name = f"Mozilla/5.0 browser {number}"
        drawn = compute_rollout_number(site.room.name, address="", user_agent=name)
        if (drawn >= percent * ROLLOUT_NUMBERS / 100) is is_outside:
            return {"User-Agent": name}
    raise AssertionError


async def numbers(site):
    snapshot = await site.room.refresh()
    return snapshot.active, snapshot.waiting


async def counted(site, state):
    text = await (await site.ops.get("/metrics")).text()
    found = re.search(rf'waitroom_requests_total{{door="check",[^}}]*state="{state}"}} (\d+)', text)
    return int(found[1]) if found else 0


async def test_who_is_outside_passes_uncounted(replica):
    """The visitor gets a 204 and a cookie. With the cookie nginx may cache the verdict, and Redis
    is not asked."""
    site = await replica(rollout_percent=50)
    outside = browser(site, is_outside=True)
    first = await site.check(headers=outside)
    assert (first.status, first.headers["X-Waitroom-State"]) == (204, "admitted")
    assert "=o~" in first.headers["Set-Cookie"]
    assert "X-Accel-Expires" not in first.headers
    cookie = cookie_of(first)
    # I expect it to hold with another browser and address too: the cookie is the lot.
    for headers in (outside, browser(site, is_outside=False), {"X-Real-IP": "192.0.2.1"}):
        again = await site.check(cookie, headers)
        assert (again.status, again.headers.get("X-Accel-Expires")) == (204, KEPT_S)
        assert "Set-Cookie" not in again.headers
    assert await numbers(site) == (0, 0)
    assert (await counted(site, "outside"), await counted(site, "admitted")) == (4, 0)


async def test_who_is_subject_queues(replica):
    """The cap is exact, however often visitors come without a cookie."""
    site = await replica(rollout_percent=50, total_active_users=1)
    subject = browser(site, is_outside=False)
    replies = [(await site.check(headers=subject)).status for _ in range(4)]
    assert replies == [204, 401, 401, 401]
    assert await numbers(site) == (1, 3)


async def test_raising_the_percentage_takes_in_at_the_next_request(replica):
    """The number in the cookie counts, so another address does not help."""
    site = await replica(rollout_percent=50, total_active_users=0)
    cookie = cookie_of(await site.check(headers=browser(site, is_outside=True)))
    await site.room.store.configure({"rollout_percent": 99.9999})
    await site.room.refresh()
    elsewhere = browser(site, is_outside=True, percent=99.9)
    assert (await site.check(cookie, elsewhere)).status == 401
    await site.room.store.configure({"rollout_percent": 50})
    await site.room.refresh()
    assert (await site.check(cookie)).status == 204


async def test_lowering_it_lets_nobody_out_and_keeps_everybody(replica):
    """At 0 newcomers pass without a cookie, and visitors with a place or pass keep it."""
    site = await replica(total_active_users=1)
    inside, waiting = cookie_of(await site.check()), cookie_of(await site.check())
    await site.room.store.configure({"rollout_percent": 0})
    await site.room.refresh()
    newcomer = await site.check()
    assert (newcomer.status, newcomer.headers["X-Accel-Expires"]) == (204, KEPT_S)
    assert "Set-Cookie" not in newcomer.headers
    still = await site.check(waiting)
    assert (still.status, still.headers["X-Waitroom-Position"]) == (401, "1")
    assert (await site.check(inside)).status == 204
    assert await numbers(site) == (1, 1)
    await site.edge.post(f"/_waitroom/{site.room.name}/leave", headers={"Cookie": inside})
    site.turn.forward(6)
    called = await site.check(waiting)
    assert (called.status, "=p~" in called.headers["Set-Cookie"]) == (204, True)


async def test_the_lot_lasts_with_use(replica):
    """The cookie is signed again once an hour. After a day without a visit the number is computed
    again."""
    site = await replica(rollout_percent=50)
    outside = browser(site, is_outside=True)
    cookie = cookie_of(await site.check(headers=outside))
    site.turn.forward(3600)
    renewed = await site.check(cookie)
    assert renewed.status == 204
    assert "X-Accel-Expires" not in renewed.headers
    cookie = cookie_of(renewed)
    assert "Set-Cookie" not in (await site.check(cookie)).headers
    site.turn.forward(86_401)
    assert (
        "=p~" in (await site.check(cookie, browser(site, is_outside=False))).headers["Set-Cookie"]
    )


async def test_the_shield_meets_who_is_outside_too(replica):
    """A flood of requests without a cookie stops at nginx. A visitor outside the roll-out gets the
    cookie by POST join."""
    site = await replica(rollout_percent=50, shield_above=3, total_active_users=0)
    outside = browser(site, is_outside=True)
    replies = [await site.check(headers=outside) for _ in range(5)]
    assert [reply.status for reply in replies] == [204, 204, 204, 401, 401]
    assert replies[-1].headers["X-Accel-Expires"] == "1"
    picture = await site.check(headers={**outside, "Sec-Fetch-Mode": "no-cors"})
    assert picture.status == 401  # as nginx tells it by what it keeps
    joined = await site.edge.post(f"/_waitroom/{site.room.name}/join", headers=outside)
    assert (await joined.json())["state"] == "admitted"
    assert (await site.check(cookie_of(joined))).status == 204


async def test_what_takes_no_place_takes_no_cookie(replica):
    """Requests for pictures or from other sites' forms pass outside the roll-out and wait inside
    it, without a new cookie."""
    site = await replica(rollout_percent=50, total_active_users=0)
    picture = {"Sec-Fetch-Mode": "no-cors", "Accept": "image/*"}
    form = {"X-Original-Method": "POST", "Sec-Fetch-Site": "cross-site"}
    for headers in (picture, form):
        for is_outside, status in ((True, 204), (False, 401)):
            reply = await site.check(headers={**browser(site, is_outside=is_outside), **headers})
            assert reply.status == status
            assert not {"Set-Cookie", "X-Accel-Expires"} & set(reply.headers)


async def test_the_doors_of_the_waiting_page(replica):
    """Without a cookie a response does not depend on the roll-out, because nginx may cache it. With
    the cookie the visitor is admitted."""
    site = await replica(rollout_percent=50)
    outside = browser(site, is_outside=True)
    path = f"/_waitroom/{site.room.name}"
    reply = await site.edge.get(f"{path}/status", headers=outside)
    assert (await reply.json())["state"] == "not_queued"
    cookie = cookie_of(await site.check(headers=outside))
    assert (await (await site.status(cookie)).json())["state"] == "admitted"
    left = await site.edge.post(f"{path}/leave", headers={"Cookie": cookie})
    assert (await left.json())["state"] == "not_queued"
    assert (await site.check(cookie)).status == 204


async def test_who_is_outside_needs_no_store(replica, monkeypatch):
    """Visitors outside pass while Redis is unavailable. The others follow on_store_failure."""
    site = await replica(rollout_percent=50, on_store_failure="wait")

    async def fail(*_args, **_options):
        raise StoreUnavailableError("away")

    monkeypatch.setattr(site.room.store, "_run", fail)
    assert (await site.check(headers=browser(site, is_outside=True))).status == 204
    assert (await site.check(headers=browser(site, is_outside=False))).status == 401


@pytest.mark.parametrize("value", ["o~1", "o~1~2.x.y", "o~x.YQ.abc", "o~.a.b", "o~1.aaaaaa.bbb"])
async def test_a_lot_of_ones_own_making_is_none(replica, value):
    """A forged number counts as no cookie."""
    site = await replica(rollout_percent=50, total_active_users=0)
    cookie = f"waitroom_{site.room.name}={value}"
    assert (await site.check(cookie, browser(site, is_outside=False))).status == 401


# Exemptions -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Original-URI": "/static/a.js"},
        {"X-Real-IP": "192.0.2.7"},
        {"X-Real-IP": "::ffff:192.0.2.7"},
        {"X-Waitroom-Exempt": "staff"},
    ],
)
async def test_an_exempt_request(replica, headers):
    """The response is a 204 without a cookie that must not be cached. It changes neither a place
    nor a session."""
    site = await replica(
        exempt_paths=["/static/"], exempt_addresses=["192.0.2.0/24"], exempt_header=True
    )
    inside, waiting = cookie_of(await site.check()), cookie_of(await site.check())
    for cookie in (None, inside, waiting):
        reply = await site.check(cookie, headers)
        assert (reply.status, reply.headers["X-Waitroom-State"]) == (204, "admitted")
        assert not {"Set-Cookie", "X-Accel-Expires"} & set(reply.headers)
    assert await counted(site, "exempt") == 3
    assert (await site.check(waiting)).headers["X-Waitroom-Position"] == "1"
    assert await numbers(site) == (1, 1)


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Original-URI": "/static/../checkout"}, {"X-Forwarded-Uri": "/static/a.js"},
        {"X-Real-IP": "192.0.3.7"}, {"X-Forwarded-For": "192.0.2.7"}, {"X-Waitroom-Exempt": ""},
    ],
)  # fmt: skip
async def test_a_request_that_is_not_exempt(replica, headers):
    """Neither a path that leads elsewhere nor a visitor's header exempts a request."""
    site = await replica(
        total_active_users=0, exempt_paths=["/static/"], exempt_addresses=["192.0.2.0/24"]
    )
    assert (await site.check(headers=headers)).status == 401


async def test_nginxs_word_counts_where_the_room_says_so(replica):
    """The setting can be changed at run time. Another proxy could pass on a header of the
    visitor."""
    site = await replica(total_active_users=0)
    assert (await site.check(headers={"X-Waitroom-Exempt": "staff"})).status == 401
    await site.room.store.configure({"exempt_header": True, "exempt_paths": ["/a"]})
    await site.room.refresh()
    assert (await site.check(headers={"X-Waitroom-Exempt": "staff"})).status == 204
    assert (await site.check(headers={"X-Original-URI": "/a?b"})).status == 204


async def test_what_an_exempt_one_is_told_is_for_nobody_else(replica):
    """A cached verdict must not depend on the address, which is not in nginx's key."""
    site = await replica(total_active_users=0, exempt_addresses=["192.0.2.0/24"])
    path = f"/_waitroom/{site.room.name}/status"
    reply = await site.edge.get(path, headers={"X-Real-IP": "192.0.2.7"})
    assert ((await reply.json())["state"], "X-Accel-Expires" in reply.headers) == (
        "admitted",
        False,
    )
    reply = await site.edge.get(path, headers={"X-Real-IP": "192.0.3.7"})
    assert ((await reply.json())["state"], "X-Accel-Expires" in reply.headers) == (
        "not_queued",
        False,
    )


# Back -------------------------------------------------------------------------------------------


async def test_suspended_is_the_way_back(replica):
    """While suspended everybody passes. Afterwards waiting visitors have their places again."""
    site = await replica(total_active_users=1)
    inside = cookie_of(await site.check())
    line = [cookie_of(await site.check()) for _ in range(3)]
    for suspended, statuses in ((True, [204] * 5), (None, [204, 401, 401, 401, 401])):
        await site.room.store.configure({"suspended": suspended})
        await site.room.refresh()
        replies = [await site.check(cookie) for cookie in (inside, *line, None)]
        assert [reply.status for reply in replies] == statuses
        site.turn.forward(20)
    assert [reply.headers["X-Waitroom-Position"] for reply in replies[1:]] == ["1", "2", "3", "4"]
