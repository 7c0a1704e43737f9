"""Classes before a real nginx: who may say one, what is kept for whom, and the way of a grant."""

import html
import time

import pytest

from sidecar.visitors.grants import Grant, Grants
from tests.support.nginx_client import Visitor
from tests.support.processes import wait_until
from tests.support.relay import Relay
from tests.support.site import SECRET, gated

ROOMS = {
    "full": {"total_active_users": 0},
    "aside": {"total_active_users": 0},
    "flooded": {"total_active_users": 0, "shield_above": 1},
}
HTTP = 'map $http_x_badge $test_member { default ""; secret vip; }'
LOCATIONS = (
    gated("/full", room="full")
    + gated("/flooded", room="flooded")
    + gated("/aside", room="aside").replace("include", "set $waitroom_mode redirect; include")
)
#: Of which only the location says a class.
IN_LOCATION = """
    include waitroom/server.conf;
    location / {
        set $waitroom_room full;
        set $waitroom_class $test_member;
        include waitroom/location.conf;
        proxy_pass http://origin;
    }
"""
#: Of which the server and a location say one.
IN_BOTH = "set $waitroom_class guest;" + IN_LOCATION
BADGE = {"X-Badge": "secret"}
#: How a visitor may write it.
FORGED = ["X-Waitroom-Class", "x-waitroom-class", "X-Waitroom_Class"]
#: The question keeps nginx from answering by itself.
DOORS = [("GET", ""), ("GET", "status?a"), ("POST", "join"), ("POST", "leave")]


SITE = {
    "rooms": ROOMS,
    "locations": LOCATIONS,
    "http": HTTP,
    "server": "set $waitroom_class $test_member;",
    "servers": {"location.test": IN_LOCATION, "both.test": IN_BOTH},
    "relay": Relay,
}


@pytest.fixture
def heard(site):
    """Return a function that sends a request and returns the class that the sidecar got."""
    relay = site.relays[0]

    def heard(method: str, path: str, headers: dict[str, str]) -> str | None:
        relay.forget()
        Visitor(site.url).send(method, path, headers=headers)
        assert len(relay.requests) == 1
        return relay.requests[0].get("x-waitroom-class")

    return heard


@pytest.mark.parametrize("name", FORGED)
def test_a_visitors_own_class_reaches_nobody(heard, name):
    """Neither where nginx asks about a page, nor at a door, nor beside what nginx says."""
    for method, path in [("GET", "/full"), *((m, f"/_waitroom/full/{d}") for m, d in DOORS)]:
        assert heard(method, path, {name: "vip"}) is None
        assert heard(method, path, {name: "boss", **BADGE}) == "vip"


@pytest.mark.parametrize(("method", "door"), DOORS)
def test_what_the_server_sets_holds_at_the_doors(heard, method, door):
    """The waiting page joins there; in a location it would be said about pages alone."""
    assert heard(method, f"/_waitroom/full/{door}", BADGE) == "vip"
    in_location = {"Host": "location.test", **BADGE}
    assert heard("GET", "/page", in_location) == "vip"
    assert heard(method, f"/_waitroom/full/{door}", in_location) is None


def test_what_the_server_sets_wins(heard):
    """A location's own does not count, since nginx runs the server's again when it asks."""
    assert heard("GET", "/page", {"Host": "both.test", **BADGE}) == "guest"


def test_a_kept_verdict_is_not_another_classs(site):
    """While the shield is up nginx answers newcomers by itself, those of a class apart."""
    relay = site.relays[0]

    def is_kept() -> bool:
        Visitor(site.url).get("/flooded")
        relay.forget()
        return Visitor(site.url).get("/flooded").waits and not relay.checks()

    wait_until(is_kept, "the shield")
    Visitor(site.url).get("/flooded", headers=BADGE)
    assert [each["x-waitroom-class"] for each in relay.checks()] == ["vip"]


def test_a_kept_status_is_not_another_classs(site):
    """A visitor may come to be a member while they wait."""
    relay, visitor = site.relays[0], Visitor(site.url)
    visitor.get("/full")

    def is_kept() -> bool:
        visitor.get("/_waitroom/full/status")
        relay.forget()
        visitor.get("/_waitroom/full/status")
        return not relay.requests

    wait_until(is_kept, "the status to be kept")
    visitor.get("/_waitroom/full/status", headers=BADGE)
    assert [each["x-waitroom-class"] for each in relay.requests] == ["vip"]


@pytest.mark.parametrize("query", ["?{}", "?a=b&{}", "?{}&a=b"])
def test_a_grants_way(site, query):
    """A grant reaches the sidecar, the redirect to a waiting page, and that page."""
    grant = Grants("aside", [SECRET]).sign(Grant("vip", int(time.time()) + 60, "order-17"))
    asked = "/aside/x" + query.format(f"waitroom_grant={grant}")
    relay, visitor = site.relays[0], Visitor(site.url)
    relay.forget()
    reply = visitor.get(asked)
    assert [each["x-original-uri"] for each in relay.checks()] == [asked]
    assert (reply.status, reply.headers["Location"]) == (302, f"/_waitroom/aside/?next={asked}")
    relay.forget()
    page = visitor.get(reply.headers["Location"])
    assert relay.requests[0][""] == f"GET /_waitroom/aside/?next={asked} HTTP/1.1"
    in_place = asked.replace("/aside", "/full")
    for shown, following in ((page, asked), (visitor.get(in_place), in_place)):
        assert html.unescape(shown.data("next")) == following
