"""A guest in somebody's configuration: what the site had set is still there.

Here headers, error pages and rewrites; test_guest_access.py has who may come in, and
test_guest_proxy.py what happens on the way to the application.
"""

import pytest

from tests.support.nginx_client import HTML, JSON, room_cookies
from tests.support.site import Site, gated

HSTS = 'add_header Strict-Transport-Security "max-age=63072000" always;'
INCLUDE = "include waitroom/server.conf;\n"
#: As many people have it, with texts in place of files.
PAGES = """
error_page 404 /own/404;
error_page 500 502 503 504 /own/50x;
location = /own/404 { internal; default_type text/html; return 404 "our own 404"; }
location = /own/50x { internal; default_type text/html; return 503 "our own 50x"; }
location = /own/401 { internal; default_type text/html; return 401 "our own 401"; }
location = /own/403 { internal; default_type text/html; return 403 "our own 403"; }
location = /broken { return 502; }
location = /closed { deny all; }
"""
BOTH = gated("/", room="open") + gated("/full", room="full")

SERVERS = {
    "headers": HSTS
    + INCLUDE
    + BOTH
    + gated("/own", "add_header X-Own yes;", "include waitroom/headers.conf;", HSTS, room="open")
    + gated("/forgot", "add_header X-Own yes;", room="open")
    + "location = /plain { return 200 plain; }",
    "policy": "add_header Content-Security-Policy \"default-src 'self'\" always;" + INCLUDE + BOTH,
    "caching": "expires 1h; etag off;\n" + INCLUDE + BOTH,
    "pages": INCLUDE + PAGES + BOTH,
    "pages-below": PAGES + INCLUDE + BOTH,
    "recursive": "recursive_error_pages on;\n" + INCLUDE + PAGES + BOTH,
    # Own pages for 401 and 403, so ours only where a room is.
    "own-denials": "error_page 401 /own/401;\nerror_page 403 /own/403;\n"
    + INCLUDE
    + PAGES
    + gated("/", "include waitroom/errors.conf;", "error_page 404 /own/404;",
            "proxy_intercept_errors on;", room="open")
    + gated("/full", "include waitroom/errors.conf;", room="full"),
    # Own error_page in the location: ours are switched off, and included again.
    "own-location": INCLUDE
    + PAGES
    + gated("/", "error_page 404 /own/404;", "include waitroom/errors.conf;",
            "proxy_intercept_errors on;", room="open")
    + gated("/full", "error_page 404 /own/404;", "include waitroom/errors.conf;", room="full"),
    "rewrites": INCLUDE
    + """
    if ($http_x_test = www) { return 301 http://rewrites$request_uri; }
    rewrite ^/old/(.*)$ /new/$1 permanent;
    rewrite ^/inside/(.*)$ /new/$1 last;
    set $own kept;
    """
    + gated("/", "rewrite ^/location/(.*)$ /new/$1 last;", "rewrite ^/stay/(.*)$ /new/$1 break;",
            "proxy_set_header X-Own $own;", room="open")
    + gated("/full", "rewrite ^/full/old/(.*)$ /full/new/$1 last;", room="full"),
    # A front controller at server level, and a room for the whole server.
    "front": INCLUDE
    + "set $waitroom_room full;\nrewrite ^/(?!index)(.*)$ /index?q=$1 last;\n"
    + "location /index { include waitroom/location.conf; proxy_pass http://origin; }",
    "front-open": INCLUDE
    + "set $waitroom_room full;\nrewrite ^/(?!index)(.*)$ /index?q=$1 last;\n"
    + gated("/index", room="open"),
}  # fmt: skip


@pytest.fixture(scope="module")
def site(stamps):
    rooms = {"open": {"total_active_users": 1000}, "full": {"total_active_users": 0}}
    with Site(rooms=rooms, servers=SERVERS, locations="", stamps=stamps) as site:
        yield site


def test_headers_of_the_server_stay(visit):
    """HSTS is on the site's pages, on the waiting page, its doors and its assets."""
    for path in ("/", "/full", "/plain", "/_waitroom/full/status", "/_waitroom/static/waiting.css"):
        reply = visit("headers").get(path)
        assert reply.all("Strict-Transport-Security") == ["max-age=63072000"], path


def test_a_location_with_headers_of_its_own(visit):
    """It needs our one line again, and has then both."""
    reply = visit("headers").get("/own")
    assert (reply.headers["X-Own"], len(room_cookies(reply, "open"))) == ("yes", 1)
    assert reply.headers["Strict-Transport-Security"]
    assert room_cookies(visit("headers").get("/forgot"), "open") == []


def test_other_answers_get_nothing_of_ours(visit):
    """No header is added where no cookie is given."""
    reply = visit("headers").get("/plain")
    assert {name.lower() for name in reply.headers} == {
        "server", "date", "content-type", "content-length", "connection",
        "strict-transport-security",
    }  # fmt: skip


def test_a_policy_of_the_site_applies_too(visit):
    """Both policies are sent, and a browser obeys both: 'self' is enough for our page."""
    policies = visit("policy").get("/full").all("Content-Security-Policy")
    assert len(policies) == 2
    assert "default-src 'self'" in policies


def test_expires_of_the_server_does_not_reach_ours(visit):
    """The site's pages are kept for an hour, neither the waiting page nor its doors are."""
    inside = visit("caching")
    inside.get("/")
    assert "max-age=3600" in inside.get("/").all("Cache-Control")
    for path in ("/full", "/_waitroom/full/", "/_waitroom/full/status"):
        reply = visit("caching").get(path)
        assert (reply.all("Cache-Control"), reply.headers["Expires"]) == (["no-store"], None), path


@pytest.mark.parametrize("server", ["pages", "pages-below", "recursive"])
def test_error_pages_of_the_server_stay(visit, server):
    """The site's own 404, 50x and `deny all` stay, beside the waiting page."""
    visitor = visit(server)
    denied = visitor.get("/closed")
    assert (denied.status, denied.waits) == (403, False)
    assert visitor.get("/broken").text == "our own 50x"
    assert visitor.get("/_waitroom/internal/x").text == "our own 404"
    assert visitor.get("/").status == 200
    assert (visitor.get("/full").status, visitor.get("/full").waits) == (503, True)
    assert visitor.get("/full", headers={"Accept": JSON}).json()["room"] == "full"


def test_own_pages_for_401_and_403(visit):
    """Before our include they win at server level; where a room is, errors.conf takes over."""
    visitor = visit("own-denials")
    assert (visitor.get("/closed").status, visitor.get("/closed").text) == (403, "our own 403")
    assert visitor.get("/full").waits
    assert visitor.get("/status/404").text == "our own 404"
    assert visitor.get("/status/404").status == 404


def test_a_location_with_error_pages_of_its_own(visit):
    """It needs our one line again, and has then both."""
    visitor = visit("own-location")
    assert visitor.get("/status/404").text == "our own 404"
    assert visitor.get("/full").waits


def test_rewrites_of_the_server(site, visit):
    """Redirects, another host's name and internal rewrites work, before any check."""
    away = visit("rewrites").get("/old/a?b=1")
    assert (away.status, away.headers["Location"]) == (
        301,
        f"http://rewrites:{site.port}/new/a?b=1",
    )
    assert away.all("Set-Cookie") == []
    www = visit("rewrites", **{"X-Test": "www"}).get("/x?y=1")
    assert (www.status, www.headers["Location"]) == (301, "http://rewrites/x?y=1")
    inside = visit("rewrites").get("/inside/a?b=1")
    assert inside.json()["path"] == "/new/a?b=1"
    assert visit("rewrites").get("/x").json()["headers"]["X-Own"] == "kept"


@pytest.mark.parametrize("path", ["/location/a?b=1", "/stay/a?b=1"])
def test_rewrites_of_the_location(visit, path):
    """`last` and `break` beside our include are followed, and the room is asked."""
    reply = visit("rewrites").get(path)
    assert reply.json()["path"] == "/new/a?b=1"
    assert len(room_cookies(reply, "open")) == 1


def test_a_rewritten_address_waits_at_the_visitors(visit):
    """The page knows the address that the visitor asked for, not the rewritten one."""
    assert visit("rewrites").get("/full/old/a?b=1").data("next") == "/full/old/a?b=1"


def test_a_front_controller_does_not_catch_the_doors(visit):
    """A rewrite of all addresses leaves our endpoints alone, and the server's room applies."""
    visitor = visit("front", Accept=HTML)
    reply = visitor.get("/a/b")
    assert (reply.status, reply.data("room")) == (503, "full")
    assert visitor.get("/_waitroom/full/status").json()["state"] == "waiting"
    assert visitor.get("/_waitroom/static/waiting.js").status == 200
    inside = visit("front-open").get("/a/b")
    assert inside.json()["path"] == "/index?q=a/b"
    assert len(room_cookies(inside, "open")) == 1
