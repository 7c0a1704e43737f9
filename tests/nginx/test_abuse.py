"""Those who want in sooner, or others out: docs/attacks.md lists what they try.

What is tried with the cookie alone, and takes time to pass, is in tests/gate/test_abuse.py.
"""

import contextlib
import json
import random
import re
import socket

import pytest

from tests.support.nginx_client import JSON, Visitor, room_cookies
from tests.support.processes import wait_until
from tests.support.relay import Relay
from tests.support.site import ADMIN_TOKEN, Site, gated
from tests.support.tokens import signed_pass

FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"
CHROME = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 Chrome/140.0.0.0 Safari/537.36"

#: bind_pass, who shows the pass of a Firefox at 192.0.2.1, and whether they get in.
SHARED = [
    ("none", {"User-Agent": CHROME, "X-Test-Address": "192.0.2.2"}, True),
    ("user_agent", {"User-Agent": CHROME, "X-Test-Address": "192.0.2.1"}, False),
    ("user_agent", {"User-Agent": None, "X-Test-Address": "192.0.2.1"}, False),
    ("user_agent", {"User-Agent": FIREFOX, "X-Test-Address": "192.0.2.2"}, True),
    ("ip", {"User-Agent": FIREFOX, "X-Test-Address": "192.0.2.2"}, False),
    ("ip", {"User-Agent": FIREFOX, "X-Test-Address": "2001:db8::1"}, False),
    ("ip", {"User-Agent": CHROME, "X-Test-Address": "192.0.2.1"}, True),
]
HOARDS = ("named", "named-6", "forged", "given-up", "far")

#: 202, so that a 503 is an error of somebody's.
SOFT = {"queueing_status_code": 202}
ROOMS = {
    "open": {"total_active_users": 10_000, **SOFT},
    "full": {"total_active_users": 0, **SOFT},
    "switched": {"total_active_users": 2, **SOFT},
    "doors": {"total_active_users": 1, "bind_pass": "user_agent", **SOFT},
    "theft": {"total_active_users": 1, "bind_pass": "ip", **SOFT},
    **{
        f"shared-{number}": {"total_active_users": 1, "bind_pass": bind_pass, **SOFT}
        for number, (bind_pass, *_) in enumerate(SHARED)
    },
    **{room: {"total_active_users": 1, "max_places_per_address": 3, **SOFT} for room in HOARDS},
}
LOCATIONS = "".join(gated(f"/{room}/", room=room) for room in ROOMS)
#: Behind a balancer that is trusted; its server says who the visitor is.
BALANCED = "set_real_ip_from 127.0.0.1; real_ip_header X-Test-Address;\n"
#: Behind one that is trusted, at another address than ours: nothing that we say is believed.
DISTRUSTS = "set_real_ip_from 10.0.0.0/8; real_ip_header X-Forwarded-For;\n"
INCLUDE = "include waitroom/server.conf;\n"


@pytest.fixture(scope="module")
def site():
    servers = {
        "balanced": BALANCED + INCLUDE + LOCATIONS,
        "distrusts": DISTRUSTS + INCLUDE + LOCATIONS,
    }
    with Site(rooms=ROOMS, locations=LOCATIONS, servers=servers, relay=Relay) as site:
        yield site
        # Whatever was tried: what is logged is JSON, a line each, and none is an error.
        lines = site.replicas[0].output.splitlines()
        assert [line for line in lines if not line.startswith("{")] == []
        assert {json.loads(line)["level"] for line in lines} <= {"info"}


def at(site, address: str, **headers) -> Visitor:
    """Create a visitor whose address is set by the balancer."""
    return Visitor(site.url, {"Host": "balanced", "X-Test-Address": address, **headers})


def raw(site, text: bytes, *, source: str = "127.0.0.1", patience_s: float = 10) -> bytes:
    """Send bytes. Return what comes back until nginx closes the connection or is silent."""
    with socket.create_connection(
        ("127.0.0.1", site.port), timeout=patience_s, source_address=(source, 0)
    ) as connection:
        connection.sendall(text)
        answer = b""
        with contextlib.suppress(TimeoutError, ConnectionError):
            while piece := connection.recv(65536):
                answer += piece
        return answer


# A pass in two hands.


@pytest.mark.parametrize("number", range(len(SHARED)))
def test_a_pass_that_is_shared(site, number):
    """A bound pass admits its bearer alone, in one slot, and ends at another address."""
    bind_pass, other, gets_in = SHARED[number]
    ends = bind_pass == "ip" and not gets_in
    room = f"shared-{number}"
    owner = at(site, "192.0.2.1", **{"User-Agent": FIREFOX})
    assert owner.get(f"/{room}/").status == 200
    bought = _cookie(owner, room)
    for _ in range(1 if ends else 3):
        # Just before: a verdict that nginx kept would let the other in.
        assert room_cookies(owner.get(f"/{room}/"), room) == []
        reply = Visitor(site.url, {"Host": "balanced", **other}).get(
            f"/{room}/", headers={"Cookie": bought}
        )
        assert (reply.status, reply.waits) == ((200, False) if gets_in else (202, True))
        assert len(room_cookies(reply, room)) == (0 if gets_in else 1)
    wait_until(lambda: owner.get(f"/{room}/").waits == ends, "what becomes of the owner")
    assert ends or site.room(room)["active"] == 1


def test_a_bound_pass_at_the_other_doors(site):
    """Neither a poll nor the page makes it somebody else's."""
    owner = at(site, "192.0.2.1", **{"User-Agent": FIREFOX})
    assert owner.get("/doors/").status == 200
    for door in ("status", ""):
        for agent, state in ((CHROME, "not_queued"), (FIREFOX, "admitted")):
            reply = at(site, "192.0.2.1", **{"User-Agent": agent, "Sec-Fetch-Mode": "cors"}).get(
                f"/_waitroom/doors/{door}", headers={"Cookie": _cookie(owner, "doors")}
            )
            seen = (
                reply.json()["state"]
                if door
                else {200: "not_queued", 303: "admitted"}[reply.status]
            )
            assert (door, agent, seen) == (door, agent, state)


def test_nobody_says_that_they_are_the_owner(site):
    """The address is the one that nginx sees, whatever headers say."""
    owner = at(site, "192.0.2.77")
    assert owner.get("/theft/").status == 200
    for host in ("127.0.0.1", "distrusts"):
        for name in ("X-Real-IP", "X-Forwarded-For", "Forwarded", "X-Test-Address"):
            said = "for=192.0.2.77" if name == "Forwarded" else "192.0.2.77"
            thief = Visitor(site.url, {"Host": host, name: said})
            assert thief.get("/theft/", headers={"Cookie": _cookie(owner, "theft")}).waits, name


def _cookie(visitor: Visitor, room: str) -> str:
    return f"waitroom_{room}={visitor.cookies[f'waitroom_{room}']}"


# Places by the dozen.


def take(visitors: list[Visitor], room: str) -> list[str]:
    """Let visitors request a page. Return whether each is inside, or the state they are told."""
    replies = [visitor.get(f"/{room}/", headers={"Accept": JSON}) for visitor in visitors]
    return ["inside" if reply.status == 200 else reply.json()["state"] for reply in replies]


@pytest.mark.parametrize(
    ("room", "hoarder", "neighbour"),
    [
        ("named", ["192.0.2.1"] * 5, "192.0.2.2"),
        ("named-6", [f"2001:db8:0:1::{n}" for n in range(5)], "2001:db8:0:2::1"),
    ],
)
def test_an_address_has_so_many_places(site, room, hoarder, neighbour):
    """Sessions and places count together, by address or IPv6 network; then the room is full."""
    visitors = [at(site, address) for address in hoarder]
    assert take(visitors, room) == ["inside", "waiting", "waiting", "full", "full"]
    assert [bool(visitor.cookies.get(f"waitroom_{room}")) for visitor in visitors] == [
        True, True, True, False, False,
    ]  # fmt: skip
    assert take(visitors[:3], room) == ["inside", "waiting", "waiting"]  # theirs, still
    assert take([at(site, neighbour)], room) == ["waiting"]
    page = visitors[4].get(f"/{room}/")
    assert (page.status, page.data("state")) == (202, "full")
    joined = visitors[4].post(f"/_waitroom/{room}/join", headers={"Accept": JSON})
    assert joined.json()["state"] == "full"
    assert (site.room(room)["active"], site.room(room)["waiting"]) == (1, 3)


@pytest.mark.parametrize("host", ["127.0.0.1", "distrusts"])
def test_a_forged_address_is_no_other_address(site, host):
    """No header changes the address, and neither do several at once."""
    room = "forged"
    if not site.count_visitors(room):
        assert take([Visitor(site.url)] * 1, room) == ["inside"]
        assert take([Visitor(site.url) for _ in range(2)], room) == ["waiting"] * 2
    for number in range(3):
        said = f"198.51.100.{number}"
        headers = {
            "X-Real-IP": said, "X-Forwarded-For": f"{said}, 10.0.0.1", "Forwarded": f"for={said}",
            "X-Client-IP": said, "True-Client-IP": said, "CF-Connecting-IP": said,
            "X-Test-Address": said, "x-real-ip": said,
        }  # fmt: skip
        assert take([Visitor(site.url, {"Host": host, **headers})], room) == ["full"]
    assert site.count_visitors(room) == 3


def test_another_address_is_one(site):
    """Without any header: nginx sees where a connection comes from."""
    text = (
        b"GET /far/ HTTP/1.1\r\nHost: x\r\nAccept: %b\r\nConnection: close\r\n\r\n" % JSON.encode()
    )
    seen = [raw(site, text, source=f"127.0.0.{n}") for n in (2, 2, 2, 2, 3)]
    states = [re.findall(rb'"state": ?"(\w+)"', answer) for answer in seen]
    assert states == [[], [b"waiting"], [b"waiting"], [b"full"], [b"waiting"]]


def test_a_place_that_is_given_up_is_free_again(site):
    """At once, and only for as many as were given up."""
    room = "given-up"
    visitors = [at(site, "192.0.2.1") for _ in range(5)]
    assert take(visitors, room)[2:] == ["waiting", "full", "full"]
    visitors[1].post(f"/_waitroom/{room}/leave")
    assert take(visitors[3:], room) == ["waiting", "full"]


# Requests within requests.

_HEAD = "Host: x\r\nAccept: text/html\r\n"
_EVIL = "GET /check HTTP/1.1\r\nHost: x\r\nX-Waitroom-Room: smuggled\r\n\r\n"
_LEAVE = "POST /_waitroom/full/leave HTTP/1.1\r\nHost: x\r\nX-Waitroom-Room: smuggled\r\n\r\n"
_CHUNKED = "Transfer-Encoding: chunked"
_LENGTH = f"Content-Length: {len(_EVIL)}"
_LAST = "0\r\n\r\n"
_GET = "GET @ HTTP/1.1"


def _request(*lines: str, body: str = _EVIL, first: str = "POST @ HTTP/1.1") -> str:
    """Build a request with these header lines, and with another one as its body."""
    return f"{first}\r\n{_HEAD}" + "".join(f"{line}\r\n" for line in (*lines, "")) + body


SMUGGLED = {
    "a GET with a body": _request(_LENGTH, first=_GET),
    "a POST whose body is not read": _request(f"Content-Length: {len(_LEAVE)}", body=_LEAVE)
    + _request("Connection: close", body="", first="GET /open/own HTTP/1.1"),
    "both lengths": _request("Content-Length: 4", _CHUNKED, body=_LAST + _EVIL),
    "both lengths, the other way": _request(
        _CHUNKED, f"Content-Length: {len(_EVIL) + 5}", body=_LAST + _EVIL
    ),
    "two lengths": _request("Content-Length: 0", _LENGTH),
    "garbage after the last chunk": _request(_CHUNKED, body=f"5\r\nhello\r\n{_LAST}garbage{_EVIL}"),
    "a request in a trailer": _request(_CHUNKED, body=f"0\r\nX: y\r\n{_EVIL}\r\n"),
    "a chunk longer than it says": _request(_CHUNKED, body=f"1\r\n{_EVIL}{_LAST}"),
    "a chunk that never ends": _request(_CHUNKED, body=f"fffffff\r\n{_EVIL}"),
    "a body shorter than it says": _request("Content-Length: 9999"),
    "an unknown coding": _request("Transfer-Encoding: xchunked", body=_LAST + _EVIL),
    "a coding with a space": _request("Transfer-Encoding : chunked", body=_LAST + _EVIL),
    "a coding in HTTP/1.0": _request(_CHUNKED, body=_LAST + _EVIL, first="POST @ HTTP/1.0"),
    "a length below nothing": _request("Content-Length: -1"),
    "a length with a sign": _request("Content-Length: +4"),
    "a folded line": _request("X: y\r\n Content-Length: 4", first=_GET),
    "a bare line feed": f"GET @ HTTP/1.1\n{_HEAD}X: y\nContent-Length: 4\n\n{_EVIL}",
    "a line end in a header": _request(
        "User-Agent: x\rX-Waitroom-Room: smuggled", body="", first=_GET
    ),
    "an expectation": _request("Expect: 100-continue", _LENGTH),
    "an upgrade": _request("Connection: Upgrade", "Upgrade: h2c", first=_GET),
}


@pytest.mark.parametrize("path", ["/open/", "/full/", "/_waitroom/full/join"])
@pytest.mark.parametrize("text", SMUGGLED.values(), ids=SMUGGLED)
def test_nothing_is_smuggled(site, relay, path, text):
    """A replica gets only nginx's own requests, and later visitors their own responses."""
    inside = Visitor(site.url, cookies={"waitroom_open": signed_pass("open")})
    answer = raw(site, text.replace("@", path).encode(), patience_s=0.1)
    # 501 is nginx's own, for a coding that it does not know.
    assert set(re.findall(rb"HTTP/1\.1 (5\d\d)", answer)) <= {b"501"}
    for _ in range(3):
        assert inside.get("/open/mine").json()["path"] == "/open/mine"
        newcomer = Visitor(site.url).get("/full/theirs")
        assert (newcomer.status, newcomer.data("next")) == (202, "/full/theirs")
    if not path.startswith("/_"):  # at a door a body is the replica's to read
        assert {request[""] for request in relay.requests} == {"GET /check HTTP/1.1"}
        assert {request["x-waitroom-room"] for request in relay.requests} <= {"open", "full"}
        names = set().union(*relay.requests)
        assert names.isdisjoint({"content-length", "transfer-encoding", "expect", "upgrade"})


# What does not fit, and what is no text.


@pytest.mark.parametrize("size", [7_000, 8_150, 9_000, 40_000])
@pytest.mark.parametrize("path", ["/open/", "/full/"])
def test_what_is_too_large(site, path, size):
    """The visitor's own fault (414, 400), and until then a visit like any other."""
    usual = 200 if path == "/open/" else 202
    for reply in (
        Visitor(site.url).get(path + "a" * size),
        Visitor(site.url).get(f"{path}?next=/{'a' * size}"),
        Visitor(site.url).get(path, headers={"Cookie": f"a={'b' * size}"}),
        Visitor(site.url).get(path, headers={"Cookie": f"waitroom_full={'p' * size}"}),
        Visitor(site.url, {"User-Agent": "a" * size}).get(path),
        Visitor(site.url, {"Accept": f"text/html, {'a' * size}"}).get(path),
        Visitor(site.url, {f"X-{n}": "v" * (size // 40) for n in range(40)}).get(path),
    ):
        assert reply.status in ({usual} if size < 8_000 else {usual, 400, 414})


def _noise(draw: random.Random, beyond: int) -> str:
    letters = [chr(n) for n in range(33, beyond) if n != 127]
    return "".join(draw.choices(letters, k=draw.randrange(1, 60)))


def test_any_bytes_anywhere(site):
    """In path, query, cookies and headers: let in, told to wait, or refused as no HTTP."""
    draw = random.Random(7)
    seen = set()
    for number in range(150):
        path = ("/open/", "/full/", "/_waitroom/full/", "/_waitroom/full/status")[number % 4]
        noise = [_noise(draw, beyond=256) for _ in range(4)]
        more, query, following = (_noise(draw, beyond=draw.choice([127, 256])) for _ in range(3))
        target = f"{path}{more if number % 2 else ''}?{query}&next=/{following}"
        headers = {"Cookie": f"{noise[3]}; waitroom_full={noise[0]}; waitroom_open={noise[1]}"}
        headers["User-Agent"], headers["Accept-Language"] = noise[2], noise[1]
        reply = Visitor(site.url, {"Sec-Fetch-Mode": "navigate"}).get(
            target.encode("latin-1"), headers=headers
        )
        seen.add(reply.status)
    assert seen <= {200, 202, 400, 404}
    assert {200, 202} <= seen


@pytest.mark.parametrize("character", ["\x01", "\x1b[31m", "\x7f", "\x08\x08\x08"])
@pytest.mark.parametrize("name", ["User-Agent", "Accept-Language", "Purpose", "Cookie"])
def test_control_characters_in_a_header(site, name, character):
    """Not HTTP: their sender waits, or is refused. Nothing of it is in a log (see `site`)."""
    before = site.replicas[0].output
    for path in ("/full/", "/_waitroom/full/status", "/_waitroom/full/"):
        reply = Visitor(site.url, {name: f"a{character}b"}).get(path)
        assert reply.status in {200, 202, 400} or (reply.status, reply.waits) == (503, True)
    assert site.replicas[0].output == before


_PART = b'--x\r\nContent-Disposition: form-data; name="next"\r\n'
FORMS = {
    "no boundary": ("multipart/form-data", b"abc"),
    "garbage": ("multipart/form-data; boundary=x", b"garbage" * 99),
    "no header": ("multipart/form-data; boundary=x", b"--x\r\nnone\r\n\r\n/a\r\n--x--\r\n"),
    "a coding": (
        "multipart/form-data; boundary=x",
        _PART + b"Content-Transfer-Encoding: odd\r\n\r\n/a\r\n--x--\r\n",
    ),
    "headers": ("multipart/form-data; boundary=x", b"--x\r\n" + b"A: b\r\n" * 999 + b"\r\n\r\n"),
    "a file": (
        "multipart/form-data; boundary=x",
        b'--x\r\nContent-Disposition: form-data; name="next"; filename="f"\r\n\r\n//evil\r\n--x--',
    ),
    "half a character": ("application/x-www-form-urlencoded; charset=utf-7", b"next=/+2AA-"),
    "escapes": ("application/x-www-form-urlencoded; charset=unicode_escape", b"next=/\\ud800"),
    "an unknown charset": ("application/x-www-form-urlencoded; charset=odd", b"next=/a"),
    "no UTF-8": ("application/x-www-form-urlencoded", b"next=/%ed%a0%80\xff&\xfe"),
    "nothing but separators": ("application/x-www-form-urlencoded", b"&" * 60_000),
    "twice": ("application/x-www-form-urlencoded", b"next=/a&next=//evil.test"),
    "the other way": ("application/x-www-form-urlencoded", b"next=//evil.test&next=/a"),
}


@pytest.mark.parametrize("door", ["join", "leave"])
@pytest.mark.parametrize(("kind", "body"), FORMS.values(), ids=FORMS)
def test_a_form_that_is_none(site, door, kind, body):
    """The page, with a way back that is on this site."""
    reply = Visitor(site.url, {"Content-Type": kind}).post(f"/_waitroom/full/{door}", body)
    assert (reply.status, reply.waits) == (200, True)
    assert "evil" not in reply.text
    assert reply.data("next").startswith("/")


# Doors that are not there.


@pytest.mark.parametrize("path", ["/metrics", "/healthz", "/readyz", "/admin/rooms"])
def test_operators_doors_are_not_the_visitors(site, relay, path):
    """Operators' paths exist on the ops listener alone, however they are spelt."""
    token = {"Authorization": f"Bearer {ADMIN_TOKEN}"}
    assert Visitor(site.ops[0], token).get(path).status == 200
    assert Visitor(site.edges[0], token).get(path).status == 404
    for spelt in (
        f"/_waitroom{path}", f"/_waitroom/open{path}", f"/_waitroom/open/..{path}",
        f"/_waitroom/open/status/..{path}", f"/_waitroom/open/..%2f..{path}",
        f"/_waitroom/open%2f..%2f..{path}", f"/_waitroom/open/;{path}",
        f"/_waitroom/static/..{path}", f"/_waitroom/internal{path}",
        f"/_waitroom/open/status%3f/../..{path}", f"/_waitroom/open/status%00{path}",
    ):  # fmt: skip
        assert Visitor(site.url, token).get(spelt).status in {400, 404}, spelt


@pytest.mark.parametrize(
    "path",
    [
        "/_waitroom/open/../full/status", "/_waitroom/open%2f..%2ffull/status",
        "/_waitroom/open/status%3f/../../full/status", "/_waitroom/open/status/../../full/status",
        "//_waitroom/full/status", "/_waitroom//full/status", "/./_waitroom/full/status",
        "/_waitroom/%66ull/status", "/_waitroom/full/status#/../../open/status",
        "http://open/_waitroom/full/status",
    ],
)  # fmt: skip
def test_nginx_and_a_replica_read_one_room(site, path):
    """nginx and the sidecar read the same room in a path, or one gets the other's cookie."""
    for _ in range(2):
        reply = Visitor(site.url, {"Accept": JSON}).get(path)
        if reply.status == 200:
            assert reply.json()["room"] == "full"
        else:
            assert reply.status in {400, 404}


# Logs.


def test_a_console_log_shows_no_control_characters():
    """No input puts a control character into the console log; `site` checks the JSON log."""
    settings = {"log_format": "console", "log_level": "debug"}
    locations = gated("/", room="$test_room")
    http = 'map $http_x_test_room $test_room { default $http_x_test_room; "" open; }'
    with Site(rooms={"open": ROOMS["open"]}, locations=locations, http=http,
              settings=settings) as site:  # fmt: skip
        before = len(site.replicas[0].output.splitlines())
        for evil in (
            "\x1b[31mred",
            "\x9b31mred",
            "\xc2\x9b31m",
            "a\x07",
            "a\xe2\x80\xa8b",
            "\x85x",
        ):
            spelt = "".join(f"%{ord(c):02x}" for c in evil)
            for url in (site.url, site.edges[0]):
                Visitor(url).get(f"/{spelt}?{spelt}")
                Visitor(url).get(f"/_waitroom/{spelt}/status")
                Visitor(url).get(f"/_waitroom/static/{spelt}")
                Visitor(url, {"User-Agent": evil}).get("/_waitroom/open/status")
                Visitor(url).get("/check", headers={"Cookie": f"waitroom_open={evil}"})
            Visitor(site.url, {"X-Test-Room": evil}).get("/")
            Visitor(site.edges[0], {"X-Waitroom-Room": f"{evil}!"}).get("/check")
        site.redis.stop()
        Visitor(site.url).post("/_waitroom/%6fpen/leave", headers={"Cookie": ""})
        output = site.replicas[0].output
    assert len(output.splitlines()) > before
    assert "unknown_room" in output
    assert [c for c in output if not c.isprintable() and c != "\n"] == []
    assert [line for line in output.splitlines() if not re.match(r"\d{4}-\d\d-\d\dT", line)] == []
