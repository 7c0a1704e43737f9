"""Leases through nginx: who holds a seat passes, others wait for that seat, and none is kept."""

import json

import pytest

from tests.nginx.stub import make_reply
from tests.support.nginx_client import JSON, Visitor, room_cookies
from tests.support.processes import wait_until
from tests.support.site import ADMIN_TOKEN, BY_DEFAULT, gated

LEASES = {
    "seat": {"term": 600, "message": "Seat {resource} is being looked at."},
    "brief": {"term": 1, "heartbeat_interval": 0.2},
    "lone": {"term": 600, "max_waiting": 0},
    "pair": {"term": 600, "capacity": 2},
    "few": {"term": 600, "resources": "[1-9][0-9]?"},
}
IMAGE = {"Accept": "image/*", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}


def named(template, *lines, at="", what=r"\d+"):
    """Build a location for a template's resources, whose names are a part of the path."""
    at = at or f"/{template}"
    return gated(f'~ "^{at}/(?<which>{what})"', *lines, room=f"{template}~$which")


LOCATIONS = (
    named("seat", "include waitroom/release.conf;", at="/booked")
    + named("seat", "set $waitroom_mode redirect;", at="/elsewhere")
    + named("few", "set $waitroom_mode redirect;", at="/moved", what=".*")
    + named("few")
    + named("seat", "proxy_set_header X-Fence $waitroom_fence;")
    + named("brief")
    + named("lone")
    + named("pair")
    + named("nosuch")
    + named("seat", at="/odd", what=".*")
    + gated("/shop")
    + gated("= /book", "try_files /nothing /seat/4711;", room="shop", to="")
    + "location /free { proxy_pass http://origin; }"
)


SITE = {
    "rooms": {"shop": {"total_active_users": 10}},
    "leases": LEASES,
    "locations": LOCATIONS,
    "replicas": 2,
    "settings": {"event_streams": 10, **BY_DEFAULT},
}


@pytest.fixture
def visit(site):
    def make(**headers) -> Visitor:
        return Visitor(site.url, headers)

    return make


def listed(site, template):
    """Return the numbers of holders and of waiting visitors of each resource in use."""
    operator = Visitor(site.ops[0], {"Authorization": f"Bearer {ADMIN_TOKEN}"})
    rows = operator.get(f"/v1/leases/{template}").json()["resources"]
    return {row["name"]: (len(row["holders"]), row["waiting"]) for row in rows}


def test_a_seat_has_one_holder(site, visit):
    """The first visitor has the seat on every replica; the second waits for this seat only."""
    first, second = visit(), visit()
    for _ in range(4):
        assert first.get("/seat/1/plan").status == 200
        assert first.get("/seat/1/plan.png", headers=IMAGE).status == 200
        reply = second.get("/seat/1/plan")
        assert (reply.status, reply.waits, reply.data("room")) == (503, True, "seat~1")
    assert second.get("/seat/2/plan").status == 200
    assert (listed(site, "seat")["1"], listed(site, "seat")["2"]) == ((1, 1), (1, 0))


def test_all_seats_have_one_cookie(visit):
    """A plan with a hundred seats makes no hundred cookies."""
    visitor = visit()
    replies = [visitor.get(f"/seat/{number}/") for number in range(10, 20)]
    assert [reply.status for reply in replies] == [200] * 10
    given = [len(room_cookies(reply, "seat")) for reply in replies]
    assert given == [1] + [0] * 9
    assert set(visitor.cookies) == {"waitroom_seat", "site"}
    assert visitor.get("/shop").status == 200  # a room beside them
    assert set(visitor.cookies) == {"waitroom_shop", "waitroom_seat", "site"}


def test_a_lease_ends_for_nginx_too(site, visit):
    """It asks about each request: there is no moment in which two hold the seat."""
    first, second = visit(), visit()
    assert first.get("/brief/1").status == 200
    assert second.get("/brief/1").waits
    while True:
        was_in = first.get("/brief/1").status == 200
        if second.get("/brief/1").status == 200:
            break
        assert was_in or first.get("/brief/1").waits
    assert first.get("/brief/1").waits  # for a term of somebody else's, a second long
    kept = [file for file in (site.folder / "verdicts").rglob("*") if file.is_file()]
    assert kept == []


def test_a_poll_is_never_answered_from_what_nginx_kept(visit):
    """The documents have different times, although some are of the same millisecond."""
    holder, waiting = visit(), visit(Accept=JSON)
    assert holder.get("/seat/3").status == 200
    assert waiting.get("/seat/3").status == 503
    told = [waiting.get("/_waitroom/seat~3/status").json() for _ in range(20)]
    assert {each["state"] for each in told} == {"waiting"}
    assert len({each["updated_at"] for each in told}) >= 5


def test_the_doors_of_a_seat(site, visit):
    """Status, join and leave as of a room; who leaves gives up the seat, and the next has it."""
    first, second = visit(Accept=JSON), visit(Accept=JSON)
    first.get("/seat/4")
    held = first.get("/_waitroom/seat~4/status").json()
    assert (held["state"], held["room"]) == ("admitted", "seat~4")
    assert held["expires_at"] > held["updated_at"]
    problem = second.get("/seat/4").json()
    assert problem["state"] == "waiting"
    assert problem["join_url"] == "/_waitroom/seat~4/join"
    line = second.post(problem["join_url"]).json()
    assert (line["state"], line["position"], line["waiting"]) == ("waiting", 1, 1)
    assert line["message"] == "Seat 4 is being looked at."
    assert 540 < line["wait_seconds"] <= 600
    assert first.post("/_waitroom/seat~4/leave").json()["state"] == "not_queued"
    assert second.get(problem["status_url"]).json()["state"] == "admitted"
    assert second.get("/seat/4").status == 200
    assert listed(site, "seat")["4"] == (1, 0)


def test_the_site_ends_a_lease(visit):
    """release.conf ends the lease, and the page itself is served as usual."""
    first, second = visit(), visit()
    assert first.get("/seat/5").status == 200
    assert second.get("/seat/5").waits
    assert first.get("/booked/5").status == 200
    wait_until(lambda: second.get("/seat/5").status == 200, "the seat")
    assert first.get("/seat/5").waits


def test_the_site_knows_the_holder_by_a_growing_number(visit):
    """The site gets the holder's fencing number with each request."""
    fences = []
    for _ in range(2):
        visitor = visit()
        seen = [visitor.get("/seat/6").json()["headers"]["X-Fence"] for _ in range(2)]
        assert seen[0] == seen[1]
        fences.append(int(seen[0]))
        visitor.post("/_waitroom/seat~6/leave")
    assert fences[0] < fences[1]


def test_what_takes_no_place_takes_no_seat(site, visit):
    """Pictures and pages that are fetched ahead, of a stranger and of somebody with a cookie."""
    stranger, known = visit(), visit()
    assert known.get("/seat/70").status == 200
    for visitor in (stranger, known):
        for headers in (IMAGE, {"Sec-Purpose": "prefetch"}):
            reply = visitor.get("/seat/71", headers=headers)
            assert (reply.status, reply.data("state")) == (503, "not_queued")
            assert room_cookies(reply, "seat") == []
    assert "71" not in listed(site, "seat")


def test_without_a_cookie_nothing_is_taken_at_the_doors(site, visit):
    """There anybody can make names up. They are given the cookie, and take a seat with it."""
    visitor = visit(Accept=JSON)
    reply = visitor.post("/_waitroom/seat~made.up/join")
    assert (reply.status, reply.json()["state"]) == (200, "not_queued")
    assert len(room_cookies(reply, "seat")) == 1
    assert "made.up" not in listed(site, "seat")
    assert visitor.post("/_waitroom/seat~made.up/join").json()["state"] == "admitted"
    assert visitor.post("/_waitroom/seat~made.up/leave").status == 200
    assert "made.up" not in listed(site, "seat")


def test_what_is_no_lease_is_named(visit):
    """503 with a sentence, for the operator: no template of that name."""
    reply = visit().get("/nosuch/1")
    assert (reply.status, reply.waits) == (503, False)
    assert reply.headers["Content-Type"].startswith("text/plain")
    assert reply.all("Set-Cookie") == []


@pytest.mark.parametrize(
    "path",
    ["/few/99999/", "/odd/", "/odd/-1", "/odd/a~b", "/odd/a%20b", "/odd/%3Cb%3E", "/moved/0x",
     "/odd/" + "1" * 200],
)  # fmt: skip
def test_a_resource_that_there_is_not_is_a_page_that_is_not_found(site, visit, path):
    """404 as a page or a problem, without a cookie, a lease or a line in the log."""
    reply = visit().get(path)
    assert (reply.status, reply.waits) == (404, False)
    assert reply.headers["Content-Type"] == "text/html; charset=utf-8"
    assert "<h1>Page not found</h1>" in reply.text
    assert "try again" not in reply.text
    assert "itroom" not in reply.text
    assert "Retry-After" not in reply.headers
    assert reply.headers["Cache-Control"] == "no-store"
    assert reply.all("Set-Cookie") == []
    problem = visit(Accept=JSON).get(path)
    assert (problem.status, json.loads(problem.text)["status"]) == (404, 404)
    assert problem.headers["Content-Type"] == "application/problem+json"
    assert listed(site, "few") == {}
    assert "99999" not in site.replicas[0].output + site.replicas[1].output


@pytest.mark.parametrize("path", ["claim", "draw", "draw/places"])
def test_a_seat_has_not_all_doors_of_a_room(visit, path):
    """404: links to places, and draws, are for rooms."""
    assert visit(Accept=JSON).get(f"/_waitroom/seat~1/{path}").status == 404


def test_metrics_name_the_template(site, visit):
    """And never a resource."""
    visit().get("/seat/31415")
    for ops in site.ops:
        text = Visitor(ops).get("/metrics").text
        assert 'waitroom_requests_total{door="check",room="seat"' in text
        assert "~" not in text
        assert "31415" not in text


def test_no_two_hold_a_seat_while_the_store_is_away(visit, site):
    """Nobody is let in, nothing is an error, and the holder is back with the store."""

    def asked(visitor, url=site.url):
        return Visitor(url, cookies=visitor.cookies).get("/_waitroom/seat~200/status")

    holder, waiting = visit(), visit()
    assert holder.get("/seat/200").status == 200
    assert waiting.get("/seat/200").waits
    with site.redis.frozen():
        newcomer = visit()
        for visitor, state in ((holder, "waiting"), (waiting, "waiting"), (newcomer, "not_queued")):
            reply = visitor.get("/seat/200")
            assert (reply.status, reply.data("state")) == (503, state)
        assert newcomer.post("/_waitroom/seat~200/leave").status == 503
        assert newcomer.post("/_waitroom/seat~200/join").status == 200  # the page, for a browser
        assert (asked(waiting).status, asked(waiting).headers["Retry-After"]) == (503, "5")
    for edge in site.edges:
        wait_until(lambda edge=edge: asked(waiting, edge).status == 200, "the replica's return")
    assert holder.get("/seat/200").status == 200
    assert asked(waiting).json()["ahead"] == 0
    # Whoever came meanwhile has the cookie to join with.
    assert newcomer.post("/_waitroom/seat~200/join", headers={"Accept": JSON}).json()["ahead"] == 1


def test_a_location_may_lead_on_to_a_seat(visit):
    """From a room: the seat's own cookie is looked at, and its holder is not shut out."""
    visitor = visit()
    assert [visitor.get("/book").status for _ in range(4)] == [200] * 4


# What a visitor may write into a name, where a location's expression lets them.


#: Some locations believe all that is in the address.
ODD_LOCATIONS = (
    named("seat", "include waitroom/release.conf;", what="[^/]*")
    + named("seat", "set $waitroom_mode redirect;", what="[^/]*", at="/elsewhere")
    + gated("/two", room="shop2")
)


def test_a_room_gets_its_own_cookie_only(odd, stub):
    """Not that of a room whose name its own begins with, nor the other way round."""
    stub.reply = make_reply(401, "X-Waitroom-State: waiting")
    for sent, kept in (("shop", False), ("shop2", True), ("shop22", False), ("s", False)):
        Visitor(odd.url, cookies={f"waitroom_{sent}": "TICKET"}).get("/two")
        assert ("TICKET" in stub.asked[-1]) is kept, sent


#: More than a name; the second one's line end is at the end, where $ of an expression is blind.
MADE_UP = [
    "1%0d%0aX-Waitroom-Exempt:%20yes",
    "1%0a",
    "1%22%3E%3Cscript%3Ealert(1)%3C/script%3E",
    "1;waitroom_seat=x",
    "a%20b",
    "%F0%9F%92%BA",
    "a" * 500,
]


@pytest.mark.parametrize("made_up", MADE_UP)
@pytest.mark.parametrize("path", ["/seat/", "/elsewhere/"])
def test_what_is_no_name_goes_nowhere(odd, stub, path, made_up):
    """Neither the sidecar, the page nor the redirect gets more than the template's name."""
    stub.reply, stub.asked[:] = make_reply(401, "X-Waitroom-State: waiting"), []
    reply = Visitor(odd.url).get(path + made_up)
    asked = stub.asked[0].lower()
    assert "x-waitroom-room: seat~\r\n" in asked
    assert "\r\nx-waitroom-exempt" not in asked
    assert b"<script>alert" not in reply.body
    if path == "/seat/":
        assert reply.data("room") == "seat~"
    else:
        assert reply.headers["Location"].startswith("/_waitroom/seat~/?next=/elsewhere/")
    assert reply.headers["X-Waitroom-Exempt"] is None


@pytest.mark.parametrize("made_up", MADE_UP)
def test_what_is_no_name_is_not_released(odd, stub, made_up):
    """Nor does it make a request of its own."""
    stub.reply, stub.asked[:] = make_reply(204, "X-Waitroom-State: admitted"), []
    Visitor(odd.url).get(f"/seat/{made_up}")
    wait_until(lambda: len(stub.asked) == 2, "the release")
    assert stub.asked[1].startswith("POST /_waitroom/seat~/leave HTTP/1.1\r\n")
    assert "x-waitroom-exempt" not in stub.asked[1].lower()


@pytest.mark.parametrize("name", ["a", "A-1", "row.7:12", "user@example+1", "a" * 128])
def test_names_that_may_be(odd, stub, name):
    """Go on as they are, with the template's cookie and no other."""
    stub.reply, stub.asked[:] = make_reply(401, "X-Waitroom-State: waiting"), []
    visitor = Visitor(odd.url, cookies={"waitroom_seat": "t~1", "waitroom_seat~a": "no", "b": "c"})
    reply = visitor.get(f"/seat/{name}")
    assert f"X-Waitroom-Room: seat~{name}\r\n" in stub.asked[0]
    assert "Cookie: waitroom_seat=t~1\r\n" in stub.asked[0]
    assert reply.data("room") == f"seat~{name}"
    visitor.get(f"/_waitroom/seat~{name}/status")
    assert stub.asked[1].startswith(f"GET /_waitroom/seat~{name}/status ")
    assert "Cookie: waitroom_seat=t~1\r\n" in stub.asked[1]
