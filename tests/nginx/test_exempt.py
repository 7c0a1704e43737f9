"""Exemptions and the roll-out, before a real nginx: who passes, and whose verdict is kept."""

import pytest

from tests.support.nginx_client import Visitor, room_cookies
from tests.support.processes import wait_until
from tests.support.relay import Relay
from tests.support.site import gated

ROOMS = {
    "full": {"total_active_users": 0, "exempt_paths": ["/full/feed/"], "exempt_header": True},
    "share": {"total_active_users": 0, "rollout_percent": 0},
}
HTTP = """
    map $http_x_badge $test_badge { default ""; secret staff; }
"""
LOCATIONS = "".join(
    f"location /{room} {{ set $waitroom_room {room}; set $waitroom_exempt $test_badge;"
    " include waitroom/location.conf; proxy_pass http://origin; }\n"
    for room in ROOMS
) + gated("/plain", room="full")
BADGE = {"X-Badge": "secret"}


SITE = {"rooms": ROOMS, "locations": LOCATIONS, "http": HTTP, "relay": Relay}


def is_let_in(reply) -> bool:
    assert reply.waits is (reply.status == 503)
    return reply.status == 200


@pytest.mark.parametrize("path", ["/full", "/plain"])
@pytest.mark.parametrize("name", ["X-Waitroom-Exempt", "x-waitroom-exempt", "X-Waitroom_Exempt"])
def test_a_visitors_own_header_says_nothing(site, path, name):
    """Nor do the others that the sidecar believes of nginx."""
    forged = {name: "staff", "X-Real-IP": "192.0.2.1", "X-Original-URI": "/full/feed/"}
    assert Visitor(site.url).get(path, headers=forged).waits


def test_what_nginx_exempts_passes(site):
    """Without a cookie, and without a place."""
    before = site.room("full")["waiting"]
    reply = Visitor(site.url).get("/full", headers=BADGE)
    assert is_let_in(reply)
    assert room_cookies(reply, "full") == []
    assert site.room("full")["waiting"] == before


@pytest.mark.parametrize("exempt", ["badge", "path"])
def test_an_exempt_verdict_is_nobody_elses(site, exempt):
    """Neither of others without a cookie nor of the same visitor's other requests."""
    path, headers = ("/full", BADGE) if exempt == "badge" else ("/full/feed/a.xml?b", {})
    waiting = Visitor(site.url)
    assert waiting.get("/full").waits
    for _ in range(3):
        assert is_let_in(Visitor(site.url).get(path, headers=headers))
        assert Visitor(site.url).get("/full").waits
        assert is_let_in(waiting.get(path, headers=headers))
        assert waiting.get("/full").waits


@pytest.mark.parametrize(
    "path",
    ["/full/feed/../x", "/full/feed/%2e%2e/x", "/full//feed/x", "/full/feed/..;/x", "/full/feed",
     "/full/feed/..%2fx", "/full?/full/feed/"],
)  # fmt: skip
def test_a_path_that_leads_elsewhere_is_not_exempt(site, path):
    """However it is written; nginx refuses some (strict-path.conf)."""
    reply = Visitor(site.url).get(path)
    assert reply.waits or reply.status == 400


def test_a_roll_out(site):
    """Nobody waits at 0 and some at 50, and verdicts about outsiders are kept for a moment. What
    else becomes of them is in tests/rooms/test_rollout.py."""
    relay = site.relays[0]
    relay.forget()
    before = [Visitor(site.url, {"User-Agent": f"Mozilla/5.0 {i}"}) for i in range(20)]
    assert all(is_let_in(visitor.get("/share")) for visitor in before)
    assert not any(visitor.cookies.get("waitroom_share") for visitor in before)
    assert len(relay.checks()) < 20

    site.admin("PATCH", "/rooms/share", {"rollout_percent": 50})
    wait_until(lambda: any(v.get("/share").waits for v in before), "the verdict to be forgotten")
    outside = [visitor for visitor in before if is_let_in(visitor.get("/share"))]
    subject = [visitor for visitor in before if visitor not in outside]
    assert len(outside) > 2
    assert len(subject) > 2
    relay.forget()
    for _ in range(5):
        assert all(is_let_in(visitor.get("/share")) for visitor in outside)
    assert len(relay.checks()) < 4 * len(outside)
    assert all(visitor.get("/share").waits for visitor in subject)


def test_suspended_is_the_way_back(site):
    """Within two seconds for everybody, those in line too; afterwards they have their places."""
    line = [Visitor(site.url) for _ in range(3)]
    assert all(visitor.get("/plain").waits for visitor in line)
    places = [visitor.get("/_waitroom/full/status").json()["position"] for visitor in line]
    site.admin("PATCH", "/rooms/full", {"suspended": True})
    wait_until(
        lambda: all(v.get("/plain").status == 200 for v in line), "the way back", timeout_s=5
    )
    site.admin("PATCH", "/rooms/full", {"suspended": None})
    wait_until(lambda: all(v.get("/plain").waits for v in line), "the room to be on again")
    after = [visitor.get("/_waitroom/full/status").json()["position"] for visitor in line]
    assert after == places
