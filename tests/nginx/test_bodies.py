"""Requests that are more than a GET: bodies, uploads, methods, WebSocket."""

from contextlib import closing
from http.client import HTTPConnection

import aiohttp
import pytest

from tests.support.nginx_client import HTML, JSON, Visitor
from tests.support.site import gated

MB = 1 << 20
UPLOAD = b"u" * (50 * MB)
PREFLIGHT = {"Origin": "https://other.test", "Access-Control-Request-Method": "PUT"}


LARGE = "client_max_body_size 100m;"
STREAMED = ("client_max_body_size 0;", "proxy_request_buffering off;")
WEBSOCKET = (
    "proxy_http_version 1.1;",
    "proxy_set_header Upgrade $http_upgrade;",
    'proxy_set_header Connection "upgrade";',
)
SITE = {
    "rooms": {"open": {"total_active_users": 100}, "full": {"total_active_users": 0}},
    "locations": gated("/", room="open")
    + gated("/full", room="full")
    + gated("/large", LARGE, room="open")
    + gated("/large-full", LARGE, room="full")
    + gated("/streamed", *STREAMED, room="open")
    + gated("/ws", *WEBSOCKET, room="open")
    + gated("/full/ws", *WEBSOCKET, room="full"),
}


@pytest.fixture
def inside(site):
    """Create a visitor with a pass."""
    visitor = Visitor(site.url)
    assert visitor.get("/").status == 200
    return visitor


@pytest.mark.parametrize(
    ("method", "path", "body", "chunked"),
    [
        ("POST", "/order", b"{}" * 150_000, False),
        ("POST", "/order", b"c" * 300_000, True),
        ("POST", "/streamed", b"s" * MB, False),  # proxy_request_buffering off
        ("POST", "/streamed", b"s" * MB, True),
        ("POST", "/large", UPLOAD, False),  # where the location allows it
        ("PUT", "/thing", b"12345", False),
        ("PATCH", "/thing", b"12345", False),
        ("DELETE", "/thing", b"12345", False),
    ],
    ids=["JSON", "chunks", "unbuffered", "unbuffered chunks", "large", "PUT", "PATCH", "DELETE"],
)
def test_a_body_arrives_whole(inside, method, path, body, chunked):
    """The origin gets method, type and body of an admitted visitor's request."""
    headers = {"Content-Type": JSON}
    got = inside.send(method, path, body=body, chunked=chunked, headers=headers).json()
    assert (got["method"], got["received"]) == (method, len(body))
    assert got["headers"]["Content-Type"] == JSON


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("asked", ["status", "join", "leave", ""])
def test_a_room_takes_no_large_bodies(site, asked, chunked):
    """No endpoint takes more than an address, or nginx would store the body on its disk."""
    url = f"/_waitroom/open/{asked}"
    for size in (100_000, MB):
        assert Visitor(site.url).post(url, b"l" * size, chunked=chunked).status == 413


def test_bodies_do_not_desync_the_sidecar(site, inside):
    """Visitors whose requests follow POSTs over the same connections get their own answers."""
    poison = b"GET /check HTTP/1.1\r\nHost: x\r\nX-Waitroom-Room: full\r\n\r\n"
    for chunked in (False, True):
        for _ in range(10):
            assert inside.post("/a", poison, chunked=chunked).json()["received"] == len(poison)
            denied = Visitor(site.url).post("/full", poison, chunked=chunked)
            assert (denied.status, denied.waits) == (503, True)
            assert inside.get("/b").json()["path"] == "/b"
            assert Visitor(site.url).get("/c").status == 200


def test_one_connection_serves_posts_and_gets_in_turn(site, inside):
    """A visitor's own connection stays in step over admitted and denied requests with bodies."""
    cookie = "; ".join(f"{name}={value}" for name, value in inside.cookies.items())
    with closing(HTTPConnection("127.0.0.1", site.port, timeout=10)) as connection:
        connection.connect()
        line = connection.sock
        for path, status in (("/1", 200), ("/full/2", 503), ("/3", 200)):
            connection.request("POST", path, b"hello", {"Accept": HTML, "Cookie": cookie})
            reply = connection.getresponse()
            reply.read()
            assert (reply.status, connection.sock) == (status, line)


def test_a_large_upload_that_is_denied_gets_the_waiting_page(site):
    """Not a 413 of the waiting page's location, and not a 500."""
    reply = Visitor(site.url).post("/large-full", UPLOAD)
    assert (reply.status, reply.waits) == (503, True)


def test_the_sites_own_limit_stays(inside):
    """Where the site takes 1 MB (nginx's default), more is a 413 as ever."""
    assert inside.post("/order", b"x" * (2 * MB)).status == 413


def test_head(site, inside):
    """HEAD passes as HEAD, and is denied without a body."""
    assert inside.send("HEAD", "/").status == 200
    reply = Visitor(site.url).send("HEAD", "/full")
    assert (reply.status, reply.body) == (503, b"")
    assert reply.headers["Retry-After"]


def test_a_denied_post_gets_the_page(site):
    """The page knows the method, so it neither repeats the POST nor sends a GET."""
    reply = Visitor(site.url).post("/full/form?a=1", b"a=b")
    assert (reply.status, reply.data("method"), reply.data("next")) == (503, "POST", "/")


def test_preflights_pass(site):
    """A CORS preflight carries no cookie by its nature; it takes no place either."""
    before = site.room("full")
    reply = Visitor(site.url, PREFLIGHT).send("OPTIONS", "/full/api")
    assert reply.json()["method"] == "OPTIONS"
    assert site.room("full")["waiting"] == before["waiting"]


@pytest.mark.parametrize(
    ("headers", "options"),
    [
        ({}, {}), ({"Access-Control-Request-Method": "GET"}, {}),
        ({"Origin": "https://other.test"}, {}), (PREFLIGHT | {"Cookie": "session=1"}, {}),
        (PREFLIGHT, {"body": b"a=1"}), (PREFLIGHT, {"body": b"a=1", "chunked": True}),
    ],
    ids=["bare", "no origin", "no method", "cookie", "body", "chunks"],
)  # fmt: skip
def test_other_options_requests_are_asked_about(site, headers, options):
    """They are no way round the room: an application may answer them like GET."""
    reply = Visitor(site.url, headers).send("OPTIONS", "/full/api", **options)
    assert reply.status == 503


async def test_websocket(site, inside):
    """A handshake passes with a pass, messages flow; without one it is refused."""
    async with aiohttp.ClientSession(cookies=inside.cookies) as session:
        async with session.ws_connect(f"{site.url}/ws") as socket_:
            await socket_.send_str("hello")
            assert (await socket_.receive(timeout=5)).data == "hello"
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await session.ws_connect(f"{site.url}/full/ws")
        assert refused.value.status == 503
