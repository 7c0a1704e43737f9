"""Verdicts that nginx keeps for a moment: whose, which, and for how long."""

import time

import pytest
import redis

from sidecar.rooms.redis_keys import room_key
from sidecar.visitors.model import HEARTBEAT_MIN_MS
from sidecar.visitors.verdict_lifetime import VERDICT_TTL_MS
from tests.nginx.stub import make_reply
from tests.support.nginx_client import HTML, JSON, Visitor, room_cookies
from tests.support.processes import wait_until
from tests.support.relay import Relay
from tests.support.site import Site, gated
from tests.support.tokens import signed_pass, signed_ticket

ROOMS = {
    "open": {"total_active_users": 1000},
    "other": {"total_active_users": 1000},
    "full": {"total_active_users": 0, "poll_limit": 1000},
    "one": {"total_active_users": 1},
    "suspended": {"total_active_users": 0, "suspended": True},
}
#: Of a page that is open still; it takes no place of its own.
ASSET = {"Accept": "*/*", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}
LOCATIONS = ODD_LOCATIONS = "".join(gated(f"/{room}", room=room) for room in ROOMS)


@pytest.fixture(scope="module")
def site(stamps):
    with Site(rooms=ROOMS, locations=LOCATIONS, relay=Relay, stamps=stamps) as site:
        # As old as the oldest pass here: a store that is younger was emptied, and asks for passes.
        with redis.Redis(unix_socket_path=str(site.redis_socket)) as store:
            for room in ROOMS:
                store.hincrby(room_key(room, "stats"), "born", -600_000)
        yield site


def test_a_page_with_its_assets_is_one_question(site, relay):
    """A visitor inside who loads forty files in a moment is asked about once or twice."""
    visitor = Visitor(site.url)
    visitor.get("/open")
    relay.forget()
    began = time.monotonic()
    for number in range(40):
        assert visitor.get(f"/open/{number}.png").status == 200
    kept_s = VERDICT_TTL_MS / 1000 - 1  # at least: nginx counts whole seconds
    assert len(relay.checks()) <= 1 + (time.monotonic() - began) / kept_s


def test_a_kept_verdict_is_forgotten_in_time(site, relay):
    """Never kept longer than the engine reckons with when it frees a slot."""
    visitor = Visitor(site.url)
    visitor.get("/open")
    for _ in range(2):
        visitor.get("/open")
        asked = len(relay.checks())
        time.sleep(VERDICT_TTL_MS / 1000)
        visitor.get("/open")
        assert len(relay.checks()) > asked


def test_kept_verdicts_are_each_visitors_own(site):
    """One visitor's pass opens nothing for another cookie, or for none."""
    inside = Visitor(site.url)
    for _ in range(3):
        assert inside.get("/open").status == 200
    site.admin("PATCH", "/rooms/open", {"total_active_users": 1, "queue_all": True})
    try:
        good = inside.cookies["waitroom_open"]
        assert inside.get("/open").status == 200
        for cookie in (
            None,
            f"waitroom_open={good}x",
            f"waitroom_open={good[:-1]}",
            f"waitroom_open={good}~",
            f"waitroom_open={good[:-1]}{chr(ord(good[-1]) + 1)}",
            "waitroom_open=",
        ):
            reply = Visitor(site.url).get("/open", headers={"Cookie": cookie})
            assert (reply.status, reply.waits) == (503, True)
        elsewhere = inside.get("/full", headers={"Cookie": f"waitroom_full={good}"})
        assert elsewhere.waits
    finally:
        site.admin("PATCH", "/rooms/open", {"total_active_users": 1000, "queue_all": False})


@pytest.mark.parametrize("path", ["/open", "/full", "/suspended"])
def test_newcomers_are_never_answered_from_memory(site, relay, path):
    """Each is asked about, each gets a cookie of their own."""
    cookies = set()
    for _ in range(10):
        visitor = Visitor(site.url)
        visitor.get(path)
        cookies.update(visitor.cookies.values())
    assert len(relay.checks()) == 10
    assert len(cookies - {"1"}) == (0 if path == "/suspended" else 10)


def test_a_waiting_visitors_reload_reaches_the_sidecar(site, relay):
    """It is a heartbeat, and may be the claim."""
    visitor = Visitor(site.url)
    for _ in range(5):
        assert visitor.get("/full").waits
    assert len(relay.checks()) == 5


def test_a_poll_repeated_at_once_is_answered_by_nginx(site, relay):
    """Repeated polls get the same numbers, and a replica at most two requests."""
    visitor = Visitor(site.url)
    visitor.get("/full")
    relay.forget()
    began = time.monotonic()
    documents = [visitor.get("/_waitroom/full/status").json() for _ in range(30)]
    assert len(relay.requests) <= 2 + 2 * (time.monotonic() - began)
    assert {document["state"] for document in documents} == {"waiting"}
    assert len({document["joined_at"] for document in documents}) == 1


def test_a_poll_that_nobody_repeats_is_not_stored(site):
    """nginx writes no file for it."""
    verdicts = site.folder / "verdicts"

    def of_polls():
        files = [path.read_bytes() for path in verdicts.rglob("*") if path.is_file()]
        return sum(b"KEY: full;" in text and b"/status;" in text for text in files)

    before = of_polls()
    for _ in range(5):
        visitor = Visitor(site.url)
        visitor.get("/full")
        assert visitor.get("/_waitroom/full/status").json()["state"] == "waiting"
    assert of_polls() <= before
    visitor.get("/_waitroom/full/status")
    assert of_polls() == before + 1


def test_a_poll_at_the_shortest_interval_is_a_heartbeat(site, relay):
    visitor = Visitor(site.url)
    visitor.get("/full")
    for _ in range(2):
        visitor.get("/_waitroom/full/status")
        relay.forget()
        time.sleep(HEARTBEAT_MIN_MS / 1000)
        visitor.get("/_waitroom/full/status")
        assert len(relay.requests) == 1


def test_each_waiting_visitor_sees_their_own_numbers(site):
    visitors = [Visitor(site.url) for _ in range(5)]
    for visitor in visitors:
        visitor.get("/full")
    seen = [v.get("/_waitroom/full/status").json() for v in visitors for _ in range(2)]
    assert len({document["position"] for document in seen}) == 5
    assert [one["position"] for one in seen[::2]] == [one["position"] for one in seen[1::2]]


def test_what_is_said_of_nobody_is_said_to_nobody_else(site, relay):
    """Visitors without a place share a response, in their own room and with nobody else."""
    nobody, other = Visitor(site.url), Visitor(site.url)
    relay.forget()
    for _ in range(3):
        for visitor in (nobody, other):
            document = visitor.get("/_waitroom/full/status").json()
            assert (document["state"], document["room"]) == ("not_queued", "full")
    assert len(relay.requests) <= 2
    assert other.get("/_waitroom/one/status").json()["room"] == "one"
    assert other.post("/_waitroom/full/join").status == 200
    assert other.get("/_waitroom/full/status").json()["state"] == "waiting"
    assert nobody.get("/_waitroom/full/status").json()["state"] == "not_queued"


def test_joins_leaves_and_requests_with_a_query_are_never_answered_from_memory(site, relay):
    """A response to a query may be about the client's address."""
    visitor = Visitor(site.url, {"Accept": JSON})
    for _ in range(3):
        assert visitor.post("/_waitroom/full/join").json()["state"] == "waiting"
        assert visitor.post("/_waitroom/full/leave").json()["state"] == "not_queued"
    relay.forget()
    for _ in range(3):
        visitor.get("/_waitroom/full/status?client=1")
    assert len(relay.requests) == 3


def test_a_renewal_is_not_kept(site, relay):
    """A pass that is due gets a new cookie, and is asked about again until it is used."""
    visitor = Visitor(site.url, cookies={"waitroom_other": signed_pass("other", age_s=100)})
    old = visitor.cookies["waitroom_other"]
    for _ in range(2):
        reply = visitor.get("/other", headers={"Cookie": f"waitroom_other={old}"})
        assert (reply.status, len(room_cookies(reply, "other"))) == (200, 1)
    assert len(relay.checks()) == 2


def test_a_verdict_is_not_kept_past_the_next_renewal(site, relay):
    """A pass due in two seconds (at a sixth of its five minutes) is asked about each time."""
    for _ in range(10):
        asked, began = len(relay.checks()), time.monotonic()
        visitor = Visitor(site.url, cookies={"waitroom_other": signed_pass("other", age_s=48)})
        for _ in range(3):
            assert visitor.get("/other").status == 200
        if time.monotonic() - began < 1:  # else it may have been renewed
            break
    assert len(relay.checks()) - asked == 3


def test_a_release_holds_against_kept_verdicts(site):
    """Whoever was inside is out before the next comes in, though nginx kept the verdict."""
    first, second = Visitor(site.url), Visitor(site.url)
    first.get("/one")
    assert second.get("/one").waits
    assert first.post("/_waitroom/one/leave", headers={"Accept": JSON}).status == 200
    for _ in range(100):
        first.get("/one", headers=ASSET)
        if second.get("/one").status == 200:
            break
        time.sleep(0.1)
    assert second.get("/one").status == 200
    assert first.get("/one", headers=ASSET).waits


def test_a_flood_stops_at_nginx(odd, stub):
    """While the shield is up, all newcomers get the page by one or two checks a second."""
    stub.reply = make_reply(401, "X-Waitroom-State: not_queued", "X-Accel-Expires: 1")
    stub.asked.clear()
    began = time.monotonic()
    for _ in range(200):
        assert Visitor(odd.url).get("/full").waits
    assert len(stub.asked) <= 2 + (time.monotonic() - began)


def test_the_flood_does_not_touch_others(odd, stub):
    """Whoever has a cookie, and preflights, are asked about; the other room as well."""
    stub.reply = make_reply(401, "X-Waitroom-State: not_queued", "X-Accel-Expires: 1")
    Visitor(odd.url).get("/full")
    stub.reply = make_reply(204, "X-Waitroom-State: admitted")
    with_cookie = Visitor(odd.url, cookies={"waitroom_full": signed_ticket("full")})
    assert with_cookie.get("/full").status == 200
    assert Visitor(odd.url).get("/other").status == 200
    asked = {"Access-Control-Request-Method": "PUT", "Origin": "https://app.example"}
    preflight = Visitor(odd.url, asked)
    assert preflight.send("OPTIONS", "/full").status == 200


def test_a_replaced_verdict_is_seen_though_its_file_is_open(odd, stub):
    """A new verdict counts at once, although nginx holds the old file open."""
    visitor = Visitor(odd.url, {"Accept": HTML, "Cookie": "waitroom_open=b"})
    for status, waits in [(204, False), (401, True)] * 3:
        stub.reply = make_reply(status, "X-Waitroom-State: waiting", "X-Accel-Expires: 1")
        wait_until(lambda waits=waits: visitor.get("/open").waits is waits, "the new verdict")
        asked, began = len(stub.asked), time.monotonic()
        assert [visitor.get("/open").waits for _ in range(20)] == [waits] * 20
        assert len(stub.asked) - asked <= 1 + (time.monotonic() - began)


@pytest.mark.parametrize(
    "headers",
    [
        ("X-Accel-Expires: 60", "Set-Cookie: waitroom_open=x; Path=/"),
        (),
        ("Cache-Control: max-age=60",),
        ("Expires: Thu, 01 Jan 2099 00:00:00 GMT",),
        ("X-Accel-Expires: 0",),
    ],
    ids=["with a cookie", "nothing said", "Cache-Control", "Expires", "not to be kept"],
)
@pytest.mark.parametrize("status", [204, 401, 403])
def test_what_is_never_kept(odd, stub, status, headers):
    """A verdict with a cookie, and any that does not ask for it by X-Accel-Expires."""
    stub.reply = make_reply(status, "X-Waitroom-State: waiting", *headers)
    stub.asked.clear()
    visitor = Visitor(odd.url, {"Accept": HTML})
    for _ in range(3):
        visitor.get("/open", headers={"Cookie": "waitroom_open=a"})
    assert len(stub.asked) == 3
