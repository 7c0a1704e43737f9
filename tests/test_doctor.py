"""The doctor, sent to installations of which each lacks something else.

One nginx has them all: a location or a server block for each mistake.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import urllib.request

import pytest
from click.testing import CliRunner
from tests.processes import free_port, wait_until
from tests.site import SECRET, Site

from sidecar.cli import main
from sidecar.doctor import Options, diagnose
from sidecar.doctor.finding import Finding, Level

GATED = "set $waitroom_room shop; include waitroom/location.conf; proxy_pass http://origin;"
RIGHT = f"include waitroom/server.conf; location / {{ {GATED} }}"

ROOMS = {
    "shop": {"total_active_users": 100_000},
    "waits": {"total_active_users": 0},
    "full": {"total_active_users": 0, "max_waiting": 0},
    "closed": {"total_active_users": 0, "queueing_method": "reject"},
    "open": {"total_active_users": 1, "suspended": True},
}

LOCATIONS = """
location / { set $waitroom_room shop; include waitroom/location.conf; proxy_pass http://origin; }
location /waits { set $waitroom_room waits; include waitroom/location.conf; proxy_pass http://origin; }
location /full { set $waitroom_room full; include waitroom/location.conf; proxy_pass http://origin; }
location /closed { set $waitroom_room closed; include waitroom/location.conf; proxy_pass http://origin; }
location /open { set $waitroom_room open; include waitroom/location.conf; proxy_pass http://origin; }
location /moved { return 302 /page; }
location /elsewhere {
    set $waitroom_room waits;
    set $waitroom_mode redirect;
    include waitroom/location.conf;
    proxy_pass http://origin;
}
location /no-gate { proxy_pass http://origin; }
location /unknown { set $waitroom_room shpo; include waitroom/location.conf; proxy_pass http://origin; }
location /no-headers {
    set $waitroom_room shop;
    include waitroom/location.conf;
    add_header X-Frame-Options DENY;
    proxy_pass http://origin;
}
location /no-errors {
    set $waitroom_room shop;
    include waitroom/location.conf;
    error_page 404 /404.html;
    proxy_pass http://origin;
}
location /password {
    auth_basic staging;
    auth_basic_user_file htpasswd;
    set $waitroom_room shop;
    include waitroom/location.conf;
    proxy_pass http://origin;
}
"""

#: Server blocks by name. [name] is the address of another; ADDRESS is not loopback.
SERVERS = {
    "right": f"listen 127.0.0.1:PORT; {RIGHT}",
    "tls": f"listen 127.0.0.1:PORT ssl; {RIGHT}",
    "no-include": "listen 127.0.0.1:PORT; location / { proxy_pass http://origin; }",
    "no-server-conf": f"listen 127.0.0.1:PORT; location / {{ {GATED} }}",
    "odd-verdict": f"listen 127.0.0.1:PORT; rewrite ^/_waitroom/ /status/404 break; {RIGHT}",
    "forbidden": f"listen 127.0.0.1:PORT; if ($uri ~ ^/_waitroom/) {{ return 403; }} {RIGHT}",
    "no-static": f"listen 127.0.0.1:PORT; set $waitroom_static /nowhere; {RIGHT}",
    "secure": f"listen 127.0.0.1:PORT; set $waitroom_scheme https; {RIGHT}",
    "own-401": f"listen 127.0.0.1:PORT; error_page 401 /login; {RIGHT}",
    "policy": f"listen 127.0.0.1:PORT; {RIGHT} add_header Content-Security-Policy "
              "\"default-src https://cdn.example; style-src 'self'\" always;",
    "good-policy": f"listen 127.0.0.1:PORT; {RIGHT} add_header Content-Security-Policy "
                   "\"default-src 'self' https://cdn.example\" always;",
    "no-post": "listen 127.0.0.1:PORT; if ($request_method = POST) { return 405; } " + RIGHT,
    "trusting": "listen 127.0.0.1:PORT; set_real_ip_from 127.0.0.1; "
                f"real_ip_header X-Forwarded-For; {RIGHT}",
    "ops": f"listen 127.0.0.1:PORT; {RIGHT} location /metrics {{ proxy_pass OPS; }} "
           "location /admin/ { proxy_pass OPS; }",
    # What stands before nginx.
    "tls-balancer": "listen 127.0.0.1:PORT ssl; location / { proxy_pass [right]; }",
    "balancer": "listen ADDRESS:PORT; location / { proxy_pass [right]; }",
    "careless-cache": "listen 127.0.0.1:PORT; location / { proxy_cache pages; "
                      "proxy_cache_valid any 1m; proxy_ignore_headers Set-Cookie Cache-Control; "
                      "add_header X-Cache-Status $upstream_cache_status always; proxy_pass [right]; }",
    "public": "listen 127.0.0.1:PORT; location / { proxy_pass [right]; "
              "proxy_hide_header Cache-Control; add_header Cache-Control \"public, max-age=60\"; }",
    "cookie-flags": "listen 127.0.0.1:PORT; location / { proxy_pass [right]; "
                    "proxy_cookie_flags ~ nohttponly samesite=none; proxy_cookie_path / /shop; }",
    "cookie-drop": "listen 127.0.0.1:PORT; location / { proxy_pass [right]; "
                   "proxy_set_header Cookie \"\"; } location /_waitroom/ { proxy_pass [right]; }",
    # The sidecar's own ports, where everybody reaches them.
    "outside": f"listen ADDRESS:PORT; {RIGHT}",
    "open-ops": "listen ADDRESS:PORT; location / { proxy_pass OPS; }",
    "open-edge": "listen ADDRESS:PORT; location / { proxy_pass EDGE; }",
}  # fmt: skip


class Ward(Site):
    """A site with every mistake, each in a place of its own."""

    def _write_nginx(self) -> None:
        self.ports = {name: free_port() for name in SERVERS}
        key, certificate = self.folder / "key.pem", self.folder / "certificate.pem"
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj",
             "/CN=localhost", "-keyout", str(key), "-out", str(certificate)],
            check=True, capture_output=True,
        )  # fmt: skip
        (self.folder / "htpasswd").write_text("tester:{PLAIN}secret\n")
        blocks = [
            f"ssl_certificate {certificate}; ssl_certificate_key {key};",
            f"proxy_cache_path {self.folder}/pages keys_zone=pages:1m;",
        ]
        for name, text in SERVERS.items():
            block = text.replace("PORT", str(self.ports[name])).replace("ADDRESS", own_address())
            block = block.replace("OPS", self.ops[0]).replace("EDGE", self.edges[0])
            for other, port in self.ports.items():
                block = block.replace(f"[{other}]", f"http://127.0.0.1:{port}")
            blocks.append(f"server {{ {block} }}")
        self._http = "\n".join(blocks)
        super()._write_nginx()

    def at(self, name: str) -> str:
        scheme = "https" if name.startswith("tls") else "http"
        host = own_address() if "ADDRESS" in SERVERS[name] else "127.0.0.1"
        return f"{scheme}://{host}:{self.ports[name]}/page"


def own_address() -> str:
    """An address of this machine that is not loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


needs_network = pytest.mark.skipif(
    own_address() == "127.0.0.1", reason="this machine has no address but loopback"
)


@pytest.fixture(scope="module")
def ward():
    with Ward(rooms=ROOMS, locations=LOCATIONS) as site:
        yield site


async def examine(address: str, **options) -> list[Finding]:
    options = {"ops_port": free_port(), "edge_port": free_port(), **options}
    return await diagnose(address, Options(**options))


def bad(findings: list[Finding], level: Level = Level.PROBLEM) -> list[str]:
    return [f"{found.what} -> {found.fix}" for found in findings if found.level is level]


def said(findings: list[Finding]) -> str:
    return "\n".join(found.what for found in findings)


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/page", "room 'shop'; this visit was let in"),
        ("/waits", "room 'waits'; this visit waited as number 1"),
        ("/full", "its line is full"),
        ("/closed", "it lets nobody new in"),
        ("/elsewhere", "this visit was asked to wait"),
    ],
)
async def test_a_right_installation_is_right(ward, path, words):
    """Nothing to complain of, whether the visitor is let in, waits or is refused."""
    findings = await examine(ward.url + path)
    assert {found.level for found in findings} == {Level.OK}, findings
    assert words in said(findings)


async def test_the_doctor_holds_no_place(ward):
    """After two visits there is one place less for nobody."""
    before = ward.room("waits")["waiting"]
    findings = await examine(f"{ward.url}/waits")
    assert ward.room("waits")["waiting"] == before
    assert "the doctor has left again" in said(findings)


async def test_redirects_within_the_site_are_followed(ward):
    findings = await examine(f"{ward.url}/moved")
    assert not bad(findings)
    assert f"leads to {ward.url}/page" in said(findings)


@pytest.mark.parametrize(
    ("where", "what", "fix"),
    [
        ("/no-gate", "no waiting room at this address", "include waitroom/location.conf;"),
        ("/unknown", "a room 'shpo' that the sidecar does not know", "set $waitroom_room"),
        ("/no-headers", "its cookie does not arrive", "include waitroom/headers.conf;"),
        ("/no-errors", "bare 401", "include waitroom/errors.conf;"),
        ("/password", "asks for a password", "http://user:password@site/"),
        ("no-server-conf", "answered by the site itself", "include waitroom/server.conf;"),
        ("odd-verdict", "nginx answers 500", "rewrite"),
        ("forbidden", "refuses visitors at /_waitroom/ (403)", "deny"),
        ("no-static", "lacks its files: waiting.js (404)", "$waitroom_static"),
        ("no-static", "the waiting page is empty", "$waitroom_static"),
        ("secure", "has Secure, but the site is on http", "$waitroom_scheme"),
        ("own-401", "instead of the waiting page", "include waitroom/errors.conf;"),
        ("policy", "Content-Security-Policy blocks the waiting page (script-src)", "'self'"),
        ("policy", "Content-Security-Policy blocks the waiting page (connect-src)", "'self'"),
        ("ops", "/metrics of the sidecar is open", "allow"),
        ("ops", "/admin/rooms of the sidecar is open", "allow"),
        ("cookie-drop", "does not know its visitor again", "drops cookies"),
    ],
)
async def test_a_mistake_is_found_and_its_remedy_named(ward, where, what, fix):
    address = ward.url + where if where.startswith("/") else ward.at(where)
    problems = bad(await examine(address))
    assert any(what in problem and fix in problem for problem in problems), problems


@pytest.mark.parametrize(
    ("where", "what", "fix"),
    [
        ("/open", "room 'open' lets everybody through", "suspended"),
        ("/status/404", "the site itself answers 404", "a page that exists"),
        ("no-post", "could not give up its place (405)", "limit_except"),
        ("trusting", "nginx believes X-Forwarded-For", "set_real_ip_from"),
        ("tls-balancer", "the cookie lacks Secure", "$http_x_forwarded_proto"),
        ("public", "may be kept by caches (Cache-Control: public, max-age=60)", "private"),
        ("cookie-flags", "without HttpOnly, with SameSite=None, with Path=/shop", "proxy_cookie"),
    ],
)
async def test_what_is_doubtful_is_a_warning(ward, where, what, fix):
    address = ward.url + where if where.startswith("/") else ward.at(where)
    findings = await examine(address, verify=False, room="open" if where == "/open" else None)
    assert not bad(findings)
    warnings = bad(findings, Level.WARNING)
    assert any(what in warning and fix in warning for warning in warnings), warnings


async def test_a_cache_that_keeps_what_is_one_visitors_is_found(ward):
    """Whether the one before was let in, or had to wait."""
    address = ward.at("careless-cache")
    read(address)
    assert "two visitors were given the same cookie" in bad(await examine(address))[0]
    read(f"{address}/first", {"Accept": "text/html", "Sec-Purpose": "prefetch"})
    problems = bad(await examine(f"{address}/first"))
    assert any("the waiting page came from a cache" in problem for problem in problems)


async def test_a_site_without_any_include_lacks_both(ward):
    """Who has installed nothing is told of the server's line and of the location's."""
    problems = bad(await examine(ward.at("no-include")))
    assert len(problems) == 2
    assert "include waitroom/server.conf;" in problems[0]
    assert "include waitroom/location.conf;" in problems[1]


async def test_a_policy_that_allows_ours_is_no_problem(ward):
    assert not bad(await examine(ward.at("good-policy")))


async def test_an_untrusted_certificate_is_said_and_can_be_passed_over(ward):
    (problem,) = bad(await examine(ward.at("tls")))
    assert "its certificate is not trusted" in problem
    assert "--insecure" in problem
    findings = await examine(ward.at("tls"), verify=False)
    assert {found.level for found in findings} == {Level.OK}
    assert "Path=/, Secure" in said(findings)


async def test_a_password_in_the_address_leads_past_the_password(ward):
    address = ward.url.replace("http://", "http://tester:secret@")
    findings = await examine(f"{address}/password")
    assert not bad(findings)
    assert "secret" not in said(findings)


async def test_a_named_room_that_is_not_the_pages_is_said(ward):
    findings = await examine(f"{ward.url}/page", room="waits")
    assert "in room 'shop', not in 'waits'" in bad(findings, Level.WARNING)[0]
    problems = bad(await examine(f"{ward.url}/page", room="nobody"))
    assert "the sidecar knows no room 'nobody'" in problems[0]


@needs_network
async def test_ports_that_are_open_to_the_world_are_problems(ward):
    ports = {"ops_port": ward.ports["open-ops"], "edge_port": ward.ports["open-edge"]}
    findings = await examine(ward.at("outside"), **ports)
    problems = bad(findings)
    assert f"ops port {ports['ops_port']} is open to the outside" in problems[0]
    assert f"edge port {ports['edge_port']} is open to the outside" in problems[1]
    assert "plain http" in bad(findings, Level.WARNING)[0]


async def test_an_ops_port_on_this_machine_is_as_it_should_be(ward):
    ops_port = int(ward.ops[0].rpartition(":")[2])
    findings = await examine(f"{ward.url}/page", ops_port=ops_port)
    assert not bad(findings)
    assert f"the ops port {ops_port} answers on this machine" in said(findings)


@needs_network
async def test_a_balancers_address_taken_for_the_visitors_is_a_warning(ward):
    warnings = bad(await examine(ward.at("balancer")), Level.WARNING)
    assert any("told that we are 127.0.0.1" in w and "set_real_ip_from" in w for w in warnings)


async def test_the_address_is_told_to_who_asks_for_it_only(ward):
    """The visitor's own, and only with ?client=1."""
    address = f"{ward.url}/_waitroom/shop/status"
    with urllib.request.urlopen(address) as reply:
        assert "client" not in json.load(reply)
    with urllib.request.urlopen(f"{address}?client=1") as reply:
        assert json.load(reply)["client"] == "127.0.0.1"


def test_the_command_prints_a_line_a_finding_and_says_by_its_status(ward):
    """Exit 0 when there is no problem, warnings or not; 1 otherwise."""
    ports = ["--ops-port", str(free_port()), "--edge-port", str(free_port())]
    right = CliRunner().invoke(main, ["doctor", f"{ward.url}/page", *ports])
    assert right.exit_code == 0, right.output
    assert right.output.startswith("ok       the sidecar answers")
    assert right.output.endswith("Everything is right.\n")
    wrong = CliRunner().invoke(main, ["doctor", f"{ward.url}/no-gate", *ports])
    assert wrong.exit_code == 1
    assert "problem  no waiting room at this address" in wrong.output
    assert "         -> In the page's location write" in wrong.output
    as_json = CliRunner().invoke(main, ["doctor", f"{ward.url}/no-gate", "--json", *ports])
    document = json.loads(as_json.output)
    assert document["problems"] == 1
    assert {"level", "what", "fix"} == set(document["findings"][0])


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("127.0.0.1:{port}", "does not answer: connection refused"),
        ("http://nobody.invalid/", "does not answer: there is no such host"),
        ("https://127.0.0.1:{http}/", "does not answer: TLS failed"),
    ],
)
def test_who_does_not_answer_gets_one_line(ward, address, words):
    address = address.format(port=free_port(), http=ward.port)
    done = CliRunner().invoke(main, ["doctor", address])
    assert done.exit_code == 1
    assert words in done.output
    assert done.output.count("problem  ") == 1


def test_what_is_no_address_is_a_mistake_of_usage():
    done = CliRunner().invoke(main, ["doctor", "ftp://shop.example/"])
    assert done.exit_code == 2
    assert "is no address of a page" in done.output


async def test_servers_that_are_away_are_told_apart():
    """Replicas with different secrets, a wrong upstream, no Redis, no replica: one by one."""
    with Site(rooms={"shop": {"total_active_users": 1000}}, replicas=2) as site:
        page = f"{site.url}/page"

        config = site.folder / "replica-1.toml"
        right = config.read_text()
        config.write_text(right.replace(SECRET, SECRET[::-1]))
        restart(site, 1)
        assert "secret_keys" in bad(await examine(page))[0]
        config.write_text(right)
        restart(site, 1)
        assert not bad(await examine(page))

        site.redis.stop()
        problems = bad(await examine(page, room="shop"))
        assert "its store does not answer" in problems[0]
        assert "Redis" in problems[0]

        for replica in site.replicas:
            replica.stop()
        findings = await examine(page)
        assert "nginx reaches no sidecar" in bad(findings)[0]
        assert "the page is behind room 'shop'" in said(findings)
        assert len(bad(findings)) == 1

        settings = site.folder / "waitroom" / "settings.conf"
        settings.write_text(settings.read_text().replace(site.edges[0][7:], site.ops[0][7:]))
        site.replicas[0].start()
        wait_until(lambda: answers(f"{site.ops[0]}/healthz"), "the replica")
        os.kill(site.nginx.pid, signal.SIGHUP)
        wait_until(
            lambda: b"Not Found" in read(f"{site.url}/_waitroom/shop/status"), "the wrong upstream"
        )
        problems = bad(await examine(page))
        assert "what nginx asks for the sidecar is none (404" in problems[0]
        assert "ops_listen" in problems[0]


def restart(site: Site, number: int) -> None:
    site.replicas[number].stop()
    site.replicas[number].start()
    wait_until(lambda: answers(f"{site.ops[number]}/readyz"), "the replica")


def answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(address, timeout=2):
            return True
    except OSError:
        return False


def read(address: str, headers: dict[str, str] | None = None) -> bytes:
    request = urllib.request.Request(address, headers=headers or {})
    try:
        with urllib.request.urlopen(request, timeout=2) as reply:
            return reply.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.read()
    except OSError:
        return b""
