"""Unknown rooms through nginx, releases, and staff who pass by."""

import socket
from urllib.parse import urlsplit

import pytest
import redis

from sidecar.rooms.redis_keys import room_key
from tests.support.nginx_client import JSON, Visitor, room_cookies
from tests.support.processes import wait_until
from tests.support.site import Site, gated

ROOMS = {
    "queued": {"total_active_users": 5, "queue_all": True},
    "one": {"total_active_users": 1},
    "two": {"total_active_users": 1},
    "staff": {"total_active_users": 0},
    "idle": {"total_active_users": 1},
    "released": {"total_active_users": 10},
    "shown": {"total_active_users": 100},
    "paid": {"total_active_users": 100},
}
STAFF = ("satisfy any;", "allow 10.1.0.0/16;", "deny all;")


@pytest.fixture(scope="module")
def site(stamps):
    locations = "".join(gated(f"/{room}/", room=room) for room in ROOMS)
    for room in ("one", "two", "idle", "released", "shown"):
        locations += gated(f"/{room}/done", "include waitroom/release.conf;", room=room)
    anywhere = ("set $waitroom_release_from anywhere;", "include waitroom/release.conf;")
    locations += gated("/paid/done", *anywhere, room="paid")
    locations += gated("/unknown/", room="nosuch")
    locations += gated("/returned", "return 200 in;", room="queued", to="")
    locations += gated("/moved", "return 301 /elsewhere;", room="queued", to="")
    locations += gated("/file", "root /nowhere;", room="queued", to="")
    locations += "location /unset/ { include waitroom/location.conf; proxy_pass http://origin; }\n"
    locations += gated("/staff/desk", *STAFF, room="staff")
    # The address comes from a header here, as behind a load balancer.
    server = "set_real_ip_from 127.0.0.1; real_ip_header X-Test-Address;"
    with Site(rooms=ROOMS, locations=locations, server=server, stamps=stamps) as site:
        yield site


@pytest.mark.parametrize(("path", "name"), [("/unknown/", "nosuch"), ("/unset/", "")])
@pytest.mark.parametrize("accept", ["text/html", JSON])
def test_an_unknown_room_is_named(site, path, name, accept):
    """503 with a sentence that names the room and where to look; no cookie, no page."""
    reply = Visitor(site.url, {"Accept": accept}).get(path)
    assert (reply.status, reply.waits) == (503, False)
    assert reply.headers["Content-Type"].startswith("text/plain")
    assert f"'{name}'" in reply.text
    assert "waitroom_room" in reply.text
    assert reply.headers["Cache-Control"] == "no-store"
    assert reply.all("Set-Cookie") == []


def test_an_unknown_room_is_logged_once(site):
    """One line, however many ask."""
    for _ in range(20):
        Visitor(site.url).get("/unknown/")
    lines = [line for line in site.replicas[0].output.splitlines() if "nosuch" in line]
    assert len(lines) == 1
    assert "unknown_room" in lines[0]


@pytest.mark.parametrize(("path", "status"), [("/returned", 200), ("/moved", 301)])
def test_a_return_beside_the_room_passes_it_by(site, path, status):
    """nginx runs it before anybody is asked (see docs): known, and no place is taken."""
    reply = Visitor(site.url).get(path)
    assert (reply.status, reply.all("Set-Cookie")) == (status, [])


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_a_denied_post_to_a_file_waits(site, method):
    """The page, and not the 405 with which nginx answers a POST to a file."""
    reply = Visitor(site.url).send(method, "/file/x.html", body=b"12345")
    assert (reply.status, reply.waits) == (503, True)


def test_a_release_frees_the_slot(site):
    """The page that ends a visit is answered as ever, and the next gets in. A visit that starts on
    its last page keeps no slot."""
    assert Visitor(site.url).get("/idle/done").status == 200
    first, second = Visitor(site.url), Visitor(site.url)
    assert first.get("/one/").status == 200
    assert second.get("/one/").waits
    done = first.post("/one/done?order=1", b"12345")
    assert (done.status, done.json()["received"]) == (200, 5)
    wait_until(lambda: second.get("/one/").status == 200, "the slot", timeout_s=10)
    assert first.get("/one/").waits
    other = Visitor(site.url)
    wait_until(lambda: other.get("/idle/").status == 200, "the slot of the visit that is over")


def until_mirrored(visitor, path, headers, method="GET"):
    """Return the response after nginx closed the connection, when the mirrored request is over."""
    cookies = "; ".join(f"{name}={value}" for name, value in visitor.cookies.items())
    lines = {"Host": "shop", "Connection": "close", "Cookie": cookies, **headers}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    address = urlsplit(visitor.url)
    with socket.create_connection((address.hostname, address.port), timeout=20) as connection:
        connection.sendall(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode())
        return b"".join(iter(lambda: connection.recv(65536), b""))


def fetched(mode, dest, site="same-origin"):
    return {"Sec-Fetch-Mode": mode, "Sec-Fetch-Dest": dest, "Sec-Fetch-Site": site}


NAVIGATION = fetched("navigate", "document")
LINK_OF_ANOTHER_SITE = fetched("navigate", "document", "cross-site")
FORM_OF_ANOTHER_HOST = fetched("navigate", "document", "same-site")
PICTURE_ELSEWHERE = fetched("no-cors", "image", "cross-site")
#: Room, method, headers, and whether the visit is over.
ENDS = {
    "a navigation": ("shown", "GET", NAVIGATION, True),
    "an address typed in": ("shown", "GET", fetched("navigate", "document", "none"), True),
    "a form": ("shown", "POST", NAVIGATION, True),
    "a script": ("shown", "GET", fetched("cors", "empty"), True),
    "a program": ("shown", "GET", {}, True),
    "a link of another site": ("shown", "GET", LINK_OF_ANOTHER_SITE, False),
    "a form of another host": ("shown", "POST", FORM_OF_ANOTHER_HOST, False),
    "a picture": ("shown", "GET", fetched("no-cors", "image"), False),
    "a style": ("shown", "GET", fetched("no-cors", "style"), False),
    "a picture elsewhere": ("shown", "GET", PICTURE_ELSEWHERE, False),
    "HEAD": ("shown", "HEAD", {}, False),
    "a prefetch": ("shown", "GET", {"Sec-Purpose": "prefetch"}, False),
    "a prerendering": ("shown", "GET", {"Sec-Purpose": "prefetch;prerender"}, False),
    "an older prefetch": ("shown", "GET", {"Purpose": "prefetch"}, False),
    "the oldest prefetch": ("shown", "GET", {"X-Moz": "prefetch"}, False),
    "a payment provider's link": ("paid", "GET", LINK_OF_ANOTHER_SITE, True),
    "a payment provider's picture": ("paid", "GET", PICTURE_ELSEWHERE, False),
}  # fmt: skip


@pytest.mark.parametrize(("room", "method", "headers", "ends"), ENDS.values(), ids=ENDS)
def test_whose_request_ends_a_visit(site, room, method, headers, ends):
    """The page is answered whoever asks."""
    visitor = Visitor(site.url)
    assert visitor.get(f"/{room}/").status == 200
    before = events(site, room).count("released")
    assert until_mirrored(visitor, f"/{room}/done", headers, method).startswith(b"HTTP/1.1 200 ")
    assert events(site, room).count("released") == before + ends


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        (fetched("cors", "empty"), 200),
        (fetched("no-cors", "empty"), 200),  # sendBeacon
        (fetched("navigate", "document", "none"), 200),
        (fetched("navigate", "document", "same-site"), 403),
        (fetched("cors", "empty", "same-site"), 403),
        (fetched("no-cors", "empty", "cross-site"), 403),
        (fetched("no-cors", "image"), 204),
        ({"Origin": "https://elsewhere.example"}, 403),
        ({"Origin": "null"}, 403),
    ],
)
def test_who_may_leave_for_a_visitor(site, headers, status):
    visitor = Visitor(site.url)
    assert visitor.get("/shown/").status == 200
    before = events(site, "shown").count("left")
    left = visitor.post("/_waitroom/shown/leave", headers={"Accept": JSON, **headers})
    assert left.status == status
    if status == 403:
        assert left.json()["code"] == "from_elsewhere"
    assert events(site, "shown").count("left") == before + (status == 200)


def test_a_release_is_the_sites_doing(site):
    """A release has another event than a visitor who leaves by the page's button."""
    for path, how in (("/released/done", "released"), ("/_waitroom/released/leave", "left")):
        visitor = Visitor(site.url)
        assert visitor.get("/released/").status == 200
        visitor.post(path)
        wait_until(lambda how=how: how in events(site, "released"), f"the event {how}")


def events(site, room):
    """Return all values in the events of a room, among them why visitors left."""
    with redis.Redis(unix_socket_path=str(site.redis_socket), decode_responses=True) as store:
        entries = store.xrange(room_key(room, "events"))
    return [value for _, fields in entries for value in fields.values()]


def test_only_those_inside_release(site):
    """A waiting visitor who asks for that page waits, and frees nobody's slot."""
    first, second = Visitor(site.url), Visitor(site.url)
    assert first.get("/two/").status == 200
    assert second.get("/two/").waits
    assert second.get("/two/done").waits
    assert second.get("/_waitroom/two/status").json()["state"] == "waiting"
    assert first.get("/two/").status == 200


def test_staff_pass_by(site):
    """`satisfy any` with `allow` admits those addresses without a slot."""
    staff = Visitor(site.url, {"X-Test-Address": "10.1.2.3"})
    reply = staff.get("/staff/desk")
    assert (reply.status, room_cookies(reply, "staff")) == (200, [])
    assert (site.room("staff")["active"], site.room("staff")["waiting"]) == (0, 0)
    other = Visitor(site.url, {"X-Test-Address": "10.2.2.3"}).get("/staff/desk")
    assert (other.status, other.waits) == (503, True)
    assert len(room_cookies(other, "staff")) == 1
