"""The doctor, sent to installations of which each lacks something else."""

import json
import socket
import urllib.request

import pytest

from sidecar.cli.doctor.findings import Level
from sidecar.gate.nginx_key import build_key_file
from tests.cli.doctor.ward import LOCATIONS, ROOMS, Ward, bad, examine, needs_network, read, said
from tests.support.processes import free_port
from tests.support.site import ROOT, Site, gated


@pytest.fixture(scope="module")
def ward():
    with Ward(rooms=ROOMS, leases={"seat": {"term": "1m"}}, locations=LOCATIONS) as site:
        yield site


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/page", "room 'shop'; this visit was let in"),
        ("/waits", "room 'waits'; this visit waited as number 1"), ("/full", "its queue is full"),
        ("/closed", "it lets nobody new in"), ("/elsewhere", "this visit was asked to wait"),
        ("/waits", "so it has not seen the site behind"),
        ("limited-inside", "this visit was let in"), ("right-error-page", "this visit was let in"),
        ("cors", "this visit was let in"), ("strict-path", "room 'shop'; this visit was let in"),
        ("good-policy", "this visit was let in"),
    ],
)  # fmt: skip
async def test_a_right_installation_is_right(ward, path, words):
    """A right installation has no problem, whether the visitor is let in, waits or is refused."""
    findings = await examine(ward.at(path))
    assert {found.level for found in findings} == {Level.OK}, findings
    assert words in said(findings)


async def test_the_doctor_holds_no_place(ward):
    """The doctor gives its places up."""
    before = ward.room("waits")["waiting"]
    findings = await examine(f"{ward.url}/waits")
    assert ward.room("waits")["waiting"] == before
    assert "the doctor has released its places" in said(findings)


async def test_the_doctor_leaves_a_seat(ward):
    """The doctor takes a seat of a lease and gives it back."""
    for _ in range(2):
        findings = await examine(f"{ward.url}/seat")
        assert not bad(findings), findings
        assert "room 'seat~7'; this visit was let in" in said(findings)


async def test_redirects_within_the_site_are_followed(ward):
    findings = await examine(f"{ward.url}/moved")
    assert not bad(findings)
    assert f"redirects to {ward.url}/page" in said(findings)


@pytest.mark.parametrize(
    ("where", "what", "fix"),
    [
        ("/no-gate", "no waiting room at this address", "include waitroom/location.conf;"),
        ("/unknown", "room 'shpo', which the sidecar does not have", "set $waitroom_room"),
        ("/nameless", "does not name its room", "set $waitroom_room shop;"),
        ("/no-headers", "its cookie does not arrive", "include waitroom/headers.conf;"),
        ("/no-errors", "bare 401", "include waitroom/errors.conf;"),
        ("/password", "asks for a password", "http://user:password@site/"),
        ("no-server-conf", "answered by the site itself", "include waitroom/server.conf;"),
        ("odd-verdict", "nginx answers 500", "rewrite"),
        ("forbidden", "refuses visitors at /_waitroom/ (403)", "deny"),
        ("no-static", "lacks its files: waiting.js (404)", "$waitroom_static"),
        ("no-page", "is not the waiting page", "waitroom page > /etc/nginx/waitroom/waiting.conf"),
        ("secure", "has Secure, but the site is on http", "$waitroom_scheme"),
        ("own-401", "instead of the waiting page", "include waitroom/errors.conf;"),
        ("odd-path", "//health/page bypasses the room", "include waitroom/strict-path.conf;"),
        ("policy", "Content-Security-Policy blocks the waiting page (script-src)", "'self'"),
        ("policy", "Content-Security-Policy blocks the waiting page (connect-src)", "'self'"),
        ("ops", "/metrics of the sidecar is open", "allow"),
        ("ops", "/admin/rooms of the sidecar is open", "allow"),
        ("no-cookie", "no cookie arrives, not even from /_waitroom/", "proxy_hide_header"),
        ("no-cookie/waits", "no cookie arrives, not even from /_waitroom/", "proxy_hide_header"),
        ("no-post", "does not reach the sidecar (405)", "if ($request_method"),
        ("front", "/index.php bypasses the room", "location ~ \\.php$"),
        ("error-page", "/assets/waitroom-doctor gets nginx's bare 401", "recursive_error_pages"),
        (
            "cold-cache",
            "serves the page to everybody, bypassing the room",
            "Cache-Control: private",
        ),
        ("limited-429", "nginx itself refuses requests under /_waitroom/", "limit_req"),
        ("cookie-drop-doors", "the heartbeat does not recognize the cookie", "secret_keys"),
        ("cookie-drop", "does not recognize a returning visitor", "drops cookies"),
    ],
)
async def test_a_mistake_is_found_and_its_remedy_named(ward, where, what, fix):
    problems = bad(await examine(ward.at(where)))
    assert any(what in problem and fix in problem for problem in problems), problems


async def test_a_limit_at_server_level_is_the_one_cause_that_is_named(ward):
    (problem,) = bad(await examine(ward.at("limited")))
    assert "nginx itself refuses requests under /_waitroom/" in problem
    assert "limit_req" in problem


async def test_a_replica_that_is_gone(ward, tmp_path):
    """A replica that does not answer is named, although nginx asks another."""
    with socket.create_server(("127.0.0.1", 0)) as alive:
        port, dead = alive.getsockname()[1], free_port()
        (tmp_path / "settings.conf").write_text(
            "upstream waitroom {\n"
            "    hash $waitroom_waiting consistent;\n"
            f"    server 127.0.0.1:{port} max_fails=0;\n"
            f"    server 127.0.0.1:{dead};\n"
            f"    server unix:{tmp_path}/edge-2.sock max_fails=0;\n"
            "    keepalive 512;\n}\n"
            "upstream other { server 127.0.0.1:1; }\n"
        )
        problems = bad(await examine(f"{ward.url}/page", includes=tmp_path))
    assert len(problems) == 2
    assert f"a replica at 127.0.0.1:{dead}, but none runs there: connection refused" in problems[0]
    assert f"unix:{tmp_path}/edge-2.sock, but none runs there: no such file" in problems[1]


async def test_a_folder_that_others_may_make_first(ward, tmp_path):
    """A folder of verdicts below one that others can write to is a problem."""
    settings = (ROOT / "nginx/waitroom/settings.conf").read_text()
    settings = settings.replace("127.0.0.1:8400", ward.edges[0].removeprefix("http://"))
    for folder, is_open in (("/run/waitroom-verdicts", False), ("/dev/shm/waitroom", True)):
        text = settings.replace("/run/waitroom-verdicts", folder)
        (tmp_path / "settings.conf").write_text(text)
        problems = bad(await examine(f"{ward.url}/page", includes=tmp_path))
        assert [folder in problem for problem in problems] == [True] * is_open


@pytest.mark.parametrize(
    ("where", "what", "fix"),
    [
        ("/open", "room 'open' lets everybody through", "suspended"),
        ("/status/404", "the site itself answers 404", "a page that exists"),
        ("no-retry", "has no Retry-After header", "include waitroom/headers.conf;"),
        ("/cors", "pages on other hosts", "proxy_hide_header"),
        ("trusting", "nginx trusts X-Forwarded-For", "set_real_ip_from"),
        ("tls-balancer", "the cookie lacks Secure", "$http_x_forwarded_proto"),
        (
            "public",
            "caches may store a page that sets a cookie (Cache-Control: public, max-age=60)",
            "private",
        ),
        ("cookie-flags", "without HttpOnly, with SameSite=None, with Path=/shop", "proxy_cookie"),
    ],
)
async def test_what_is_doubtful_is_a_warning(ward, where, what, fix):
    findings = await examine(
        ward.at(where), verify=False, room="open" if where == "/open" else None
    )
    assert not bad(findings)
    warnings = bad(findings, Level.WARNING)
    assert any(what in warning and fix in warning for warning in warnings), warnings


async def test_a_cache_that_keeps_what_is_one_visitors_is_found(ward):
    """A cache that keeps one visitor's response is found."""
    address = ward.at("careless-cache")
    read(address)
    assert "two visitors were given the same cookie" in bad(await examine(address))[0]
    read(f"{address}/first", {"Accept": "text/html", "Sec-Purpose": "prefetch"})
    problems = bad(await examine(f"{address}/first"))
    assert any("the waiting page came from a cache" in problem for problem in problems)


async def test_a_site_without_any_include_lacks_both(ward):
    """A site without any include lacks the server's line and the location's."""
    problems = bad(await examine(ward.at("no-include")))
    assert len(problems) == 2
    assert "include waitroom/server.conf;" in problems[0]
    assert "include waitroom/location.conf;" in problems[1]


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
    assert "the sidecar has no room 'nobody'" in problems[0]


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
    assert any(
        "the sidecar sees the doctor's address as 127.0.0.1" in w and "set_real_ip_from" in w
        for w in warnings
    )


async def test_the_address_is_told_to_who_asks_for_it_only(ward):
    """The status has the visitor's address only with ?client=1."""
    address = f"{ward.url}/_waitroom/shop/status"
    with urllib.request.urlopen(address) as reply:
        assert "client" not in json.load(reply)
    with urllib.request.urlopen(f"{address}?client=1") as reply:
        assert json.load(reply)["client"] == "127.0.0.1"


class OtherKey(Site):
    def _write_nginx(self):
        super()._write_nginx()
        file = self.folder / "waitroom-stamp.conf"
        file.write_text(build_key_file(["the key of another site"]))


@pytest.mark.parametrize(
    ("kind", "on", "level", "words"),
    [
        (Site, True, Level.OK, "nginx itself recognizes visitors inside (stamps)"),
        (Site, False, Level.OK, "stamps are off (`waitroom nginx-key"),
        (OtherKey, False, Level.PROBLEM, "nginx has a key that a replica does not know"),
    ],
)
async def test_a_site_with_and_without_stamps(kind, on, level, words):
    rooms = {"shop": {"total_active_users": 1000}}
    with kind(rooms=rooms, stamps=on, locations=gated("/"), replicas=2) as site:
        findings = await examine(site.url)
        assert words in said(findings)
        assert bool(bad(findings)) is (level is not Level.OK), findings
