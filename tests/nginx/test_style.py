"""A room's own style sheet: one question in ten seconds, and no page waits for it."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.nginx_client import Visitor
from tests.support.processes import wait_until
from tests.support.relay import Relay
from tests.support.site import gated

VISITORS = 20


ROOMS = {
    "own": {"total_active_users": 0, "accent": "#e11d48"},
    "plain": {"total_active_users": 0},
    "late": {"total_active_users": 0, "accent": "#e11d48"},
}
LOCATIONS = "".join(gated(f"/{room}/", room=room) for room in ROOMS)
SITE = {
    "rooms": ROOMS, "leases": {"seat": {"term": "5m"}}, "locations": LOCATIONS, "relay": Relay
}  # fmt: skip


def style_of(site, room):
    return Visitor(site.url).get(f"/_waitroom/{room}/style.css")


def asked(relay, room):
    return [each[""] for each in relay.requests if f"/{room}/style.css" in each[""]]


def test_the_page_in_place_names_the_rooms_own(site):
    """As nginx makes it, and as the sidecar does."""
    for path in ("/own/", "/_waitroom/own/"):
        assert '<link rel="stylesheet" href="/_waitroom/own/style.css">' in (
            Visitor(site.url).get(path).text
        )


@pytest.mark.parametrize(("room", "holds"), [("own", "#e11d48"), ("plain", ""), ("seat~17", "")])
def test_many_visitors_are_one_question(site, relay, room, holds):
    """Also where the room has nothing of its own, and of a resource that is leased."""
    replies = [style_of(site, room) for _ in range(VISITORS)]
    for reply in replies:
        assert (reply.status, reply.headers["Content-Type"]) == (200, "text/css; charset=utf-8")
        assert reply.all("Cache-Control") == ["max-age=10"]
        assert reply.headers["X-Content-Type-Options"] == "nosniff"
        assert holds in reply.text
    assert len(asked(relay, room)) == 1


def test_a_replica_that_hangs_is_not_waited_for(site, relay):
    """Visitors get an empty sheet, few ask the replica, and the style returns with it."""
    with site.replicas[0].frozen():
        with ThreadPoolExecutor(VISITORS) as pool:
            together = list(pool.map(lambda _: style_of(site, "late"), range(VISITORS)))
        relay.forget()
        replies = [*together, *(style_of(site, "late") for _ in range(VISITORS))]
        assert len(asked(relay, "late")) < VISITORS
    for reply in replies:
        assert (reply.status, reply.body) == (200, b"")
        assert reply.headers["Content-Type"].startswith("text/css")
        assert reply.all("Cache-Control") == ["no-store"]
    wait_until(lambda: "#e11d48" in style_of(site, "late").text, "the style")


def test_a_change_is_seen_by_all(site):
    """Within the ten seconds that nginx keeps the old one."""
    site.admin("PATCH", "/rooms/plain", {"accent": "#123456"})
    wait_until(lambda: "#123456" in style_of(site, "plain").text, "the new colour", timeout_s=15)
    site.admin("PATCH", "/rooms/plain", {"accent": None})
