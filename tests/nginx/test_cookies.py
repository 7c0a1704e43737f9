"""Cookies: ours among theirs, forged and garbled ones, and what reaches the application."""

import random
import re

import pytest

from tests.support.nginx_client import Visitor, room_cookies
from tests.support.relay import Relay
from tests.support.site import Site, gated
from tests.support.tokens import SESSION_S, signed_pass, signed_ticket


@pytest.fixture(scope="module")
def site(stamps):
    rooms = {
        "open": {"total_active_users": 1000},
        "other": {"total_active_users": 1000},
        "full": {"total_active_users": 0},
        "open-2": {"total_active_users": 1000},
    }
    bare = "proxy_set_header Cookie $waitroom_site_cookie;"
    locations = (
        gated("/", room="open")
        + gated("/other", room="other")
        + gated("/full", room="full")
        + gated("/bare", bare, room="open")
        + gated("/quiet", "proxy_pass_request_headers off;", room="open")
        + gated("/open-2", room="open-2")
    )
    with Site(rooms=rooms, locations=locations, relay=Relay, stamps=stamps) as site:
        yield site


def test_the_first_response_has_the_sites_cookie_and_ours(site):
    """Ours is HttpOnly, SameSite=Lax, for the whole site, and without TLS not Secure."""
    reply = Visitor(site.url).get("/")
    names = sorted(line.split("=")[0] for line in reply.all("Set-Cookie"))
    assert names == ["site", "waitroom_open"]
    (line,) = room_cookies(reply, "open")
    attributes = {part.strip() for part in line.split(";")[1:]}
    assert {"HttpOnly", "SameSite=Lax", "Path=/"} <= attributes
    assert "Secure" not in attributes


def test_a_cookie_is_given_once(site):
    """The cookie is set once; only a response with a stamp changes the site's caching."""
    visitor = Visitor(site.url)
    first, second = visitor.get("/"), visitor.get("/")
    assert (len(room_cookies(first, "open")), len(room_cookies(second, "open"))) == (1, 0)
    assert first.all("Cache-Control") == ["private"]
    assert second.all("Cache-Control") == (["private"] if "waitroom_now" in visitor.cookies else [])
    assert visitor.get("/", headers={"Accept": "image/*"}).all("Cache-Control") == []


def test_eight_kilobytes_of_other_cookies(site):
    """Other cookies never reach the sidecar, whatever their size, so ours is still found."""
    visitor = Visitor(site.url)
    visitor.get("/")
    ours = visitor.cookies["waitroom_open"]
    for cookie in (
        f"a={'x' * 7500}; waitroom_open={ours}",
        f"waitroom_open={ours}; a={'x' * 7500}",
        "; ".join(f"c{n}={'v' * 20}" for n in range(250)) + f"; waitroom_open={ours}",
    ):
        site.relays[0].forget()
        reply = visitor.get("/full", headers={"Cookie": cookie})
        assert reply.status == 503
        assert "cookie" not in site.relays[0].checks()[0]
        reply = visitor.get("/", headers={"Cookie": cookie})
        assert (reply.status, room_cookies(reply, "open")) == (200, [])


@pytest.mark.parametrize(
    "cookie",
    [
        "a=1; waitroom_open={}; b=2", "a=1;waitroom_open={};b=2", "a=1;   waitroom_open={}  ;b=2",
        "waitroom_open=garbage; waitroom_open={}",
        "xwaitroom_open=1; waitroom_open={}; waitroom_openx=2",
        "waitroom_open-2=1; waitroom_open={}", '=; ;;; a="q;uo"; waitroom_open={}',
    ],
)  # fmt: skip
def test_ours_is_found_among_others(site, cookie):
    """At any place, beside names that resemble it."""
    visitor = Visitor(site.url)
    visitor.get("/")
    reply = visitor.get("/", headers={"Cookie": cookie.format(visitor.cookies["waitroom_open"])})
    assert (reply.status, room_cookies(reply, "open")) == (200, [])


#: What a cookie of the same name may have beside a pass.
TWINS = {
    "another secret": lambda room: signed_pass(
        room, secret="another-secret-another-secret-another"
    ),
    "a ticket": signed_ticket,
    "a session that is over": lambda room: signed_pass(room, age_s=2 * SESSION_S),
    "no token": lambda _: "x",
    "spaces": lambda _: "a b",
}


@pytest.mark.parametrize("room", ["full", "other"])
@pytest.mark.parametrize("stale", TWINS)
@pytest.mark.parametrize(
    "form", ["waitroom_{0}={1}; a=b; waitroom_{0}={2}", "a=;waitroom_{0}={2};waitroom_{0}={1};b"]
)
def test_of_two_cookies_of_one_name_the_better_counts(site, room, stale, form):
    """A pass beside a stale cookie of its name admits, in either order, without a new cookie."""
    inside = signed_pass(room)
    cookie = form.format(room, TWINS[stale](room), inside)
    reply = Visitor(site.url).get(f"/{room}", headers={"Cookie": cookie})
    assert (reply.status, room_cookies(reply, room)) == (200, [])
    poll = Visitor(site.url).get(f"/_waitroom/{room}/status", headers={"Cookie": cookie})
    assert poll.json()["state"] == "admitted"


def test_no_cookie_is_ever_deleted(site):
    """A response that deletes could overtake one that gives: whatever comes, none deletes."""
    visitor = Visitor(site.url)
    visitor.get("/full")
    replies = [
        visitor.get("/full", headers={"Cookie": "waitroom_full=garbage"}),
        visitor.post("/_waitroom/full/leave"),
        visitor.get("/_waitroom/full/status"),
    ]
    for reply in replies:
        for line in room_cookies(reply, "full"):
            assert not re.search(r"Max-Age=(0|-)|Expires=Thu, 01", line)


@pytest.mark.parametrize(
    ("sent", "seen"),
    [
        ("a=1; waitroom_open={}; b=2", "a=1; b=2"),
        ("waitroom_open={}; b=2", "b=2"),
        ("a=1; waitroom_open={}", "a=1"),
        ("waitroom_open={}", None),
        ("waitroom_open={}; waitroom_x=1; b=2", "b=2"),
        ("waitroom_x=1; a=1; waitroom_open={}; b=2; waitroom_y=2; c=3", "a=1; b=2; c=3"),
        (
            "a=waitroom_open; xwaitroom_open=3; waitroom_open={}",
            "a=waitroom_open; xwaitroom_open=3",
        ),
        ('a="x; y"; waitroom_open={}; Ä=ö', 'a="x; y"; Ä=ö'),
        (
            "a=1; waitroom_open={}; b=2; waitroom_shop=x; c=3; waitroom_seat=y; d=4",
            "a=1; b=2; c=3; d=4",
        ),
    ],
)
def test_the_application_can_be_spared_our_cookies(site, sent, seen):
    """$waitroom_site_cookie is the visitor's cookies without those of any room."""
    visitor = Visitor(site.url)
    visitor.get("/")
    cookie = sent.format(visitor.cookies["waitroom_open"])
    reply = visitor.get("/bare", headers={"Cookie": cookie})
    assert (reply.status, room_cookies(reply, "open")) == (200, [])
    got = reply.json()["headers"].get("Cookie")
    assert (got and got.encode("utf-8", "surrogateescape").decode("latin-1")) == seen


def shuffled(draw: random.Random) -> list[str]:
    """Return up to forty odd cookies in random order, some of them ours."""
    theirs = ("a=1", "b=2", "", " ", 'c="x', "a=waitroom_open", "xwaitroom_open=3", "waitroom")
    ours = ("waitroom_open=x", "waitroom_x=", "waitroom_seat=y~z", "waitroom_", " waitroom_b=2 ")
    share = draw.random()
    return [
        draw.choice(ours if draw.random() < share else theirs) for _ in range(draw.randrange(40))
    ]


def test_none_of_our_cookies_reaches_the_application(site):
    """However many there are, and wherever; whatever stands before the first 18 gaps stays."""
    draw = random.Random(2)
    for _ in range(150):
        parts = shuffled(draw)
        reply = Visitor(site.url).get("/bare", headers={"Cookie": ";".join(["c=0", *parts])})
        got = (reply.json()["headers"].get("Cookie") or "").split(";")
        kept = ["c=0", *(part for part in parts if not part.strip().startswith("waitroom_"))]
        gaps = len(re.findall(r"(?:;\s*waitroom_[^;]*)+", ";" + ";".join(parts)))
        assert [part.strip() for part in got] == [part.strip() for part in kept][: len(got)], parts
        assert len(got) == len(kept) or gaps > 18, parts


def test_more_of_our_cookies_than_anybody_has(site):
    """From a number on the rest is left out: better than one of ours among it."""
    for count, kept in ((18, 18), (19, 19), (20, 19), (250, 19)):
        cookie = "; ".join(f"a{n}=1; waitroom_r{n}=x" for n in range(count))
        reply = Visitor(site.url).get("/bare", headers={"Cookie": cookie})
        assert reply.json()["headers"]["Cookie"] == "; ".join(f"a{n}=1" for n in range(kept))


def test_nothing_but_separators(site):
    """A header of 7,500 of them is looked through as any other."""
    for filler in (";", " ", "; ", ";waitroom_", "; waitroom_x=1;a"):
        cookie = filler * (7500 // len(filler)) + "; waitroom_open=x"
        reply = Visitor(site.url).get("/bare", headers={"Cookie": cookie})
        assert reply.status == 200
        assert "waitroom_" not in (reply.json()["headers"].get("Cookie") or "")


def test_room_names_with_dashes(site):
    """`open` and `open-2` are two rooms with two cookies."""
    visitor = Visitor(site.url)
    visitor.get("/")
    assert len(room_cookies(visitor.get("/open-2"), "open-2")) == 1
    assert room_cookies(visitor.get("/open-2"), "open-2") == []
    assert room_cookies(visitor.get("/"), "open") == []
