"""Replicas that are stopped, killed, hung or odd: what the visitor gets, and for how long."""

import time

import pytest

from tests.nginx.stub import make_reply
from tests.support.nginx_client import JSON, Visitor
from tests.support.processes import wait_until
from tests.support.site import BY_DEFAULT, Site, gated
from tests.support.tokens import signed_pass

ADMIT = gated("/admit", "set $waitroom_on_failure admit;", room="open")


@pytest.fixture(scope="module")
def whole():
    rooms = {
        "open": {"total_active_users": 1000, "on_store_failure": "wait"},
        "full": {"total_active_users": 0, "poll_limit": 1000},
    }
    locations = gated("/", room="open") + gated("/full", room="full") + ADMIT
    locations += gated("/away", "set $waitroom_mode redirect;", room="open")
    locations += "location /free { proxy_pass http://origin; }"
    with Site(rooms=rooms, replicas=2, locations=locations, settings=BY_DEFAULT) as site:
        yield site


def answers(edge: str) -> bool:
    try:
        return Visitor(edge).get("/_waitroom/full/status").status == 200
    except OSError:
        return False


@pytest.fixture
def site(whole):
    """Return the site with two replicas. Those that a test stops are started again after it."""
    yield whole
    for replica, edge in zip(whole.replicas, whole.edges, strict=True):
        if not replica.running:
            replica.start()
        wait_until(lambda edge=edge: answers(edge), "the replica's return")


OWN_403 = ("set $waitroom_on_failure admit;", "proxy_intercept_errors on;")
ODD_LOCATIONS = gated("/") + ADMIT + gated("/status/403", *OWN_403)


def test_without_a_sidecar_the_page_waits(site):
    """Without replicas everybody gets 503 and the page; paths without a room work."""
    inside = Visitor(site.url)
    assert inside.get("/").status == 200
    for replica in site.replicas:
        replica.stop()
    for visitor in (inside, Visitor(site.url)):
        reply = visitor.get("/page?a=1")
        assert (reply.status, reply.waits, reply.headers["Retry-After"]) == (503, True, "5")
        assert reply.data("next") == "/page?a=1"
    for asset in ("waiting.css", "waiting.js", "logo.svg", "i18n/de.json"):
        assert inside.get(f"/_waitroom/static/{asset}").status == 200
    document = inside.get("/api", headers={"Accept": JSON}).json()
    assert (document["status"], document["state"], document["position"]) == (503, "paused", None)
    assert inside.get("/free").status == 200


def test_without_a_sidecar_the_doors_still_answer(site):
    """The page's own address still shows the page; a program gets a problem document."""
    for replica in site.replicas:
        replica.stop()
    visitor = Visitor(site.url)
    sent = visitor.get("/away/x?a=1&b=2")
    assert sent.status == 302
    shown = visitor.get(sent.headers["Location"])
    assert (shown.status, shown.waits) == (503, True)
    assert shown.data("next") == "/away/x?a=1&amp;b=2"
    assert "url=/_waitroom/open/?next=/away/x?a=1&amp;b=2" in shown.text
    left = visitor.post("/_waitroom/full/leave", b"next=/x")
    assert (left.status, left.waits, left.data("next")) == (503, True, "/")
    asked = visitor.get("/_waitroom/full/status", headers={"Accept": JSON})
    assert (asked.status, asked.headers["Content-Type"]) == (503, "application/problem+json")


def test_without_a_sidecar_a_location_may_admit(site):
    """`set $waitroom_on_failure admit;` admits everybody until a replica is back."""
    for replica in site.replicas:
        replica.kill()
    reply = Visitor(site.url).post("/admit", b"12345")
    assert (reply.status, reply.json()["received"]) == (200, 5)
    assert Visitor(site.url).get("/").status == 503
    site.replicas[1].start()
    wait_until(lambda: Visitor(site.url).get("/").status == 200, "a visitor inside")


def test_one_replica_of_two_is_enough(site):
    """No visitor notices a replica that is stopped or killed, nor its return."""
    visitor = Visitor(site.url)
    for number, end in ((0, "stop"), (1, "kill")):
        for _ in range(20):
            assert visitor.get("/").status == 200
        getattr(site.replicas[number], end)()
        for _ in range(40):
            assert visitor.get("/").status == 200
            assert visitor.get("/full").data("state") == "waiting"
            assert visitor.get("/_waitroom/full/status").status == 200
            assert visitor.post("/_waitroom/full/join", headers={"Accept": JSON}).status == 200
        site.replicas[number].start()
        wait_until(lambda n=number: answers(site.edges[n]), "the replica's return")


def test_a_hung_replica_is_passed_over(site):
    """One that takes requests and never answers costs a second, not a failure."""
    with site.replicas[0].frozen():
        started = time.monotonic()
        assert [Visitor(site.url).get("/").status for _ in range(2)] == [200, 200]
        assert time.monotonic() - started < 4


def test_when_all_hang_the_page_comes(site):
    """In less time than a browser's patience."""
    with site.replicas[0].frozen(), site.replicas[1].frozen():
        started = time.monotonic()
        assert Visitor(site.url).get("/").waits
        assert time.monotonic() - started < 8


def test_those_inside_pass_while_the_store_hangs(site):
    """A replica gives up on a hung Redis in time, so a pass due for renewal admits."""
    due = Visitor(site.url, cookies={"waitroom_open": signed_pass("open", age_s=100)})
    with site.redis.frozen():
        assert due.get("/").status == 200
        assert Visitor(site.url).get("/").waits
    assert due.get("/").status == 200


@pytest.mark.parametrize(
    "reply",
    [
        make_reply(500, body=b"oops"), make_reply(502), make_reply(503), make_reply(504), b"",
        b"HTTP/1.1 204 OK\r\nX: " + b"x" * 100_000 + b"\r\n\r\n",
    ],
    ids=["500", "502", "503", "504", "closed", "headers too large"],
)  # fmt: skip
def test_a_replica_that_fails(odd, stub, reply):
    """Errors and nonsense count as no answer: the waiting page, or the switch."""
    stub.reply = reply
    assert Visitor(odd.url).get("/").waits
    assert Visitor(odd.url).get("/admit").status == 200
    own = Visitor(odd.url).get("/status/403")  # the site's own refusal stays
    assert (own.status, own.waits) == (403, False)


@pytest.mark.parametrize("status", [200, 204, 299])
def test_any_success_passes(odd, stub, status):
    """auth_request takes every 2xx for a yes."""
    stub.reply = make_reply(status)
    assert Visitor(odd.url).get("/").status == 200


@pytest.mark.parametrize("path", ["/", "/admit"])
def test_what_a_visitor_can_provoke_opens_nothing(odd, stub, path):
    """A 400 is the visitor's doing: it waits even where a failure admits."""
    stub.reply = make_reply(400)
    reply = Visitor(odd.url).get(path)
    assert (reply.status, reply.waits) == (503, True)
