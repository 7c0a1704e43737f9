"""What nginx is told about each kind of visitor."""

import pytest

from sidecar.kit.errors import StoreError
from sidecar.visitors.verdict_lifetime import RELEASE_HOLD_MS, VERDICT_TTL_MS
from tests.support.replica import cookie_of


async def test_newcomers(replica):
    """204 and a pass where a slot is free; then 401, a ticket, the numbers, and no body."""
    site = await replica()
    reply = await site.check()
    assert reply.status == 204
    assert reply.headers["X-Waitroom-State"] == "admitted"
    given = reply.headers.getall("Set-Cookie")
    assert len(given) == 1
    assert "=p~" in given[0]
    for attribute in ("HttpOnly", "SameSite=Lax", "Path=/", "Max-Age=300"):
        assert attribute in given[0]
    assert "Secure" not in given[0]
    reply = await site.check()
    assert reply.status == 401
    assert await reply.read() == b""
    assert "=t~" in reply.headers["Set-Cookie"]
    assert reply.headers["X-Waitroom-Position"] == "1"
    assert reply.headers["X-Waitroom-Status"] == "503"
    assert 1 <= int(reply.headers["Retry-After"]) <= 60


@pytest.mark.parametrize(
    ("scheme", "is_secure"),
    [
        ("https", True), ("HTTPS", True), ("https, http", True), (" Https ,http,http", True),
        ("http", False), ("http, https", False), ("httpsx", False), ("", False),
    ],
)  # fmt: skip
async def test_the_cookie_is_secure_where_the_request_was(replica, scheme, is_secure):
    """Secure follows X-Forwarded-Proto: the first scheme of several is the visitor's."""
    site = await replica()
    reply = await site.check(headers={"X-Forwarded-Proto": scheme})
    assert reply.headers["Set-Cookie"].endswith("; Secure") == is_secure


async def test_a_pass_that_ran_out_is_no_pass(replica):
    """The bearer of an old pass is a newcomer: the slot may be another's by now."""
    site = await replica()
    cookie = cookie_of(await site.check())
    site.turn.forward(310)
    assert (await site.check()).status == 204
    reply = await site.check(cookie)
    assert reply.status == 401
    assert cookie_of(reply) != cookie


async def test_a_ticket_waits_then_enters(replica):
    """401 while it is not called, 204 and a pass once it is."""
    site = await replica()
    first = cookie_of(await site.check())
    ticket = cookie_of(await site.check())
    reply = await site.check(ticket)
    assert reply.status == 401
    assert "Set-Cookie" not in reply.headers
    assert reply.headers["X-Waitroom-Position"] == "1"
    await site.edge.post(f"/_waitroom/{site.room.name}/leave", headers={"Cookie": first})
    site.turn.forward(RELEASE_HOLD_MS / 1000 + 2)
    reply = await site.check(ticket)
    assert reply.status == 204
    assert "=p~" in reply.headers["Set-Cookie"]


OWN = "https://shop.example:8443"


@pytest.mark.parametrize(
    ("headers", "gives"),
    [
        ({"Sec-Fetch-Site": "cross-site"}, False),
        ({"Sec-Fetch-Site": "cross-site", "X-Original-Method": "PUT"}, False),
        ({"Sec-Fetch-Site": "cross-site", "X-Original-Method": "GET"}, True),
        ({"Sec-Fetch-Site": "cross-site", "X-Original-Method": ""}, True),  # GET
        ({"Sec-Fetch-Site": "same-site"}, True),
        ({"Sec-Fetch-Site": "same-origin"}, True),
        ({}, True),
        ({"Origin": "https://bank.example"}, False),
        ({"Origin": "null"}, False),
        ({"Origin": "https://shop.example"}, False),  # another port
        ({"Origin": OWN}, True),
        ({"Origin": "http://shop.example:8443"}, True),
        ({"Origin": "null", "Sec-Fetch-Site": "same-origin"}, True),
        ({"Origin": "https://bank.example", "X-Original-Method": "GET"}, True),
    ],
)
async def test_a_post_from_another_site_takes_nobodys_cookie(replica, headers, gives):
    """The browser leaves the cookie out; a new one would take the place of a pass. An old browser,
    without Sec-Fetch-Site, names the other site in Origin."""
    site = await replica()
    asked = {"X-Original-Method": "POST", "X-Forwarded-Host": "shop.example:8443", **headers}
    reply = await site.check(headers=asked)
    assert (reply.status, "Set-Cookie" in reply.headers) == (204 if gives else 401, gives)


async def test_a_form_of_another_site_joins_nobody(replica):
    site = await replica()
    url = f"/_waitroom/{site.room.name}/join"
    for accept in ("application/json", "text/html"):
        headers = {"Sec-Fetch-Site": "cross-site", "Accept": accept}
        reply = await site.edge.post(url, headers=headers)
        assert "Set-Cookie" not in reply.headers
    assert "Set-Cookie" in (await site.edge.post(url)).headers


FRAME = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}
OLD_SCRIPT = {"Accept": "*/*", "User-Agent": "Mozilla/5.0 (old browser's script)"}
CRAWLERS = [
    {"Accept": "*/*", "User-Agent": "Mozilla/5.0 (compatible; bingbot/2.0)"},
    {"Accept": "application/rss+xml, text/xml", "User-Agent": "Mozilla/5.0 (a feed reader)"},
    {"Accept": "text/calendar", "User-Agent": "Mozilla/5.0 (a calendar)"},
]


@pytest.mark.parametrize(
    ("headers", "takes"),
    [
        ({"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}, True),
        ({"Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image", "Accept": "image/*"}, False),
        ({"Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "script", "Accept": "*/*"}, False),
        ({"Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty", "Accept": "*/*"}, False),
        ({"Sec-Fetch-Mode": "cors", "Accept": "application/json"}, False),
        ({"Accept": "application/json"}, True), ({**FRAME, "Sec-Fetch-Site": "cross-site"}, False),
        ({**FRAME, "Sec-Fetch-Site": "same-site"}, True),
        ({**FRAME, "Sec-Fetch-Site": "same-origin"}, True),
        ({"Sec-Fetch-Mode": "navigate", "Sec-Purpose": "prefetch;prerender"}, False),
        ({"Purpose": "prefetch"}, False), ({"Accept": "image/avif,image/webp,*/*;q=0.8"}, False),
        ({"Accept": "text/css,*/*;q=0.1"}, False), ({**OLD_SCRIPT, "Referer": "/"}, False),
        ({"Accept": "*/*", "User-Agent": "curl/8"}, True),
        ({"Accept": "application/vnd.api+json"}, True),
    ],
)  # fmt: skip
async def test_who_takes_a_place(replica, headers, takes):
    """Navigations and programs do; images, scripts, fetches and prefetches do not."""
    site = await replica()
    await site.room.refresh()
    reply = await site.check(headers=headers)
    assert (reply.status, "Set-Cookie" in reply.headers) == ((204, True) if takes else (401, False))
    snapshot = await site.room.refresh()
    assert snapshot.active == (1 if takes else 0)


@pytest.mark.parametrize("headers", CRAWLERS)
async def test_a_crawler_enters_a_free_room(replica, headers):
    """A crawler, which calls itself a browser, takes a free slot, and never a place."""
    site = await replica(total_active_users=1)
    await site.room.refresh()
    assert (await site.check(headers=headers)).status == 204
    await site.room.refresh()
    assert (await site.check(headers=headers)).status == 401
    snapshot = await site.room.refresh()
    assert (snapshot.active, snapshot.waiting) == (1, 0)


async def test_a_crawler_is_ahead_of_nobody(replica):
    """Where somebody waits, the free slot is theirs."""
    site = await replica(total_active_users=1, queue_all=True)
    assert (await site.check()).status == 401
    await site.room.store.configure({"queue_all": False})
    await site.room.refresh()
    assert (await site.check(headers=CRAWLERS[0])).status == 401


async def test_reject_refuses_when_full(replica):
    """403 with Retry-After, and nobody in line."""
    site = await replica(queueing_method="reject")
    await site.check()
    reply = await site.check()
    assert (reply.status, reply.headers["X-Waitroom-State"]) == (403, "closed")
    assert "Retry-After" in reply.headers
    assert (await site.room.refresh()).waiting == 0


async def test_max_waiting_refuses_beyond(replica):
    """403 and the state full."""
    site = await replica(max_waiting=1)
    for expected in (204, 401, 403):
        reply = await site.check()
        assert reply.status == expected
    assert reply.headers["X-Waitroom-State"] == "full"


async def test_an_unknown_room_is_named(replica):
    """403 and a state that says so; a missing name too."""
    site = await replica()
    for name in ("nope", "", "é" * 50, "../x"):
        reply = await site.check(headers={"X-Waitroom-Room": name})
        assert (reply.status, reply.headers["X-Waitroom-State"]) == (403, "unknown-room")


async def test_a_body_closes_the_connection(replica):
    """Answered, then closed: the body must not become the next request."""
    site = await replica()
    asked = {"X-Waitroom-Room": site.room.name, "Accept": "text/html"}
    reply = await site.edge.post("/check", data=b"GET /evil HTTP/1.1\r\n\r\n", headers=asked)
    assert (reply.status, reply.headers["Connection"]) == (204, "close")


async def test_what_an_internal_redirect_asks_again(replica):
    """The second question about one request gets the same cookie, and no second slot."""
    site = await replica(total_active_users=2)
    given = (await site.check()).headers["Set-Cookie"]
    reply = await site.check(headers={"X-Waitroom-Given": given})
    assert reply.status == 204
    assert reply.headers["Set-Cookie"].partition(";")[0] == given.partition(";")[0]
    assert (await site.room.refresh()).active == 1


async def test_a_released_pass_is_refused(replica):
    """A released pass admits for two seconds more, and its slot is free when no verdict is kept."""
    site = await replica()
    cookie = cookie_of(await site.check())
    await site.edge.post(f"/_waitroom/{site.room.name}/leave", headers={"Cookie": cookie})
    assert (await site.check(cookie)).status == 204
    site.turn.forward(2)
    assert (await site.check(cookie)).status == 401
    assert (await site.room.refresh()).active == 1
    site.turn.forward(VERDICT_TTL_MS / 1000)
    assert (await site.check()).status == 401  # the slot is for the one who came before
    snapshot = await site.room.refresh()
    assert (snapshot.active, snapshot.provisional) == (1, 1)


async def test_another_replica_hears_of_a_release(replica):
    """Another replica learns of a release by its next refresh, and refuses the pass in time."""
    site = await replica()
    cookie = cookie_of(await site.check())
    visitor = cookie.partition("~")[2].partition("~")[0]
    await site.room.store.leave(visitor, why="released")
    site.turn.forward(1)
    await site.room.refresh()
    assert (await site.check(cookie)).status == 204
    site.turn.forward(1)
    assert (await site.check(cookie)).status == 401


async def test_a_newcomer_whose_reply_was_lost_holds_no_slot(replica):
    """Redis replied too late: the visitor waits, and the next refresh frees the slot."""
    site = await replica()
    enter = site.room.store.enter

    async def late(visitor, **where):
        await enter(visitor, **where)
        raise StoreError("enter: the store did not answer in time")

    site.room.store.enter = late
    reply = await site.check()
    assert (reply.status, "Set-Cookie" in reply.headers) == (401, False)
    site.room.store.enter = enter
    assert (await site.room.refresh()).active == 0  # nobody was told of it
    site.turn.forward(RELEASE_HOLD_MS / 1000 + 1)
    assert (await site.room.refresh()).active == 0
