"""What no real server here can show: clocks that are off, and addresses of the world."""

import ast
import re
from datetime import UTC, datetime
from email.utils import format_datetime

import pytest

from sidecar.cli.doctor import checks
from sidecar.cli.doctor.findings import TEXTS, Level
from sidecar.cli.doctor.site_response import SetCookie
from sidecar.cli.doctor.visit import FALSE_ADDRESS
from tests.cli.doctor.ward import NOW_S, PAGE, only, reply, visit
from tests.support.site import ROOT


@pytest.mark.parametrize(
    ("nginx_s", "store_s", "words"),
    [
        (0, 20, "the clocks agree"),
        (100, 0, "the clock of nginx is 100 s ahead of this machine's"),
        (0, -45, "the clock of the store (Redis) is 45 s behind this machine's"),
        (-3600, -3590, "the site's clocks are 3600 s behind this machine's"),
    ],
)
def test_the_clock_that_is_off_is_named(nginx_s, store_s, words):
    """When both are off by the same, it may be this machine's."""
    date = datetime.fromtimestamp(NOW_S + nginx_s, UTC)
    updated = datetime.fromtimestamp(NOW_S + store_s, UTC)
    poll = reply(200, {"updated_at": updated.isoformat()}, Date=format_datetime(date, usegmt=True))
    found = only(checks.check_clocks(visit(poll=poll)))
    assert words in found.what
    assert (found.level is Level.OK) == ("agree" in words)


@pytest.mark.parametrize(
    ("told", "told_falsely", "level", "words"),
    [
        ("198.41.30.7", "198.41.30.7", Level.OK, "address as 198.41.30.7"),
        ("10.1.2.3", "10.1.2.3", Level.OK, "own address, 10.1.2.3"),
        ("10.0.0.9", "10.0.0.9", Level.WARNING, "looks like a load balancer"),
        ("unix:", "unix:", Level.WARNING, "looks like a load balancer"),
        ("198.41.30.7", FALSE_ADDRESS, Level.PROBLEM, "from any visitor"),
        ("10.1.2.3", FALSE_ADDRESS, Level.WARNING, "from this machine"),
    ],
)
def test_the_address_that_the_sidecar_is_told(told, told_falsely, level, words):
    """A made-up one must not be believed, a balancer's not be taken for the visitor's."""
    poll, falsely = (reply(200, {"client": address}) for address in (told, told_falsely))
    found = only(checks.check_client_address(visit(poll=poll, false_address=falsely)))
    assert found.level is level
    assert words in found.what


@pytest.mark.parametrize(
    ("policy", "blocked"),
    [
        ("default-src 'self'", set()), ("default-src *", set()), ("default-src https:", set()),
        ("default-src https://shop.example", set()), ("default-src *.example", set()),
        ("img-src 'none'; frame-ancestors 'none'", set()),
        ("default-src http:", {"script-src", "style-src", "connect-src"}),
        ("default-src 'none'; script-src 'self'", {"style-src", "connect-src"}),
        ("script-src 'nonce-1' 'strict-dynamic' 'self'", {"script-src"}),
        ("script-src-elem https://cdn.example; script-src 'self'", {"script-src"}),
        ("default-src 'self', connect-src https://api.example", {"connect-src"}),
    ],
)  # fmt: skip
def test_a_policy_must_allow_the_pages_own_files(policy, blocked):
    """Of several policies each must allow."""
    page = reply(503, PAGE.format("waiting"), Content_Security_Policy=policy)
    found = list(checks.check_content_policy(visit(waiting=page)))
    assert {line.what.partition("(")[2].partition(")")[0] for line in found} == blocked


def test_a_waiting_page_that_cannot_join_is_a_problem():
    """It gave no cookie because newcomers come fast, and then POST is refused."""
    page = reply(503, PAGE.format("not_queued"))
    seen = visit(prefetch=page, first=page, join=reply(405, "<html>"))
    found = only(checks.check_cookie_presence(seen))
    assert found.level is Level.PROBLEM
    assert "POST join: 405" in found.what


def test_a_waiting_page_that_joins_by_itself_is_right():
    page = reply(503, PAGE.format("not_queued"))
    joined = reply(200, {}, Set_Cookie="waitroom_shop=t~1; Path=/; HttpOnly; SameSite=Lax; Secure")
    seen = visit(prefetch=page, first=page, join=joined)
    assert only(checks.check_cookie_presence(seen)).level is Level.OK
    assert only(checks.check_cookie_attributes(seen)).level is Level.OK


def test_set_cookie_is_read_with_its_attributes():
    given = SetCookie.read("waitroom_shop=a=b; Path=/; HttpOnly; SameSite=Lax")
    assert (given.name, given.value) == ("waitroom_shop", "a=b")
    assert given.attributes == {"path": "/", "httponly": "", "samesite": "Lax"}


def test_an_odd_date_is_no_date():
    seen = visit(poll=reply(200, {"updated_at": "noon"}, Date="noon"))
    assert list(checks.check_clocks(seen)) == []


INSIDE = [reply(200, {"state": "admitted", "refresh_after_seconds": 5})]


def test_a_stamp_that_nginx_does_not_take():
    """It brings another one."""
    back = reply(200, Set_Cookie="waitroom_now=x.1.y; Path=/")
    found = only(checks.check_stamps(visit(heartbeats=INSIDE, revisit=back, stamp_visit=back)))
    assert found.level is Level.WARNING
    assert "$waitroom_stamp_binding" in found.fix


def test_who_waits_cannot_tell():
    waits = [reply(200, {"state": "waiting", "refresh_after_seconds": 5})]
    assert not list(checks.check_stamps(visit(heartbeats=waits, revisit=reply(503))))
    assert not list(checks.check_stamps(visit(revisit=reply(200))))


def test_each_text_is_used_and_has_its_values():
    """Each finding of the code is in findings.ini and each of those in the code, with all values
    that its texts name."""
    used, calls = set(), []
    for file in (ROOT / "sidecar/cli/doctor").glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Constant) and node.value in TEXTS.sections():
                used.add(node.value)
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "get_finding":
                calls.append((node.args[0], {word.arg for word in node.keywords}))
    assert used == set(TEXTS.sections())
    for name, values in calls:
        names = {one.value for one in ast.walk(name) if isinstance(one, ast.Constant)}
        for each in names & set(TEXTS.sections()):
            texts = " ".join(TEXTS[each].values())
            assert set(re.findall(r"\{(\w+)", texts)) <= values, each
