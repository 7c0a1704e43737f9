"""nginx and its sidecar: connections that are kept, and headers that visitors cannot send."""

import re
import time

import pytest

from tests.support.nginx_client import HTML, JSON, Visitor
from tests.support.relay import Relay
from tests.support.site import ADMIN_TOKEN, ROOT, gated
from tests.support.tokens import signed_pass

DOORS = ("", "status", "join", "leave")

#: What a visitor may try to say in nginx's or the site's name.
SPOOFED = {
    "X-Waitroom-Room": "open",
    # The pass would open the room as a cookie.
    "X-Waitroom-Given": f"waitroom_full={signed_pass('full')}; Path=/; HttpOnly",
    "X-Waitroom-Release": "site",
    "X-Waitroom-State": "admitted",
    "X-Waitroom-Ticket": signed_pass("full"),
    "X-Waitroom-Msec": "1.000",
    "X-Forwarded-For": "10.9.9.9",
    "X-Forwarded-Host": "elsewhere.test",
    "X-Forwarded-Proto": "https",
    "X-Forwarded-Uri": "/open",
    "X-Forwarded-Method": "OPTIONS",
    "X-Real-IP": "10.9.9.9",
    "X-Original-URI": "/open",
    "X-Original-Method": "OPTIONS",
    "X-Original-URL": "/open",
    "X-Rewrite-URL": "/open",
    "X-HTTP-Method-Override": "OPTIONS",
    "X-Forwarded-Prefix": "/open",
    "Access-Control-Request-Method": "PUT",
    "X-Accel-Expires": "60",
    "X-Accel-Redirect": "/open",
    "Authorization": f"Bearer {ADMIN_TOKEN}",
}

REFUSING = """
set $waitroom_limit_on_failure refuse;
recursive_error_pages on;
include waitroom/server.conf;
"""


ROOMS = {
    "open": {"total_active_users": 1000},
    "full": {"total_active_users": 0},
    "shut": {"total_active_users": 0, "queueing_method": "reject"},
}
LOCATIONS = "".join(gated(f"/{room}", room=room) for room in ROOMS)
SITE = {
    "rooms": ROOMS, "locations": LOCATIONS, "servers": {"refusing": REFUSING}, "relay": Relay
}  # fmt: skip


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
    """Of Referer the sidecar hears only that there is one, and nothing of what a visitor says in
    nginx's or the site's name."""
    own = {"X-Own": "1", "Referer": "http://x.test/", "Sec-Fetch-Mode": "navigate"}
    reply = Visitor(site.url, {**SPOOFED, **own}).post("/full/a%20b?c=%2F&d", b"")
    assert (reply.status, reply.waits) == (503, True)
    (check,) = relay.checks()
    assert abs(float(check.pop("x-waitroom-msec")) - time.time()) < 60
    assert check == {
        "": "GET /check HTTP/1.1",
        "host": "waitroom",
        "accept": HTML,
        "x-real-ip": "127.0.0.1",
        "x-forwarded-proto": "http",
        "x-waitroom-room": "full",
        "x-original-uri": "/full/a%20b?c=%2F&d",
        "x-original-method": "POST",
        "referer": "/",
        "sec-fetch-mode": "navigate",
    }


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
