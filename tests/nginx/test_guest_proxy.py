"""A guest in somebody's configuration: the way to the application is as it was."""

import gzip
import time

import pytest

from sidecar.visitors.verdict_lifetime import VERDICT_TTL_MS
from tests.support.nginx_client import JSON, room_cookies
from tests.support.processes import wait_until
from tests.support.relay import Relay
from tests.support.site import Site, gated

INCLUDE = "include waitroom/server.conf;\n"
ROOMS = {"open": {"total_active_users": 1000}, "full": {"total_active_users": 0}}
BOTH = gated("/", room="open") + gated("/full", room="full")
OWN_PAGES = """
location = /own/404 { internal; return 404 "our own 404"; }
location = /own/50x { internal; return 503 "our own 50x"; }
"""
#: What people set once for all their locations, and what would be wrong for ours.
ALL_AT_ONCE = """
proxy_http_version 1.0;
proxy_buffering off;
proxy_request_buffering off;
proxy_intercept_errors on;
proxy_read_timeout 300s;
proxy_next_upstream off;
proxy_cookie_path / /own/;
proxy_cache own;
proxy_cache_key $host$request_uri;
proxy_cache_valid any 1h;
proxy_cache_lock on;
proxy_cache_use_stale error timeout updating http_500 http_503;
proxy_cache_bypass $http_pragma;
proxy_no_cache $http_pragma;
proxy_ignore_headers X-Accel-Expires Expires Cache-Control Set-Cookie Vary;
proxy_pass_request_headers on;
proxy_set_header X-Own server;
expires max;
error_page 404 /own/404;
error_page 500 502 503 504 /own/50x;
"""

SERVERS = {
    "headers": """
        proxy_set_header Host $http_host;
        proxy_set_header X-Own server;
        proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
    """
    + INCLUDE
    + BOTH,
    "intercepts": INCLUDE
    + OWN_PAGES
    + "error_page 404 /own/404; error_page 500 502 503 504 /own/50x;\n"
    + "proxy_intercept_errors on;"
    + BOTH,
    "gzip": "gzip on; gzip_min_length 1; gzip_types *; gzip_proxied any;\n" + INCLUDE + BOTH,
    "cached": INCLUDE
    + gated("/", "proxy_cache own;", "proxy_cache_valid 200 1m;",
            "proxy_ignore_headers Set-Cookie;",
            "proxy_cache_key $host$request_uri;", "add_header X-Cached $upstream_cache_status;",
            "include waitroom/headers.conf;", room="open")
    + gated("/full", "proxy_cache own;", "proxy_cache_valid any 1m;",
            "proxy_ignore_headers Set-Cookie;", room="full"),
    "filtered": "sub_filter Inside Outside; sub_filter '</body>' '<i>ours</i></body>';\n"
     "sub_filter_once off;"
    + INCLUDE
    + BOTH,
    "everything": ALL_AT_ONCE + INCLUDE + OWN_PAGES + BOTH,
}  # fmt: skip


@pytest.fixture(scope="module")
def site(stamps, tmp_path_factory):
    cache = tmp_path_factory.mktemp("cache")
    http = f"proxy_cache_path {cache}/own keys_zone=own:1m;"
    with Site(
        rooms=ROOMS, servers=SERVERS, http=http, locations="", relay=Relay, stamps=stamps
    ) as site:
        yield site


def test_headers_to_the_application(site, visit):
    """Server-level `proxy_set_header` lines reach the application, and not the sidecar."""
    site.relays[0].forget()
    headers = visit("headers").get("/").json()["headers"]
    assert (headers["Host"], headers["X-Own"]) == ("headers", "server")
    assert headers["X-Forwarded-For"] == "127.0.0.1"
    (check,) = site.relays[0].checks()
    assert "x-own" not in check


@pytest.mark.parametrize("status", [401, 403, 404, 500, 503])
def test_the_applications_own_errors_stay(visit, status):
    """Not intercepted: status and body are the application's, also 401 and 403."""
    reply = visit("headers").get(f"/status/{status}")
    assert (reply.status, reply.text) == (status, "origin's own")


@pytest.mark.parametrize(("status", "text"), [(404, "our own 404"), (500, "our own 50x")])
def test_intercepted_errors_show_the_sites_pages(visit, status, text):
    """`proxy_intercept_errors on` with the site's error_page, as ever."""
    assert visit("intercepts").get(f"/status/{status}").text == text


@pytest.mark.parametrize("status", [401, 403])
def test_an_intercepted_denial_is_no_waiting_page(visit, status):
    """An application's 401 and 403 keep status and challenge, but lose their body."""
    visitor = visit("intercepts")
    assert visitor.get("/").status == 200
    for _ in range(2):
        reply = visitor.get(f"/status/{status}")
        assert (reply.status, reply.waits) == (status, False)
        assert reply.headers["WWW-Authenticate"] == (
            'Basic realm="origin"' if status == 401 else None
        )


def test_doors_are_not_intercepted(visit):
    """A poll too many is a 429 document, an unknown room a 404 one."""
    reply = visit("intercepts", Accept=JSON).get("/_waitroom/nosuch/status")
    assert (reply.status, reply.headers["Content-Type"]) == (404, "application/problem+json")


def test_gzip(visit):
    """The site's pages are packed, and ours where nginx packs at all, so not a 503."""
    packing = {"Accept-Encoding": "gzip"}
    for path, want in (("/page", b"Inside"), ("/_waitroom/full/", b"data-room")):
        reply = visit("gzip", **packing).get(path)
        assert reply.headers["Content-Encoding"] == "gzip"
        assert want in gzip.decompress(reply.body)
    assert visit("gzip", **packing).get("/full").waits


def test_a_cached_page_is_shared_and_its_cookie_is_not(visit):
    """Two newcomers get the same page out of the site's cache, each a cookie of their own."""
    first, second = visit("cached"), visit("cached")
    replies = [first.get("/page"), second.get("/page")]
    assert [reply.headers["X-Cached"] for reply in replies] == ["MISS", "HIT"]
    assert replies[0].body == replies[1].body
    assert first.cookies["waitroom_open"] != second.cookies["waitroom_open"]
    assert first.get("/page").headers["X-Cached"] == "HIT"


def test_the_waiting_page_is_never_cached_for_the_site(site, visit):
    """A cache for all statuses holds no denial: whoever is let in later gets the site."""
    site.admin("PATCH", "/rooms/full", {"total_active_users": 0})
    assert visit("cached").get("/full/page").waits
    site.admin("PATCH", "/rooms/full", {"suspended": True})
    try:
        reply = visit("cached").get("/full/page")
        assert (reply.status, reply.waits) == (200, False)
    finally:
        site.admin("PATCH", "/rooms/full", {"suspended": False})
    assert visit("cached").get("/full/page").waits


def test_sub_filter(visit):
    """The application's pages are changed as ever."""
    assert "<h1>Outside</h1>" in visit("filtered").get("/page").text
    assert visit("filtered").get("/full").waits


def test_everything_at_once(visit):
    """The server's proxy, cache and expiry settings do not apply to the sidecar."""
    first, second = visit("everything"), visit("everything")
    for visitor in (first, second):
        assert visitor.get("/").status == 200
        assert visitor.get("/full").waits
        assert visitor.get("/_waitroom/full/status").headers["Cache-Control"] == "no-store"
    for name in ("waitroom_open", "waitroom_full"):
        assert first.cookies[name] != second.cookies[name]
    places = [each.get("/_waitroom/full/status").json()["position"] for each in (first, second)]
    assert places[0] != places[1]
    assert room_cookies(first.get("/"), "open") == []
    assert room_cookies(visit("everything").get("/"), "open") != []
    program = visit("everything", Accept=JSON)
    assert program.get("/_waitroom/nosuch/status").status == 404
    assert program.get("/full").json()["state"] == "waiting"
    (line,) = room_cookies(visit("everything").get("/_waitroom/full/"), "full")
    assert "Path=/;" in line


def test_everything_at_once_keeps_the_right_verdicts(site, visit):
    """A visitor inside is answered from memory, one who waits never is."""
    inside, waiting = visit("everything"), visit("everything")
    inside.get("/")
    waiting.get("/full")
    site.relays[0].forget()
    began = time.monotonic()
    for _ in range(20):
        assert inside.get("/", headers={"Pragma": "no-cache"}).status == 200
    assert len(site.relays[0].checks()) <= 2 + (time.monotonic() - began)
    site.relays[0].forget()
    for _ in range(5):
        assert waiting.get("/full").waits
    assert len(site.relays[0].checks()) == 5


def test_everything_at_once_without_a_sidecar(site, visit):
    """An expired verdict does not count, even if the site's cache may serve stale pages."""
    inside = visit("everything")
    for _ in range(2):
        assert inside.get("/").status == 200
    site.replicas[0].stop()
    try:
        time.sleep(VERDICT_TTL_MS / 1000 + 0.1)
        assert inside.get("/").waits
    finally:
        site.replicas[0].start()
    wait_until(lambda: inside.get("/").status == 200, "the replica's return")
