"""What passes through Caddy and HAProxy, what does not, and what happens without replicas."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import aiohttp

from tests.support.nginx_client import JSON, Visitor, room_cookies
from tests.support.processes import wait_until
from tests.support.site import answers

#: What a visitor may try to say in the proxy's name.
FORGED = {
    "X-Waitroom-Room": "elsewhere",
    "X-Waitroom-State": "admitted",
    "X-Waitroom-Status": "200",
    "X-Waitroom-Release": "site",
    "X-Original-URI": "/evil",
    "X-Original-Method": "OPTIONS",
    "X-Forwarded-Uri": "/evil",
    "X-Forwarded-Method": "OPTIONS",
    "X-Forwarded-Proto": "https",
    "X-Forwarded-For": "192.0.2.7",
    "X-Real-IP": "192.0.2.7",
    "Access-Control-Request-Method": "GET",
}


def test_who_is_admitted(site, one_free):
    """The site's response brings both cookies once, and no cache may keep it."""
    visitor = Visitor(site.url)
    reply = visitor.get("/x?y=1")
    assert reply.status == 200
    assert reply.json()["path"] == "/x?y=1"
    assert "site=1; Path=/" in reply.all("Set-Cookie")
    assert len(room_cookies(reply, "shop")) == 1
    assert reply.all("Cache-Control") == ["private"]
    again = visitor.get("/x")
    assert (again.status, room_cookies(again, "shop")) == (200, [])
    assert again.all("Cache-Control") == []
    for status in (401, 403, 503):  # errors of the site stay what they are
        error = visitor.get(f"/status/{status}")
        assert (error.status, error.body) == (status, b"origin's own")


def test_a_stale_cookie_of_the_same_name(site, one_free):
    """From a parent domain, before the visitor's own. Caddy passes on the first alone."""
    visitor = Visitor(site.url)
    visitor.get("/x")
    cookie = f"waitroom_shop=p~stale; a=b; waitroom_shop={visitor.cookies['waitroom_shop']}"
    reply = Visitor(site.url).get("/x", headers={"Cookie": cookie})
    assert reply.status == (503 if site.name == "caddy" else 200)


def test_what_was_sent_is_never_asked_for_by_get(site, full):
    """The page leads back to where it was sent from, if that is of this site."""
    for referer, following in ((f"{site.url}/form?a=1", "/form?a=1"), ("http://b.test/", "/")):
        reply = Visitor(site.url).post("/sent", b"lost", headers={"Referer": referer})
        assert (reply.status, reply.waits, reply.data("method")) == (503, True, "POST")
        assert (reply.data("next"), "/sent" in reply.text) == (following, False)


def test_an_old_browser_names_the_other_site_in_origin(site, one_free):
    """As it comes back from a bank, without Sec-Fetch-Site: it takes no slot and no cookie."""
    visitor = Visitor(site.url)
    for origin in ("http://bank.example", "null"):
        reply = visitor.post("/x", b"paid", headers={"Origin": origin})
        assert (reply.status, room_cookies(reply, "shop")) == (503, [])
    assert visitor.post("/x", b"", headers={"Origin": site.url}).status == 200


def test_who_waits(site, full):
    """The page in place, for this address and method, with a ticket; nobody may keep it."""
    visitor = Visitor(site.url)
    reply = visitor.get("/x?y=1&z")
    assert (reply.status, reply.waits) == (503, True)
    assert (reply.data("next"), reply.data("method")) == ("/x?y=1&amp;z", "GET")
    assert reply.all("Cache-Control") == ["no-store"]
    assert int(reply.headers["Retry-After"]) >= 1
    assert "script-src 'self'" in reply.headers["Content-Security-Policy"]
    assert len(room_cookies(reply, "shop")) == 1
    assert visitor.get("/").waits
    assert site.room()["waiting"] == 1
    asset = Visitor(site.url).get("/assets/logo")  # a path without a room
    assert (asset.status, room_cookies(asset, "shop")) == (200, [])


def test_programs_and_the_rooms_status(site, full):
    """Programs get the numbers, and 503 whatever the room's status for visitors is."""
    program = Visitor(site.url, {"Accept": JSON})
    problem = program.get("/api").json()
    assert (problem["status"], problem["state"], problem["position"]) == (503, "waiting", 1)
    status = program.get(problem["status_url"])
    assert (status.status, status.json()["position"]) == (200, 1)
    visitor = Visitor(site.url)
    inside = site.room()["active"]
    for code in (202, 503):
        site.admin("PATCH", "/rooms/shop", {"queueing_status_code": code})
        # Each replica hears of it within its refresh.
        wait_until(lambda code=code: {visitor.get().status for _ in range(4)} == {code}, f"{code}")
        assert visitor.get().waits
        assert visitor.get(headers={"Accept": JSON}).status == 503
    assert site.room()["active"] == inside


def test_forged_headers_are_not_believed(site, full):
    """Forged headers admit nobody, change no room, address or cookie, and are dropped."""
    visitor = Visitor(site.url, FORGED)
    reply = visitor.get("/x")
    assert (reply.status, reply.waits) == (503, True)
    assert (reply.data("room"), reply.data("next")) == ("shop", "/x")
    assert not reply.headers["Set-Cookie"].endswith("Secure")
    document = visitor.get("/_waitroom/shop/status?client").json()
    assert (document["state"], document["client"]) == ("waiting", "127.0.0.1")
    released = site.room()["counters"].get("released", 0)
    assert visitor.post("/_waitroom/shop/leave").status == 200
    assert site.room()["counters"].get("released", 0) == released


def test_other_doors_of_a_replica_are_not_reached(site, full):
    """Paths outside /_waitroom/ belong to the site, however they are spelt."""
    for path in (
        "/check", "/gate/shop", "/gate/shop/", "/gate/shop/../../_waitroom/x", "/%5fwaitroom/shop/",
        "//_waitroom/shop/status", "/assets/../x", "/assets/%2e%2e/x", "/assets/%2E./x",
        "/assets/x/..;/x", "/assets/..%5cx", "/assets/%5c../x", "/assets/x/..?y",
    ):  # fmt: skip
        reply = Visitor(site.url).get(path)
        assert (path, reply.status, reply.waits) == (path, 503, True)
    for path in ("/../check", "/../gate/shop", "/..%2fgate/shop", "/%2e%2e/gate/shop"):
        assert (path, Visitor(site.url).get(f"/_waitroom{path}").status) == (path, 404)


def test_bodies_arrive(site, one_free):
    """Of somebody inside, with a length and in chunks; a refused one is nobody's next request."""
    visitor = Visitor(site.url)
    assert visitor.get("/").status == 200
    body = b"GET /check HTTP/1.1\r\n\r\n" * 4_000
    assert visitor.post("/x", body).json()["received"] == len(body)
    assert visitor.post("/x", body, chunked=True).json()["received"] == len(body)
    for chunked in (False, True):
        assert Visitor(site.url).post("/x", body, chunked=chunked).waits
    assert visitor.get("/x").json()["received"] == 0


def test_a_websocket_passes(site, one_free):
    """Of somebody inside; to others it is refused."""
    visitor = Visitor(site.url)
    visitor.get("/")
    inside = f"waitroom_shop={visitor.cookies['waitroom_shop']}"
    # A thread of its own: the browser's loop may be this one's.
    with ThreadPoolExecutor() as threads:
        assert threads.submit(asyncio.run, echo(site, inside)).result() == "hello"
        assert threads.submit(asyncio.run, echo(site, "")).result() == "503"


async def echo(site, cookie: str) -> str:
    """Return what the site's WebSocket echoes, or the status with which it is refused."""
    async with aiohttp.ClientSession(headers={"Cookie": cookie}) as session:
        try:
            async with session.ws_connect(f"{site.url}/ws") as socket:
                await socket.send_str("hello")
                return await socket.receive_str()
        except aiohttp.WSServerHandshakeError as error:
            return str(error.status)


def test_replicas_that_are_away(site, one_free):
    """One replica is enough; without any nobody passes, except where there is no room."""
    inside, outside = Visitor(site.url), Visitor(site.url)
    assert inside.get("/").status == 200
    assert outside.get("/").waits
    site.replicas[0].stop()
    try:
        for _ in range(3):
            assert inside.get("/").status == 200
            assert outside.get("/").waits
        site.replicas[1].stop()
        for visitor in (inside, outside, Visitor(site.url)):
            reply = visitor.get("/")
            assert (reply.status, reply.all("Set-Cookie")) == (503, [])
            assert b"There is no connection" in reply.body
            assert reply.all("Cache-Control") == ["no-store"]
            assert reply.headers["Retry-After"] == "5"
        assert outside.get("/_waitroom/shop/status").status == 503
        assert outside.get("/assets/logo").status == 200
    finally:
        for replica, ops in zip(site.replicas, site.ops, strict=True):
            replica.start()
            wait_until(lambda ops=ops: answers(f"{ops}/readyz"), "a replica")
    wait_until(lambda: inside.get("/").status == 200, "the one inside")
    assert outside.get("/").waits


def test_a_replica_that_hangs(site, one_free):
    """Another replica answers in its stead, also a POST, and others are served meanwhile."""
    visitor = Visitor(site.url)
    assert visitor.get("/").status == 200
    with site.replicas[0].frozen(), ThreadPoolExecutor() as threads:
        asking = [threads.submit(visitor.post, "/x", b"body") for _ in range(4)]
        while not all(request.done() for request in asking):
            assert visitor.get("/assets/logo").status == 200
        assert [request.result().json()["received"] for request in asking] == [4] * 4


def test_no_token_is_logged(site, one_free):
    """A query string may hold a claim link's token, or a grant."""
    Visitor(site.url).get("/_waitroom/shop/claim?token=secret")
    Visitor(site.url).get("/x?waitroom_grant=secret")
    Visitor(site.url).get("/logged")
    log = site.folder / f"{site.name}.log"
    if site.name == "haproxy":
        wait_until(lambda: "GET /logged" in log.read_text(), "the log")
        assert '"GET /_waitroom/shop/claim HTTP/1.1"' in log.read_text()
    assert "secret" not in log.read_text()
