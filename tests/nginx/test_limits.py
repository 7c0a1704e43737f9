"""Rate limits through nginx: so many calls and no more, now or at their moment."""

import itertools
import re
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from sidecar.gate.page.languages import Languages
from sidecar.kit.share import find_share
from tests.nginx.stub import Stub, make_reply
from tests.support.nginx_client import HTML, JSON, Visitor
from tests.support.processes import wait_until
from tests.support.site import ADMIN_TOKEN, BY_DEFAULT, Site, gated

#: Nothing of these is free again while the tests run.
HOUR = {"algorithm": "sliding_window", "window": 3600}
LIMITS = {
    "api": {**HOUR, "limit": 3},
    "many": {**HOUR, "limit": 1000},
    "fifty": {**HOUR, "limit": 50},
    "free": {**HOUR},
    "none": {**HOUR, "limit": 0},
    "even": {"algorithm": "leaky_bucket", "limit": 10, "window": 1, "on_exceed": "pace"},
    "slow": {"algorithm": "leaky_bucket", "limit": 1, "window": 20, "on_exceed": "pace"},
    "late": {"algorithm": "leaky_bucket", "limit": 1, "window": 40, "on_exceed": "pace"},
    "strict": {**HOUR, "limit": 1000, "on_store_failure": "refuse"},
}


def limited(location, rule, *lines, to="http://origin"):
    """Build a location with a rate limit, whose key is the header X-Key."""
    lines = ("set $waitroom_limit_key $http_x_key;", "include waitroom/limit.conf;", *lines)
    lines = (f"set $waitroom_limit {rule};", *lines, f"proxy_pass {to};" if to else "")
    return "\n".join((f"location {location} {{", *lines, "}", ""))


LOCATIONS = (
    "".join(limited(f"/{rule}", rule) for rule in LIMITS)
    + limited("/nosuch", "nosuch")
    + limited("/unset", '""')
    + limited("/own", "api", "add_header X-Own yes always;", "include waitroom/headers.conf;")
    + limited("/status/403", "many", "proxy_intercept_errors on;")
    + limited("= /index/", "api", "root @folder@;", "index page.html;", to="")
    + limited("= /index/page.html", "api", "root @folder@;", to="")
    + limited("/refuses", "many", "set $waitroom_limit_on_failure refuse;")
    + limited("/large", "api", "client_max_body_size 0;")
    + "location /address { set $waitroom_limit api; include waitroom/limit.conf;\n"
    "    proxy_pass http://origin; }\n" + gated("/shop")
)
# A room and a limit before the same pages: the limit in a server behind the room.
BEHIND = (
    "listen unix:@folder@/behind.sock; set_real_ip_from unix:; real_ip_header X-Real-IP;\n"
    "include waitroom/server.conf;\n" + limited("/", "api")
)
FRONT = "include waitroom/server.conf;\nproxy_set_header X-Real-IP $remote_addr;\n" + gated(
    "/", to="http://behind"
)


@pytest.fixture(scope="module")
def site():
    http = "upstream behind { server unix:@folder@/behind.sock; }"
    servers = {"behind": BEHIND, "front": FRONT}
    rooms = {"shop": {"total_active_users": 1}}
    with Site(
        rooms=rooms,
        limits=LIMITS,
        locations=LOCATIONS,
        servers=servers,
        http=http,
        replicas=2,
        settings=BY_DEFAULT,
    ) as site:
        (site.folder / "index").mkdir()
        (site.folder / "index" / "page.html").write_text("an index")
        yield site


_keys = itertools.count()


@pytest.fixture
def caller(site):
    """Return a function that creates a visitor whose key no other test has."""

    def make(**headers) -> Visitor:
        return Visitor(site.url, {"X-Key": f"key-{next(_keys)}", **headers})

    return make


def looked(site, rule, key):
    """Return what a call would get now, without taking it."""
    operator = Visitor(site.ops[0], {"Authorization": f"Bearer {ADMIN_TOKEN}"})
    return operator.get(f"/v1/limits/{rule}?key={key}").json()


def test_racers_at_two_replicas(caller):
    """120 calls at once, 50 are granted."""
    visitor = caller()
    with ThreadPoolExecutor(20) as pool:
        statuses = list(pool.map(lambda _: visitor.get("/fifty").status, range(120)))
    assert sorted(statuses) == [200] * 50 + [429] * 70


def test_so_many_calls_and_no_more(caller):
    """Beyond the limit a call gets 429 with Retry-After. Each response has the remaining calls
    once, unless nothing is limited. Another key has a limit of its own."""
    visitor = caller()
    said = [visitor.get("/api") for _ in range(5)]
    assert [reply.status for reply in said] == [200, 200, 200, 429, 429]
    assert 3500 < int(said[-1].headers["Retry-After"]) <= 3600
    assert said[-1].headers["Cache-Control"] == "no-store"
    assert [reply.all("RateLimit-Policy") for reply in said] == [['"api";q=3;w=3600']] * 5
    left = [re.fullmatch(r'"api";r=(\d);t=3\d{3}', reply.headers["RateLimit"])[1] for reply in said]
    assert left == ["2", "1", "0", "0", "0"]
    assert all(len(reply.all("RateLimit")) == 1 for reply in said)
    assert caller().get("/api").status == 200
    reply = visitor.get("/free")
    assert (reply.status, reply.all("RateLimit"), reply.all("Retry-After")) == (200, [], [])


def test_a_location_with_headers_of_its_own(caller):
    """A location with headers of its own sends ours as well, by headers.conf."""
    reply = caller().get("/own")
    assert (reply.headers["X-Own"], len(reply.all("RateLimit"))) == ("yes", 1)


def test_the_refused_browser_gets_a_page(caller):
    """The page needs no script and no other file."""
    reply = caller().get("/none")
    assert (reply.status, reply.headers["Content-Type"]) == (429, "text/html; charset=utf-8")
    assert "Too many requests" in reply.text
    assert "tries again by itself in <b><i>60</i></b> s." in reply.text
    assert reply.headers["Refresh"] == "60"
    assert not re.search(r"src=|href=|url\(|<script", reply.text)
    assert "default-src 'none'" in reply.headers["Content-Security-Policy"]
    assert len(reply.body) < 2_000


def test_a_refused_form_is_not_loaded_again(caller):
    """A GET of the form's address would lose what its visitor sent."""
    reply = caller().post("/none")
    assert (reply.status, "Refresh" in reply.headers) == (429, False)
    assert "Please try again in <b><i>60</i></b> s." in reply.text


LANGUAGES = Languages(find_share("static")).tags


@pytest.mark.parametrize("tag", LANGUAGES)
def test_the_refused_browser_reads_its_language(caller, tag):
    """Each language of the waiting page has all texts, without ASCII marks beside Chinese."""
    english, page = (
        caller(**{"Accept-Language": wanted}).get("/none").text
        for wanted in ("xx, en", f"{tag}, en;q=0.8")
    )
    direction = "rtl" if tag == "ar" else "ltr"
    assert f'<html lang="{tag}" dir="{direction}">' in page
    lines, ours = (re.findall("<(?:title|h1|p)>(.*)</", text) for text in (english, page))
    assert all(one != other or tag == "en" for one, other in zip(lines, ours, strict=True))
    assert "<b><i>60</i></b>" in ours[-1]
    if tag[:2] in {"zh", "ja"}:
        assert not re.search("[,:;?!()]", re.sub("<.*?>", "", "".join(ours)))


@pytest.mark.parametrize("accept", [JSON, "application/problem+json"])
def test_the_refused_program_gets_a_problem(caller, accept):
    """RFC 9457, with the rule's name."""
    reply = caller(Accept=accept).get("/none")
    assert (reply.status, reply.headers["Content-Type"]) == (429, "application/problem+json")
    assert reply.json() == {
        "type": "urn:waitroom:problem:too_many_requests",
        "title": "Too many requests",
        "status": 429,
        "code": "too_many_requests",
        "limit": "none",
        "retry_after_seconds": 60,
    }


@pytest.mark.parametrize(
    "key",
    ["", "ключ", "a b\tc", "a" * 300, "a" * 6000, "\x01\x7f", "%", '"', "\xff", "{}", "a\x0bb"],
)
def test_odd_keys(site, key):
    """Each odd key has a limit of its own and causes no error."""
    visitor = Visitor(site.url, {"X-Key": key.encode().decode("latin-1")})
    statuses = [visitor.get("/api").status for _ in range(4)]
    # Those with control characters share one.
    is_control = any((c < " " and c != "\t") or c == "\x7f" for c in key)
    assert statuses[3] == 429
    assert statuses[:3] == [200] * 3 or is_control


def test_otherwise_the_address_is_the_key(site):
    """Without a key the address counts, whatever headers the visitor sends."""
    statuses = [
        Visitor(site.url, {"X-Waitroom-Key": str(n), "X-Key": str(n)}).get("/address").status
        for n in range(4)
    ]
    assert statuses == [200, 200, 200, 429]
    assert looked(site, "api", "127.0.0.1")["allowed"] is False


def test_calls_are_paced(caller):
    """Each is let through a tenth of a second after the one before, and none is lost."""
    visitor, began = caller(), time.monotonic()
    with ThreadPoolExecutor(6) as pool:
        ends = sorted(
            pool.map(lambda _: (visitor.get("/even").status, time.monotonic() - began), range(6))
        )
    assert [status for status, _ in ends] == [200] * 6
    for number, (_, end) in enumerate(ends):
        assert end >= number * 0.1


def test_what_would_be_too_late_is_refused(site, caller):
    """nginx would have to hold it for 40 s. Its moment is given back."""
    visitor = caller()
    assert visitor.get("/late").status == 200
    reply = visitor.get("/late")
    assert (reply.status, 36 <= int(reply.headers["Retry-After"]) <= 40) == (429, True)
    key = visitor.headers["X-Key"]
    # It would be 80 s for whoever comes next.
    wait_until(lambda: looked(site, "late", key)["wait_seconds"] <= 40, "the moment's return")


def test_whoever_goes_away_gives_the_moment_back(site, caller):
    """The moment of a caller who hangs up is free for the next caller."""
    visitor = caller()
    assert visitor.get("/slow").status == 200
    key = visitor.headers["X-Key"]
    with socket.create_connection(("127.0.0.1", site.port), timeout=20) as connection:
        connection.sendall(f"GET /slow HTTP/1.1\r\nHost: x\r\nX-Key: {key}\r\n\r\n".encode())
        wait_until(lambda: looked(site, "slow", key)["wait_seconds"] > 20, "the held request")
    wait_until(lambda: looked(site, "slow", key)["wait_seconds"] <= 20, "the moment's return")


@pytest.mark.parametrize(("path", "name"), [("/nosuch", "nosuch"), ("/unset", "")])
def test_an_unknown_limit_is_named(caller, path, name):
    """503 with a sentence, for all."""
    for accept in (HTML, JSON):
        reply = caller(Accept=accept).get(path)
        assert (reply.status, reply.headers["Content-Type"]) == (503, "text/plain; charset=utf-8")
        assert f"'{name}'" in reply.text
        assert "waitroom_limit" in reply.text


def test_a_refusal_of_the_sites_own_stays(caller):
    """A 403 of the site stays a 403."""
    reply = caller().get("/status/403")
    assert (reply.status, reply.all("Retry-After")) == (403, [])


def test_an_index_is_one_call(caller):
    """nginx asks twice about it: it redirects the request within."""
    visitor = caller()
    replies = [visitor.get("/index/") for _ in range(4)]
    assert [reply.status for reply in replies] == [200, 200, 200, 429]
    assert replies[0].text == "an index"
    left = [reply.headers["RateLimit"].split(";")[1] for reply in replies]
    assert left == ["r=2", "r=1", "r=0", "r=0"]


def test_preflights_are_not_counted(caller):
    """Preflights are not counted. The calls after them are."""
    visitor = caller()
    asked = {
        "Access-Control-Request-Method": "PUT",
        "Origin": "https://app.example",
        "Cookie": None,  # as browsers send it
    }
    assert [visitor.send("OPTIONS", "/api", headers=asked).status for _ in range(5)] == [200] * 5
    assert [visitor.get("/api").status for _ in range(4)] == [200, 200, 200, 429]
    assert visitor.send("OPTIONS", "/api").status == 429  # and this is none


def test_bodies(caller):
    """A body arrives whole, or its request is refused."""
    visitor, body = caller(), b"b" * 900_000
    for _ in range(3):
        assert visitor.post("/api", body).json()["received"] == len(body)
    assert visitor.post("/api", body).status == 429
    assert visitor.post("/api", body, chunked=True).status == 429
    assert visitor.post("/large", b"b" * 5_000_000).status == 429


def test_a_room_and_a_limit(site, caller):
    """In two servers, the limit behind: who waits is not counted, who is inside is."""
    inside, waiting = caller(Host="front"), caller(Host="front")
    waiting.headers["X-Key"] = inside.headers["X-Key"]
    assert inside.get("/").status == 200
    assert [waiting.get("/").waits for _ in range(3)] == [True] * 3
    assert [inside.get("/").status for _ in range(3)] == [200, 200, 429]
    reply = inside.get("/")
    assert (reply.status, "Too many requests" in reply.text) == (429, True)
    assert int(reply.headers["Retry-After"]) > 3500


def test_the_store_is_away(site, caller):
    """Each rule sets what happens then. Nobody waits for Redis, and nothing is an error."""
    with site.redis.frozen():
        for _ in range(2):
            reply = caller().get("/many")
            assert (reply.status, reply.all("RateLimit")) == (200, [])
            reply = caller().get("/strict")
            assert (reply.status, reply.headers["Retry-After"]) == (503, "5")
            assert "Too many" not in reply.text
        assert caller(Accept=JSON).get("/strict").json()["status"] == 503
    for edge in site.edges:
        visitor = Visitor(edge, {"X-Waitroom-Limit": "strict"})
        wait_until(lambda v=visitor: v.get("/check-limit").status == 204, "the store's return")


# Without a replica.


ODD_LOCATIONS = LOCATIONS


@pytest.mark.parametrize("reply", [b"", make_reply(500), make_reply(502), make_reply(404)])
def test_no_replica_answers(odd, stub, reply):
    """All calls pass, or none does, as $waitroom_limit_on_failure says."""
    stub.reply = reply
    assert Visitor(odd.url).get("/many").status == 200
    page = Visitor(odd.url).get("/refuses")
    assert (page.status, page.headers["Retry-After"]) == (503, "5")
    assert "cannot take your request" in page.text
    problem = Visitor(odd.url, {"Accept": JSON}).get("/refuses").json()
    assert (problem["status"], problem["limit"]) == (503, "many")
    own = Visitor(odd.url).get("/status/403")  # the site's own refusal stays
    assert (own.status, own.all("Retry-After")) == (403, [])


class Holding(Stub):
    """Holds each request for longer than nginx waits for any other answer, which is 3 s."""

    @property
    def reply(self) -> bytes:
        time.sleep(1.6)  # it is looked at twice
        return make_reply(204, "X-Waitroom-State: admitted")

    @reply.setter
    def reply(self, _: bytes) -> None:
        pass


def test_a_held_request_is_waited_for():
    """It has not failed: it passes when it is let go, where failures are refused."""
    with Holding() as stub, Site(replicas=0, edges=(stub.address,), locations=LOCATIONS) as site:
        assert Visitor(site.url).get("/refuses").status == 200


def test_what_reaches_a_replica(odd, stub):
    """The replica gets the rule and the key, and nothing else that a visitor sends."""
    stub.reply, stub.asked[:] = make_reply(204, "X-Waitroom-State: admitted"), []
    headers = {"Cookie": "a=b", "X-Waitroom-Limit": "other", "X-Waitroom-Given": "many"}
    Visitor(odd.url, {**headers, "X-Key": "k", "User-Agent": "odd\x01"}).post("/many", b"12345")
    [asked] = stub.asked
    lines = set(asked.split("\r\n")[1:])
    assert asked.startswith("GET /check-limit HTTP/1.1\r\n")
    assert lines == {
        "X-Waitroom-Limit: many",
        "X-Waitroom-Key: k",
        "X-Original-Method: POST",
        "Host: waitroom",
    }
