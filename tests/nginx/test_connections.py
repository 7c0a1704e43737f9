"""nginx and its sidecar: connections that are kept, and headers that visitors cannot send."""

import re

import pytest

from tests.support.nginx_client import JSON, Visitor
from tests.support.relay import Relay
from tests.support.site import ADMIN_TOKEN, ROOT, Site, gated

DOORS = ("", "status", "join", "leave")

#: What a visitor may try to say in nginx's or the site's name.
SPOOFED = {
    "X-Waitroom-Room": "open",
    "X-Waitroom-Given": "waitroom_full=x",
    "X-Waitroom-Release": "site",
    "X-Waitroom-State": "admitted",
    "X-Forwarded-For": "10.9.9.9",
    "X-Forwarded-Host": "elsewhere.test",
    "X-Forwarded-Proto": "https",
    "X-Forwarded-Uri": "/open",
    "X-Forwarded-Method": "OPTIONS",
    "X-Real-IP": "10.9.9.9",
    "X-Original-URI": "/open",
    "X-Original-Method": "OPTIONS",
    "X-Accel-Expires": "60",
    "X-Accel-Redirect": "/open",
    "Authorization": f"Bearer {ADMIN_TOKEN}",
}

REFUSING = """
set $waitroom_limit_on_failure refuse;
recursive_error_pages on;
include waitroom/server.conf;
"""


@pytest.fixture(scope="module")
def site():
    rooms = {
        "open": {"total_active_users": 1000},
        "full": {"total_active_users": 0},
        "shut": {"total_active_users": 0, "queueing_method": "reject"},
    }
    locations = "".join(gated(f"/{room}", room=room) for room in rooms)
    servers = {"refusing": REFUSING}
    with Site(rooms=rooms, locations=locations, servers=servers, relay=Relay) as site:
        yield site


@pytest.mark.parametrize(("path", "status"), [("/open", 200), ("/full", 503), ("/shut", 503)])
def test_connections_to_the_sidecar_are_kept(site, relay, path, status):
    """Fifty verdicts of each kind, 204, 401 and 403, take one connection at most."""
    for _ in range(50):
        assert Visitor(site.url).get(path).status == status
    assert len(relay.checks()) == 50
    assert relay.connections <= 1


def test_posts_and_endpoints_keep_the_connection_too(site, relay):
    """nginx keeps a body, so neither POSTs nor the page with its polls end the connection."""
    for path in ("/open", "/full") * 10:
        Visitor(site.url).post(path, b"x" * 5000)
    assert len(relay.checks()) == 20
    visitor = Visitor(site.url)
    for _ in range(10):
        visitor.get("/_waitroom/full/")
        visitor.get("/_waitroom/full/status")
        visitor.post("/_waitroom/full/join", b"next=/")
    assert relay.connections <= 1


def test_only_what_is_named_reaches_the_sidecar(site, relay):
    """No other header of the visitor's arrives, and of Referer only that there is one."""
    Visitor(site.url, {"X-Own": "1", "Referer": "http://x.test/"}).get("/open")
    (check,) = relay.checks()
    assert set(check) - {""} == {
        "host", "accept", "x-real-ip", "x-forwarded-proto", "x-waitroom-room",
        "x-original-uri", "x-original-method", "x-waitroom-msec", "referer",
    }  # fmt: skip
    assert check["referer"] == "/"


def test_the_sidecar_hears_about_the_visitors_request(site, relay):
    """Room, address, method, URI and what a newcomer is judged by."""
    headers = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document", "Accept-Language": "de"}
    Visitor(site.url, headers).post("/open/a%20b?c=%2F&d", b"")
    (check,) = relay.checks()
    assert check["x-waitroom-room"] == "open"
    assert check["x-real-ip"] == "127.0.0.1"
    assert check["x-original-method"] == "POST"
    assert check["x-original-uri"] == "/open/a%20b?c=%2F&d"
    assert check["x-forwarded-proto"] == "http"
    assert check["sec-fetch-mode"] == "navigate"


def test_spoofed_headers_have_no_effect(site, relay):
    """Neither a pass, nor another room, nor another address comes of them."""
    reply = Visitor(site.url, SPOOFED).get("/full/x")
    assert (reply.status, reply.waits) == (503, True)
    (check,) = relay.checks()
    assert check["x-waitroom-room"] == "full"
    assert check["x-real-ip"] == "127.0.0.1"
    assert check["x-original-uri"] == "/full/x"
    assert check["x-original-method"] == "GET"
    assert check["x-forwarded-proto"] == "http"
    assert set(check).isdisjoint({"x-waitroom-given", "x-forwarded-for", "authorization",
                                  "x-forwarded-uri", "x-forwarded-method"})  # fmt: skip


@pytest.mark.parametrize("door", DOORS)
def test_spoofed_headers_have_no_effect_at_the_doors(site, relay, door):
    """A visitor who leaves is counted as one who left, not as one whom the site released."""
    method = "POST" if door in {"join", "leave"} else "GET"
    reply = Visitor(site.url, SPOOFED).send(method, f"/_waitroom/full/{door}")
    assert reply.status == 200
    assert not any("Secure" in line for line in reply.all("Set-Cookie"))
    (seen,) = relay.requests
    assert set(seen).isdisjoint(
        {name.lower() for name in SPOOFED} - {"x-real-ip", "x-forwarded-proto"}
    )
    assert (seen["x-real-ip"], seen["x-forwarded-proto"]) == ("127.0.0.1", "http")


SERVER = (ROOT / "nginx" / "waitroom" / "server.conf").read_text()
INTERNAL = sorted(set(re.findall(r"location [=^~]+ (/_waitroom/internal/\S*) ", SERVER)))


@pytest.mark.parametrize(
    "path",
    [
        *INTERNAL, *(f"{path}/x" for path in INTERNAL),
        "/_waitroom/internal/status", "/_waitroom/internal/anything",
        "/_waitroom/open/../internal/check", "//_waitroom//internal/check",
        "/_waitroom/%69nternal/check",
    ],
)  # fmt: skip
def test_what_is_internal_is_not_found_from_outside(site, relay, path):
    """404, with nothing asked of the sidecar; whatever the server says of a limit's failures."""
    for method in ("GET", "POST", "HEAD", "OPTIONS"):
        for server in ("", "refusing"):
            visitor = Visitor(site.url, {"Host": server} if server else {})
            assert visitor.send(method, path, body=b"").status == 404
    assert relay.requests == []


def test_odd_requests_to_endpoints(site):
    """Other methods get 405, and an unknown room a problem document that names the room."""
    visitor = Visitor(site.url, {"Accept": JSON})
    for door, method in (("status", "POST"), ("join", "GET"), ("leave", "GET"), ("", "POST")):
        reply = visitor.send(method, f"/_waitroom/open/{door}", body=b"")
        assert (door, reply.status) == (door, 405)
    assert visitor.send("DELETE", "/_waitroom/open/status").status == 405
    reply = visitor.get("/_waitroom/nothing/status")
    assert reply.status == 404
    assert reply.headers["Content-Type"] == "application/problem+json"
    assert "nothing" in reply.json()["detail"]
