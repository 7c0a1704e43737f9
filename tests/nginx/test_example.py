"""The example and the includes: nginx takes them without a word, and they do what they say."""

import re
import subprocess

import pytest

from sidecar.gate.nginx_key import build_key_file
from tests.support.nginx_client import JSON, Visitor, room_cookies
from tests.support.processes import free_port, wait_until
from tests.support.site import ROOT, SECRET, Site, copy_includes, nginx_binary

EXAMPLE = (ROOT / "nginx" / "example.conf").read_text()
DOCS = "".join(page.read_text() for page in sorted((ROOT / "docs").glob("nginx*.md")))
INCLUDES = sorted(path.name for path in (ROOT / "nginx" / "waitroom").glob("*.conf"))
LOCATION = "location / { set $waitroom_room shop; include waitroom/location.conf; %s return 204; }"

SERVER = "include waitroom/http.conf; server {{ listen @; {} }}"
IN_LOCATION = (
    "errors.conf", "headers.conf", "release.conf", "proxy.conf", "visitor.conf", "strict-path.conf",
    "preflight.conf",
)  # fmt: skip

#: Each include at its level, with no more around it than it needs.
ALONE = {
    "settings.conf": "include waitroom/http.conf;",  # which includes it, and names what it says
    "http.conf": "include waitroom/http.conf;",
    "waiting.conf": "include waitroom/http.conf;",  # which includes it
    "refused.conf": "include waitroom/http.conf;",  # which includes it
    "server.conf": SERVER.format("include waitroom/server.conf;"),
    "location.conf": SERVER.format(LOCATION % ""),
    "limit.conf": SERVER.format(
        "location / { set $waitroom_limit api; include waitroom/limit.conf; return 204; }"
    ),
    "permit.conf": SERVER.format(
        "location / { set $waitroom_target images; include waitroom/permit.conf; return 204; }"
    ),
    "stamp.conf": SERVER.format(f"location / {{ {build_key_file([SECRET, SECRET[::-1]])} }}"),
    "own-page.conf": SERVER.format("location / { include waitroom/own-page.conf; }"),
    "page.conf": SERVER.format("location / { include waitroom/page.conf; }"),
    "health.conf": SERVER.format("location / { include waitroom/health.conf; }"),
    "site-headers.conf": SERVER.format("location / { include waitroom/site-headers.conf; }"),
    **{name: SERVER.format(LOCATION % f"include waitroom/{name};") for name in IN_LOCATION},
}

#: In one file as people have it: several servers, rooms in locations of every kind.
CROWDED = """
include waitroom/http.conf;
server {
    listen @;
    server_name a.test;
    include waitroom/server.conf;
    location / {
        set $waitroom_room a;
        include waitroom/location.conf;
        proxy_pass http://127.0.0.1:1;
        location ~ \\.php$ {
            set $waitroom_room b;
            include waitroom/location.conf;
            include waitroom/errors.conf;
            include waitroom/headers.conf;
            fastcgi_pass 127.0.0.1:1;
        }
    }
    location @named { set $waitroom_room a; include waitroom/location.conf; return 204; }
}
server {
    listen @;
    server_name b.test;
    set $waitroom_room whole-server;
    include waitroom/location.conf;
    include waitroom/server.conf;
    location / { root /nowhere; }
}
"""


@pytest.fixture
def check(tmp_path):
    """Return a function that runs `nginx -t` with lines at http level, and returns its output."""

    def ask(lines: str, *, is_right: bool = True) -> str:
        copy_includes(tmp_path)
        (tmp_path / "nginx.conf").write_text(
            f"pid {tmp_path}/pid; error_log stderr info; events {{}}\n"
            f"http {{ access_log off; {lines}\n}}".replace(
                "/var/log/nginx/", f"{tmp_path}/"
            ).replace("listen @", f"listen 127.0.0.1:{free_port()}")
        )
        command = [nginx_binary(), "-t", "-p", str(tmp_path), "-c", str(tmp_path / "nginx.conf")]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
        # The compiled-in error log is opened before ours is known.
        said = re.sub(r"nginx: \[alert\] could not open error log file.*\n", "", done.stderr)
        assert (done.returncode == 0) == is_right, said
        return said

    return ask


def silent(said: str) -> bool:
    return not re.search(r"\[(warn|error|alert|crit|emerg|notice)\]", said)


WHOLE = {"the example": EXAMPLE.replace("listen 80;", "listen @;"), "a crowded file": CROWDED}


@pytest.mark.parametrize("name", [*INCLUDES, *WHOLE])
def test_nginx_takes_it(check, name):
    """nginx accepts each include at its level, and all of them together, without a warning."""
    assert silent(check({**ALONE, **WHOLE}[name]))


WITHOUT_HTTP = (
    "server { listen @; location / { set $waitroom_room shop; include waitroom/location.conf; } }"
)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("include waitroom/http.conf; include waitroom/http.conf;",
         'duplicate upstream "waitroom"'),
        (SERVER.format("include waitroom/server.conf; include waitroom/server.conf;"),
         'duplicate location "/_waitroom/"'),
        ("server { listen @; include waitroom/server.conf; }",
         'host not found in upstream "waitroom"'),
        (WITHOUT_HTTP, 'unknown "waitroom_stamped" variable'),
        ("variables_hash_max_size 4096; include waitroom/http.conf;",
         '"variables_hash_max_size" directive is duplicate'),
    ],
)  # fmt: skip
def test_what_nginx_says_of_a_mistake_stands_in_the_docs(check, lines, words):
    assert words in check(lines, is_right=False)
    assert f"`{words}`" in DOCS


#: Variables that nginx has since 1.22.
NEWER = (
    "http3", "is_request_port", "proxy_internal_connection", "request_port", "ssl_client_sigalg",
    "ssl_curve", "ssl_ech_outer_server_name", "ssl_ech_status", "ssl_sigalg",
)  # fmt: skip


def test_there_is_room_for_more_variables(check):
    """Those of newer versions of nginx, and forty of the site's own: still no warning."""
    names = {*NEWER, *(f"{'site' * (1 + number % 4)}_{number}" for number in range(40))}
    more = "".join(f'map "" ${name} {{ default ""; }}\n' for name in sorted(names))
    assert silent(check(more + CROWDED))


def test_the_page_needs_no_other_file(check):
    """Every file is included by another one or by the reader."""
    everything = "".join((ROOT / "nginx" / "waitroom" / name).read_text() for name in INCLUDES)
    everything += build_key_file([SECRET])
    for name in INCLUDES:
        assert f"include waitroom/{name};" in everything + EXAMPLE, name
        assert name in DOCS, name


@pytest.mark.parametrize(
    "switch",
    ["room", "mode", "on_failure", "site_cookie", "static", "scheme",
     "limit", "limit_key", "limit_on_failure", "fence", "target", "job",
     "stamp_binding"],
)  # fmt: skip
def test_every_switch_is_documented(switch):
    """What a reader may set or use stands on one of nginx' pages."""
    assert f"$waitroom_{switch}" in DOCS


@pytest.fixture(scope="module")
def site():
    lines = EXAMPLE.replace("include waitroom/http.conf;", "")
    lines = lines.replace("listen 80;", "listen 127.0.0.1:@port@;")
    lines = lines.replace("127.0.0.1:9000", "127.0.0.1:@origin@")
    lines = lines.replace("192.0.2.0/24", "127.0.0.1")
    # Its format is defined by the include, which the site has further below.
    lines = re.sub(r"access_log /\S+ waitroom_access;", "", lines)
    rooms = {"shop": {"total_active_users": 100}, "tickets": {"total_active_users": 0}}
    leases = {"seat": {"term": 60}}
    limits = {"search": {"algorithm": "sliding_window", "limit": 2, "window": 60}}
    with Site(rooms=rooms, leases=leases, limits=limits, http=lines, locations="") as site:
        yield site


@pytest.fixture
def visitor(site):
    return Visitor(site.url, {"Host": "shop.example"})


@pytest.mark.parametrize("path", ["/", "/catalogue/1", "/checkout/done"])
def test_the_rooms_of_the_example(visitor, path):
    """A newcomer is in, with one cookie."""
    reply = visitor.get(path)
    assert (reply.status, len(room_cookies(reply, "shop"))) == (200, 1)


@pytest.mark.parametrize("path", ["/health", "/webhooks/x", "/staff/1"])
def test_what_has_no_room_in_the_example(visitor, path):
    """Health checks, webhooks and staff pass without a cookie."""
    reply = visitor.get(path)
    assert (reply.status, room_cookies(reply, "shop")) == (200, [])


def test_the_application_of_the_example_does_not_see_our_cookie(visitor):
    """Only its own."""
    visitor.get("/")
    assert "waitroom_shop" in visitor.cookies
    assert visitor.get("/").json()["headers"]["Cookie"] == "site=1"


def test_the_api_of_the_example(site, visitor):
    """Its own headers and ours, and numbers for those who wait."""
    reply = visitor.get("/api/x", headers={"Accept": JSON})
    assert reply.headers["X-Robots-Tag"] == "noindex"
    assert len(room_cookies(reply, "shop")) == 1


def test_the_api_for_pages_on_another_host(site):
    """They may read what the room answers as well as what the API does: each header once."""
    app = "https://app.shop.example"
    of_app = {"Host": "api.shop.example", "Origin": app, "Accept": JSON}
    preflight = Visitor(site.url, {**of_app, "Access-Control-Request-Method": "POST"})
    replies = [Visitor(site.url, of_app).get("/x"), preflight.send("OPTIONS", "/x")]
    site.admin("PATCH", "/rooms/shop", {"total_active_users": 0})
    try:
        caller = Visitor(site.url, of_app)
        replies.append(waiting := caller.get("/x"))
        replies.append(caller.post(waiting.json()["join_url"]))
        replies.append(caller.get(waiting.json()["status_url"]))
    finally:
        site.admin("PATCH", "/rooms/shop", {"total_active_users": None})
    assert [reply.status for reply in replies] == [200, 204, 503, 200, 200]
    for reply in replies:
        assert reply.all("Access-Control-Allow-Origin") == [app]
        assert reply.all("Access-Control-Allow-Credentials") == ["true"]


def test_the_other_room_of_the_example(visitor):
    """Its page has an address of its own."""
    reply = visitor.get("/tickets/1?a=b")
    assert (reply.status, reply.headers["Location"]) == (
        302,
        "/_waitroom/tickets/?next=/tickets/1?a=b",
    )
    assert visitor.get(reply.headers["Location"]).waits


def test_the_seats_of_the_example(site, visitor):
    """One holder with a fencing number; the booked page frees the seat; names are valid."""
    fence = visitor.get("/seats/7/plan").json()["headers"]["X-Fence"]
    other = Visitor(site.url, {"Host": "shop.example"})
    assert other.get("/seats/7/plan").waits
    assert other.get("/seats/8/plan", headers={"X-Fence": "1"}).json()["headers"]["X-Fence"] > fence
    assert visitor.get("/seats/7/booked").status == 200
    wait_until(lambda: other.get("/seats/7/plan").status == 200, "the seat")
    assert other.post("/_waitroom/seat~8/join", headers={"Accept": JSON}).status == 200
    assert other.post("/_waitroom/seat~08/join").status == 404
    assert "X-Fence" not in visitor.get("/", headers={"X-Fence": "9"}).json()["headers"]


def test_the_limit_of_the_example(visitor):
    """Two calls, and no third."""
    assert [visitor.get("/api/search?q=x").status for _ in range(3)] == [200, 200, 429]
