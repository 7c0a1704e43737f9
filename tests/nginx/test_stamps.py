"""Stamps: nginx knows by itself, for seconds, who is inside. The guests' tests and those of
verdicts run with and without them (conftest.py)."""

import base64
import hashlib
import re
import time

import pytest

from sidecar.gate.nginx_key import NginxKey, build_key_file
from sidecar.gate.stamps import compute_stamp_md5
from sidecar.visitors.verdict_lifetime import VERDICT_TTL_MS
from tests.support.nginx_client import JSON, Visitor
from tests.support.processes import wait_until
from tests.support.relay import Relay
from tests.support.site import SECRET, Site, gated
from tests.support.tokens import KEY, signed_pass, stamp

ROOMS = {
    "open": {"total_active_users": 1000},
    "other": {"total_active_users": 1000},
    "full": {"total_active_users": 0},
    "one": {"total_active_users": 1},
    "bound": {"total_active_users": 1000, "bind_pass": "user_agent"},
    "partial": {"total_active_users": 1000, "rollout_percent": 99.9},
    "address": {"total_active_users": 1000, "exempt_addresses": ["192.0.2.1"]},
    "path": {"total_active_users": 1000, "exempt_paths": ["/nowhere"]},
    "header": {"total_active_users": 1000, "exempt_header": True},
    "suspended": {"total_active_users": 1, "suspended": True},
}
PAGE = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
ASSET = {"Accept": "*/*", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}
#: Of the site's own: a link that it signs by the same module as nginx verifies stamps by.
LINK = "secure_link $arg_md5; secure_link_md5 site;"
LOCATIONS = "".join(
    (
        *(gated(f"/{room}", room=room) for room in ROOMS),
        gated("/lead", "try_files /none /full/led;", room="open", to=""),
        gated("/front", "try_files /none /open/front;", room="open", to=""),
        gated("/link", LINK, 'if ($secure_link = "") { return 410; }', room="full"),
        gated("/bare", "proxy_set_header Cookie $waitroom_site_cookie;", room="open"),
        gated("/seat", room="seat~7"),
    )
)
SITE = {
    "rooms": ROOMS,
    "leases": {"seat": {"term": 60}},
    "locations": LOCATIONS,
    "http": "log_format states '$uri $waitroom_state';",
    "server": "access_log @folder@/states.log states;",
    "relay": Relay,
    "stamps": True,
}


@pytest.fixture
def inside(site):
    return Visitor(site.url, cookies={"waitroom_open": signed_pass("open")})


def stamps_of(reply):
    return [line for line in reply.all("Set-Cookie") if line.startswith("waitroom_now=")]


def forged(room, **options):
    """Create a stamp, and change its first character."""
    value = stamp(room, **options)
    return ("x" if value[0] != "x" else "y") + value[1:]


def test_a_page_brings_a_stamp_and_its_pictures_ask_nobody(site, inside, relay):
    page = inside.get("/open", headers=PAGE)
    (given,) = stamps_of(page)
    assert given.endswith("; Max-Age=600; Path=/; HttpOnly; SameSite=Lax")
    assert "private" in page.all("Cache-Control")
    assert len(relay.checks()) == 1
    own = {"Cookie": "; ".join(f"{k}={v}" for k, v in inside.cookies.items())}
    for number in range(20):
        picture = Visitor(site.url).get(f"/open/{number}.png", headers=ASSET | own)
        assert picture.status == 200
        assert (stamps_of(picture), picture.all("Cache-Control")) == ([], [])
    assert len(relay.checks()) == 1


def test_behind_an_internal_redirect(site, relay):
    """One stamp is good for both checks of a front controller's request."""
    visitor = Visitor(
        site.url, cookies={"waitroom_open": signed_pass("open"), "waitroom_now": stamp("open")}
    )
    reply = visitor.get("/front", headers=PAGE)
    assert (reply.status, stamps_of(reply), relay.checks()) == (200, [], [])


def test_what_is_no_page_brings_no_stamp(inside):
    """A cache on the way may keep pictures, and programs' answers are their own."""
    for headers in (ASSET, {"Accept": JSON}, {"Accept": "*/*"}, PAGE | {"Sec-Fetch-Mode": "cors"}):
        for _ in range(2):
            assert stamps_of(inside.get("/open", headers=headers)) == []
    assert len(stamps_of(inside.get("/open", headers={"Accept": "text/html"}))) == 1


def test_a_pictures_verdict_is_kept_apart_from_a_pages(inside, relay):
    """Else one would bring a stamp, or the other none."""
    for _ in range(3):
        assert stamps_of(inside.get("/open", headers=ASSET)) == []
    assert len(stamps_of(inside.get("/open", headers=PAGE))) == 1
    assert len(relay.checks()) <= 3


def test_who_loses_stamps_passes_by_what_nginx_keeps(site, relay):
    """A program that sends the same cookie with each request is asked about as ever."""
    good, began = signed_pass("open"), time.monotonic()
    for _ in range(20):
        reply = Visitor(site.url).get("/open", headers=PAGE | {"Cookie": f"waitroom_open={good}"})
        assert len(stamps_of(reply)) == 1
    assert len(relay.checks()) <= 1 + (time.monotonic() - began)


def kept_verdicts(site):
    files = [path.read_bytes() for path in (site.folder / "verdicts").rglob("*") if path.is_file()]
    return sum(b"KEY: open;waitroom_open=" in text for text in files)


def test_what_comes_with_a_stamp_is_kept_for_those_without(site, inside):
    """A verdict with a stamp is kept only for visitors without a genuine stamp."""
    kept = kept_verdicts(site)
    inside.cookies["waitroom_now"] = stamp("open", in_s=-5)
    assert len(stamps_of(inside.get("/open", headers=PAGE))) == 1
    assert kept_verdicts(site) <= kept
    other = {"waitroom_now": stamp("other")}
    for cookies in ({"waitroom_now": forged("open", in_s=-5)}, other, {}):
        kept = kept_verdicts(site)
        visitor = Visitor(site.url, cookies=cookies | {"waitroom_open": signed_pass("open")})
        visitor.get("/open", headers=PAGE)
        assert kept_verdicts(site) == kept + 1


def test_an_old_stamp_does_not_keep_a_verdict_from_its_pictures(site, inside, relay):
    """They bring no new one."""
    inside.cookies["waitroom_now"] = stamp("open", in_s=-5)
    began = time.monotonic()
    for _ in range(20):
        assert inside.get("/open", headers=ASSET).status == 200
    assert len(relay.checks()) <= 1 + (time.monotonic() - began)


def test_a_stamp_is_forgotten_in_time(inside, relay):
    """Played again later it is worth nothing: no longer than nginx keeps a verdict."""
    inside.get("/open", headers=PAGE)
    time.sleep(VERDICT_TTL_MS / 1000)
    relay.forget()
    inside.get("/open", headers=ASSET)
    assert len(relay.checks()) == 1


@pytest.mark.parametrize(
    "value",
    [
        lambda: stamp("open")[:-1],
        lambda: stamp("full") + "x",
        lambda: forged("full"),
        lambda: re.sub(r"\.\d+\.", f".{int(time.time()) + 60}.", stamp("full")),
        lambda: stamp("full", in_s=-1),
        lambda: stamp("open"),
        lambda: stamp("full", host="elsewhere"),
        lambda: stamp("full", host=""),
        lambda: stamp("full", secret=""),
        lambda: stamp("full", secret=NginxKey.derive_from("another" * 8).secret),
        lambda: stamp("full").replace(".", ","),
        lambda: ".".join(stamp("full").split(".")[:2]),
        lambda: "." * 40,
        lambda: "",
    ],
    ids=["another's cut", "longer", "forged", "prolonged", "expired", "another room's",
         "another nginx's", "no nginx's", "no key's", "another key's", "other signs",
         "no key named", "dots", "empty"],
)  # fmt: skip
def test_a_stamp_that_is_none(site, relay, value):
    reply = Visitor(site.url, cookies={"waitroom_now": value()}).get("/full", headers=PAGE)
    assert (reply.status, reply.waits, len(relay.checks())) == (503, True, 1)


def test_a_stamp_opens_its_own_room_alone(site, relay):
    """So these tests do forge them rightly."""
    bearer = Visitor(site.url, cookies={"waitroom_now": stamp("full")})
    assert bearer.get("/full", headers=ASSET).status == 200
    assert relay.checks() == []
    assert bearer.get("/other", headers=ASSET).waits


def test_a_release_holds_against_stamps(site):
    """Whoever was inside is out before the next comes in, however many stamps they fetch."""
    first, second = Visitor(site.url), Visitor(site.url)
    for _ in range(2):
        assert first.get("/one", headers=PAGE).status == 200
    assert "waitroom_now" in first.cookies
    assert second.get("/one", headers=PAGE).waits
    passes = {"Cookie": "; ".join(f"{name}={value}" for name, value in first.cookies.items())}
    assert first.post("/_waitroom/one/leave", headers={"Accept": JSON}).status == 200
    for _ in range(100):
        again = Visitor(site.url).get("/one", headers=PAGE | passes)
        for given in stamps_of(again):
            old = passes["Cookie"].partition("; waitroom_now=")[0]
            passes = {"Cookie": f"{old}; {given.partition(';')[0]}"}
        if second.get("/one", headers=PAGE).status == 200:
            break
        time.sleep(0.1)
    assert second.get("/one", headers=PAGE).status == 200
    assert Visitor(site.url).get("/one", headers=ASSET | passes).waits


@pytest.mark.parametrize(
    "path", ["bound", "partial", "address", "path", "header", "suspended", "seat"]
)
def test_rooms_and_leases_that_give_none(site, path):
    """Visitors pass there for reasons that a stamp does not contain."""
    visitor = Visitor(site.url)
    for _ in range(3):
        reply = visitor.get(f"/{path}", headers=PAGE)
        assert (reply.status, stamps_of(reply)) == (200, [])


def test_a_pass_that_is_due_gives_none(site):
    """Neither the renewal itself nor the last seconds before it."""
    for age_s in (48, 100):
        visitor = Visitor(site.url, cookies={"waitroom_other": signed_pass("other", age_s=age_s)})
        assert stamps_of(visitor.get("/other", headers=PAGE)) == []


def test_a_stamp_does_not_lead_on_into_another_room(site, relay):
    """An internal redirect asks twice for one request; each room is asked about for itself."""
    for cookies in ({"waitroom_now": stamp("open")}, {"waitroom_open": signed_pass("open")}):
        assert Visitor(site.url, cookies=cookies).get("/lead", headers=PAGE).waits
    both = {"waitroom_now": stamp("full"), "waitroom_open": signed_pass("open")}
    relay.forget()
    Visitor(site.url, cookies=both).get("/lead", headers=PAGE)
    assert len(relay.checks()) >= 1


def test_a_signed_link_of_the_sites_own_is_no_stamp(site, relay):
    """All locations of a request share $secure_link: the site's room asks all the same."""
    md5 = hashlib.md5(b"site", usedforsecurity=False).digest()
    link = base64.urlsafe_b64encode(md5).decode().rstrip("=")
    visitor = Visitor(site.url)
    assert visitor.get("/link?md5=wrong", headers=PAGE).status == 410
    assert visitor.get(f"/link?md5={link}", headers=PAGE).waits
    assert len(relay.checks()) == 1


def test_the_log_says_admitted(site, inside, relay):
    inside.get("/open", headers=PAGE)
    inside.get("/open/by-stamp", headers=ASSET)
    log = site.folder / "states.log"
    wait_until(lambda: "/open/by-stamp" in log.read_text(), "nginx's log")
    assert "/open/by-stamp admitted" in log.read_text()
    assert len(relay.checks()) == 1


def test_the_application_sees_no_stamp(site):
    visitor = Visitor(
        site.url, cookies={"a": "1", "waitroom_now": stamp("open"), "b": "2", "waitroom_open": "x"}
    )
    assert visitor.get("/bare").json()["headers"]["Cookie"] == "a=1; b=2"


class Widened(Site):
    """One of several nginx behind a balancer, with a newer key than the replicas."""

    newest = "a secret that replicas have not heard of yet"

    def _write_nginx(self):
        super()._write_nginx()
        settings = self.folder / "waitroom" / "settings.conf"
        line = 'map "" $waitroom_stamp_binding { default my-site; }'
        assert f"# {line}" in settings.read_text()
        settings.write_text(settings.read_text().replace(f"# {line}", line))
        (self.folder / "waitroom-stamp.conf").write_text(build_key_file([SECRET, self.newest]))


@pytest.fixture(scope="module")
def widened():
    with Widened(rooms=ROOMS, locations=LOCATIONS, relay=Relay) as site:
        yield site


def test_both_keys_verify_and_any_nginx_of_the_sites_gave_the_stamp(widened):
    newest = NginxKey.derive_from(widened.newest)
    for key in (KEY, newest):
        until = int(time.time()) + 1
        md5 = compute_stamp_md5(until, "full", "my-site", key.secret)
        bearer = Visitor(widened.url, cookies={"waitroom_now": f"{md5}.{until}.{key.id}"})
        assert bearer.get("/full", headers=ASSET).status == 200
    assert widened.relays[0].checks() == []
    bearer = Visitor(widened.url, cookies={"waitroom_now": stamp("full")})
    assert bearer.get("/full", headers=ASSET).waits


def test_without_a_key_in_common_everything_is_as_without_stamps(widened):
    visitor = Visitor(widened.url, cookies={"waitroom_open": signed_pass("open")})
    widened.relays[0].forget()
    began = time.monotonic()
    for _ in range(10):
        reply = visitor.get("/open", headers=PAGE)
        assert (reply.status, stamps_of(reply)) == (200, [])
    assert len(widened.relays[0].checks()) <= 1 + (time.monotonic() - began)
    assert widened.replicas[0].output.count("unknown_nginx_key") == 1
