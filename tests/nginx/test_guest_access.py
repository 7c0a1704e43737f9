"""A guest in somebody's configuration: who may come in is still the site's decision."""

import base64

import pytest

from tests.support.nginx_client import JSON, room_cookies
from tests.support.site import Site, gated

INCLUDE = "include waitroom/server.conf;\n"
ROOMS = {"open": {"total_active_users": 1000}, "full": {"total_active_users": 0}}
BOTH = gated("/", room="open") + gated("/full", room="full")
BASIC = ('auth_basic "Members only";', "auth_basic_user_file {folder}/users;")
KNOWN = {"Authorization": "Basic " + base64.b64encode(b"ann:secret").decode()}
WRONG = {"Authorization": "Basic " + base64.b64encode(b"ann:wrong").decode()}


def servers(folder):
    basic = [line.format(folder=folder) for line in BASIC]
    return {
        "basic": "\n".join(basic) + INCLUDE + BOTH,
        "basic-location": INCLUDE
        + gated("/", room="open")
        + gated("/members", *basic, room="open")
        + gated("/full", *basic, room="full"),
        "denies": INCLUDE + gated("/", "deny all;", room="open") + gated("/full", room="full"),
        "denies-server": "deny 10.6.6.6;" + INCLUDE + BOTH,
        "limits": "limit_req zone=own burst=2 nodelay;" + INCLUDE + BOTH,
        "blocks-above": "if ($http_x_test = bot) { return 403; }" + INCLUDE + BOTH,
        "login": INCLUDE
        + "auth_request /login;"
        + "location = /login { internal; proxy_pass http://origin/status/401; }"
        + gated("/", room="open")
        + "location /only-login { proxy_pass http://origin; }",
        # Login and room both: the site with its login stands in front, the room behind.
        "front": """
            proxy_set_header X-Real-IP $remote_addr;
            location / {
                auth_request /login;
                proxy_pass http://behind;
            }
            location /_waitroom/ { proxy_pass http://behind; }
            location = /login { internal; proxy_pass http://origin/status/$login; }
        """,
        "behind": "listen unix:@folder@/behind.sock; set_real_ip_from unix:;\n"
        "real_ip_header X-Real-IP;\n" + INCLUDE + BOTH,
    }


@pytest.fixture(scope="module")
def site(stamps, tmp_path_factory):
    folder = tmp_path_factory.mktemp("users")
    folder.chmod(0o755)
    (folder / "users").write_text("ann:{PLAIN}secret\n")
    http = """
        limit_req_zone $http_host zone=own:1m rate=1r/m;
        set_real_ip_from 127.0.0.1;
        real_ip_header X-Test-Address;
        map $http_x_test $login { default 401; in 200; }
        upstream behind { server unix:@folder@/behind.sock; }
    """
    with Site(rooms=ROOMS, servers=servers(folder), http=http, locations="", stamps=stamps) as site:
        yield site


@pytest.mark.parametrize(("server", "path"), [("basic", "/"), ("basic-location", "/members")])
@pytest.mark.parametrize("headers", [{}, WRONG], ids=["none", "wrong"])
def test_who_has_no_password_is_asked_for_it(site, visit, server, path, headers):
    """401 with WWW-Authenticate as ever; no place is taken before."""
    before = site.count_visitors("open")
    reply = visit(server, **headers).get(path)
    assert reply.status == 401
    assert reply.headers["WWW-Authenticate"] == 'Basic realm="Members only"'
    assert reply.all("Set-Cookie") == []
    assert site.count_visitors("open") == before


@pytest.mark.parametrize(("server", "path"), [("basic", "/"), ("basic-location", "/members")])
def test_with_the_password_the_room_applies(visit, server, path):
    """In with room inside, else the waiting page; the application still gets the password."""
    reply = visit(server, **KNOWN).get(path)
    assert (reply.status, len(room_cookies(reply, "open"))) == (200, 1)
    assert reply.json()["headers"]["Authorization"] == KNOWN["Authorization"]
    denied = visit(server, **KNOWN).get("/full")
    assert (denied.status, denied.waits) == (503, True)
    assert "WWW-Authenticate" not in denied.headers
    assert visit(server, **KNOWN, Accept=JSON).get("/full").json()["room"] == "full"


def test_doors_follow_the_servers_password(visit):
    """A password for the whole server is one for the doors too; browsers send it there."""
    assert visit("basic").get("/_waitroom/full/status").status == 401
    assert visit("basic", **KNOWN).get("/_waitroom/full/status").status == 200
    assert visit("basic-location").get("/_waitroom/full/status").status == 200


def test_deny_all(site, visit):
    """403 as ever, without a place."""
    before = site.count_visitors("open")
    reply = visit("denies").get("/")
    assert (reply.status, reply.waits, reply.all("Set-Cookie")) == (403, False, [])
    assert site.count_visitors("open") == before


def test_denied_addresses(visit):
    """A server-level `deny` holds for the site, the gate and the doors."""
    for path in ("/", "/full", "/_waitroom/full/status"):
        reply = visit("denies-server", **{"X-Test-Address": "10.6.6.6"}).get(path)
        assert (reply.status, reply.waits, reply.all("Set-Cookie")) == (403, False, [])
    assert visit("denies-server", **{"X-Test-Address": "10.6.6.7"}).get("/full").waits


def test_what_stands_above_the_include_holds_for_the_doors(visit):
    """A server-level `if … return` above it refuses there too."""
    for path in ("/", "/_waitroom/full/status"):
        reply = visit("blocks-above", **{"X-Test": "bot"}).get(path)
        assert (reply.status, reply.waits) == (403, False)
        assert visit("blocks-above").get(path).status == 200


def test_limits_count_a_request_once(visit):
    """The server's limit counts visitors' requests once, and its 503 is the site's."""
    replies = [visit("limits").get("/full") for _ in range(5)]
    assert [reply.waits for reply in replies] == [True] * 3 + [False] * 2
    assert [reply.status for reply in replies] == [503] * 5


def test_an_auth_request_of_the_server_is_replaced(visit):
    """nginx has one per location: a location with a room loses the server's (see docs)."""
    assert visit("login").get("/only-login").status == 401
    assert visit("login").get("/").status == 200
    assert visit("login").get("/_waitroom/full/status").status == 200


def test_login_and_room_together(visit):
    """A login server before a room server: both check, and the visitor's address arrives."""
    assert visit("front").get("/").status == 401
    member = visit("front", **{"X-Test": "in", "X-Test-Address": "10.7.7.7"})
    assert member.get("/").status == 200
    assert member.get("/full").waits
    status = member.get("/_waitroom/full/status?client=1").json()
    assert (status["state"], status["client"]) == ("waiting", "10.7.7.7")
