"""Programs that were made for Cloudflare's waiting room, with nginx."""

import pytest

from tests.support.nginx_client import JSON, Visitor
from tests.support.processes import wait_until
from tests.support.site import gated

CODES = (200, 202, 429, 503)


SHOP = {"total_active_users": 0, "json_format": "cloudflare"}
ROOMS = {
    **{f"s{code}": {**SHOP, "queueing_status_code": code} for code in CODES},
    "packed": {**SHOP, "max_waiting": 1},
    "turns": {**SHOP, "total_active_users": 1},
}
SITE = {"rooms": ROOMS, "locations": "".join(gated(f"/{room}/", room=room) for room in ROOMS)}


def program(site):
    return Visitor(site.url, {"Accept": JSON})


@pytest.mark.parametrize("code", CODES)
def test_a_program_gets_the_document_with_the_rooms_status(site, code):
    """At the address that it asked for, and never from a cache."""
    reply = program(site).get(f"/s{code}/api?x=1")
    assert (reply.status, reply.headers["Content-Type"]) == (code, JSON)
    assert reply.all("Cache-Control") == ["no-store"]
    document = reply.json()["cfWaitingRoom"]
    assert document["inWaitingRoom"]
    assert str(document["refreshIntervalSeconds"]) == reply.headers["Retry-After"]
    assert not document["queueIsFull"]
    assert Visitor(site.url).get(f"/s{code}/").waits


def test_the_same_request_keeps_the_place_and_lets_in(site):
    """As such a program does: the same request again, with its cookies, until the site answers."""
    holder, first, later = Visitor(site.url), program(site), program(site)
    assert holder.get("/turns/").status == 200
    for each in (first, later, first, later):
        assert each.get("/turns/api").json()["cfWaitingRoom"]["inWaitingRoom"]
    assert site.room("turns")["waiting"] == 2
    site.admin("PATCH", "/rooms/turns", {"total_active_users": 2})
    wait_until(lambda: "path" in first.get("/turns/api").json(), "the site's own answer")
    assert later.get("/turns/api").json()["cfWaitingRoom"]["inWaitingRoom"]


def test_a_full_queue(site):
    """Also where nginx keeps what a browser got."""
    Visitor(site.url).get("/packed/")
    assert Visitor(site.url).get("/packed/").waits
    for _ in range(2):
        document = program(site).get("/packed/").json()["cfWaitingRoom"]
        assert (document["queueIsFull"], document["waitTimeKnown"]) == (True, False)


def test_while_no_replica_answers_it_is_a_problem(site):
    """Its numbers are not known then. The last test: it stops the replica."""
    site.replicas[0].stop()
    reply = program(site).get("/s200/")
    assert (reply.status, reply.headers["Content-Type"]) == (503, "application/problem+json")
