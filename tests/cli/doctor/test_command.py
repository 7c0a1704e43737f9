"""The command: its lines, its exit status, and who does not answer."""

import json

import pytest
from click.testing import CliRunner

from sidecar.cli import main
from sidecar.cli.doctor.findings import Finding, Level, format_findings
from sidecar.cli.output import add_colour
from tests.support.nginx_client import Visitor
from tests.support.processes import free_port, wait_until
from tests.support.site import ADMIN_TOKEN, PLAIN_LOCATION, Site


@pytest.fixture(scope="module")
def site():
    locations = PLAIN_LOCATION + "location /no-gate { proxy_pass http://origin; }"
    with Site(rooms={"shop": {"total_active_users": 1000}}, locations=locations) as site:
        yield site


@pytest.fixture
def doctor(site):
    """Return a function that runs `waitroom doctor` for a path of the site."""
    ports = ["--ops-port", str(free_port()), "--edge-port", str(free_port())]
    return lambda path, *words: CliRunner().invoke(
        main, ["doctor", f"{site.url}{path}", *ports, *words]
    )


def test_the_command_prints_a_line_a_finding_and_says_by_its_status(doctor):
    """Exit 0 when there is no problem, warnings or not; 1 otherwise."""
    right = doctor("/page")
    assert right.exit_code == 0, right.output
    assert right.output.startswith("ok       the sidecar answers")
    assert right.output.endswith("Everything is right.\n")
    wrong = doctor("/no-gate")
    assert wrong.exit_code == 1
    assert "problem  there is no waiting room at this address" in wrong.output
    assert "         -> In the page's location, write" in wrong.output
    as_json = doctor("/no-gate", "--json")
    document = json.loads(as_json.output)
    assert document["problems"] == 1
    assert {"level", "what", "fix"} == set(document["findings"][0])


def test_a_setting_that_was_changed_at_run_time_is_marked(site, doctor, monkeypatch):
    """With both values, and how to take it back; of the page's room alone, and with a token."""
    site.admin("PATCH", "/rooms/shop", {"total_active_users": 2000})
    assert "run time" not in doctor("/page").output
    monkeypatch.setenv("WAITROOM_URL", site.ops[0])
    monkeypatch.setenv("WAITROOM_TOKEN", ADMIN_TOKEN)
    done = doctor("/page")
    assert "warning  changed at run time: shop: total_active_users: 2000, file: 1000" in done.output
    assert "`waitroom rooms set shop total_active_users=null`" in done.output
    assert done.exit_code == 0
    site.admin("PATCH", "/rooms/shop", {"total_active_users": None})
    assert "run time" not in doctor("/page").output


def test_an_adaptive_room_that_nginx_never_reports_to_is_a_problem(site, doctor, monkeypatch):
    """While visitors are inside. Only nginx' side is missing here, and the fix names both."""
    monkeypatch.setenv("WAITROOM_URL", site.ops[0])
    monkeypatch.setenv("WAITROOM_TOKEN", ADMIN_TOKEN)
    site.admin("PATCH", "/rooms/shop", {"adaptive": {"p90": 1.2}})
    for _ in range(5):
        assert Visitor(site.url).get("/page").status == 200
    wait_until(lambda: site.room()["site"] is not None, "the first tick", timeout_s=20)
    done = doctor("/page")
    assert done.exit_code == 1
    assert "problem  room 'shop' is adaptive, but nginx reports no response" in done.output
    assert "`health_listen`" in done.output
    assert "`include waitroom/health.conf;`" in done.output
    site.admin("PATCH", "/rooms/shop", {"adaptive": None})
    done = doctor("/page")
    assert "adaptive" not in done.output


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("127.0.0.1:{port}", "does not answer: connection refused"),
        ("http://nobody.invalid/", "does not answer: unknown host"),
        ("https://127.0.0.1:{http}/", "does not answer: TLS failed"),
    ],
)
def test_who_does_not_answer_gets_one_line(site, address, words):
    address = address.format(port=free_port(), http=site.port)
    done = CliRunner().invoke(main, ["doctor", address])
    assert done.exit_code == 1
    assert words in done.output
    assert done.output.count("problem  ") == 1


def test_what_is_no_address_is_a_mistake_of_usage():
    done = CliRunner().invoke(main, ["doctor", "ftp://shop.example/"])
    assert done.exit_code == 2
    assert "is no address of a page" in done.output


def test_a_terminal_gets_colours_and_lines_of_its_width(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    findings = [
        Finding(Level.OK, "one " * 20),
        Finding(Level.WARNING, "two", "do " * 30),
        Finding(Level.PROBLEM, "three", "that"),
    ]
    text = format_findings(findings, columns=60, add_colour=add_colour)
    assert text.startswith("\x1b[32mok       \x1b[0mone one")
    lines = [line for line in text.splitlines() if "\x1b" not in line]
    assert all(len(line) <= 60 for line in lines)
    assert lines[0].startswith("         one")
    assert text.endswith("1 problem(s), 1 warning(s).")
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in format_findings(findings, columns=60, add_colour=add_colour)
