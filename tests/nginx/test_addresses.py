"""Long and odd addresses, old clients: never a 500, never a way in."""

import re

import pytest

from tests.support.nginx_client import HTML, JSON, Visitor

LONG = "/x?" + "a" * 7900

ODD = {
    "encoded zero": b"/a%00b",
    "double slash": b"//a//b",
    "dots": b"/a/../b/./c",
    "dots above the root": b"/../../etc/passwd",
    "encoded dots": b"/%2e%2e/%2e%2e/x",
    "encoded slash": b"/a%2fb",
    "encoded percent": b"/a%2500",
    "broken encoding": b"/a%zz%",
    "no UTF-8": b"/caf\xe9?q=\xff\xfe",
    "encoded, no UTF-8": b"/caf%e9?q=%ff%fe",
    "UTF-8": "/café?q=日本".encode(),
    "encoded line end": b"/a%0d%0aSet-Cookie:%20x=1",
    "control characters": b"/a\x01\x02\x7f",
    "quotes": b"/a\"b'c<d>e`f",
    "variables": b"/$waitroom_room/${x}?$request_uri",
    "SSI": b'/<!--#%20echo%20var="http_cookie"%20-->',
    "backslash": b"/\\evil.test/x",
    "semicolons": b"/a;b=c;d",
    "question marks": b"/a?b?c??d",
    "fragment": b"/a#b",
    "only a query": b"/?",
    "plus and space": b"/a+b%20c",
    "a door's name": b"/_waitroomx/status",
    "a whole address": b"http://localhost/page?a=1",
    "a whole address of another host": b"http://other.test/page",
    "long": LONG.encode(),
}


SITE = {
    "rooms": {
        "open": {"total_active_users": 1000},
        "full": {"total_active_users": 0},
        "sent": {"total_active_users": 0},
    },
    "http": 'map $http_x_test_room $test_room { default $http_x_test_room; "" open; }',
    "locations": """
        location / {
            set $waitroom_room $test_room;
            if ($test_room = sent) { set $waitroom_mode redirect; }
            include waitroom/location.conf;
            proxy_pass http://origin;
        }
    """,
}


@pytest.mark.parametrize("path", ODD.values(), ids=ODD)
@pytest.mark.parametrize("accept", [HTML, JSON], ids=["page", "problem"])
def test_an_odd_address_is_no_way_in_and_no_error(site, path, accept):
    """Denied as any other, or refused by nginx itself as a bad request."""
    reply = Visitor(site.url, {"Accept": accept, "X-Test-Room": "full"}).get(path)
    assert reply.status in {503, 400}
    if reply.status == 503:
        assert reply.waits or reply.json()["room"] == "full"
    assert "x" not in [line.partition("=")[0] for line in reply.all("Set-Cookie")]


@pytest.mark.parametrize("path", ODD.values(), ids=ODD)
def test_an_odd_address_passes_with_a_pass(site, path):
    """With room inside the origin gets it, or nginx or the origin refuse it; no 500."""
    reply = Visitor(site.url).get(path)
    assert reply.status in {200, 400, 404}


@pytest.mark.parametrize("path", ODD.values(), ids=ODD)
def test_an_odd_address_survives_the_redirect(site, path):
    """The page's own address takes any `next`; otherwise the page is shown in place."""
    visitor = Visitor(site.url, {"X-Test-Room": "sent"})
    reply = visitor.get(path)
    if reply.status == 400:
        return
    if reply.status == 503:
        assert reply.waits
        assert len(path) >= 4096 or any(c > 126 for c in path)
        return
    assert reply.status == 302
    location = reply.headers["Location"].encode("latin-1")
    assert location.startswith(b"/_waitroom/sent/?next=/")
    page = visitor.get(location)
    assert page.status == 200
    assert page.waits
    shown = re.search(rb'data-next="([^"]*)"', page.body)
    assert shown
    assert shown[1].startswith(b"/")
    assert shown[1][1:2] not in {b"/", b"\\"}
    assert b"<d>" not in page.body


def test_a_long_address_arrives(site):
    """Eight kilobytes pass whole; denied, the page keeps them where the address is the same."""
    assert Visitor(site.url).get(LONG).json()["path"] == LONG
    reply = Visitor(site.url, {"X-Test-Room": "full"}).get(LONG)
    assert (reply.status, reply.waits) == (503, True)
    assert "Location" not in reply.headers


@pytest.mark.parametrize("version", ["HTTP/1.0", "HTTP/1.1"])
def test_old_clients(site, version):
    """HTTP/1.0 without a Host passes, waits and is sent on as everybody."""
    options = {"version": version, "headers": {"Host": None if version == "HTTP/1.0" else "x"}}
    assert Visitor(site.url).get("/", **options).status == 200
    for room, status in (("full", 503), ("sent", 302)):
        visitor = Visitor(site.url, {"X-Test-Room": room})
        reply = visitor.get("/", **options)
        assert (reply.status, len(reply.all("Set-Cookie"))) == (status, 1)
        door = visitor.get(f"/_waitroom/{room}/status", **options)
        assert door.json()["state"] == "waiting"
