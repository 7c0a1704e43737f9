"""Rate limits on the dashboard: what a key has used, and its limit, in a real browser."""

import re

import pytest
import redis
from playwright.sync_api import expect

from tests.support.dashboard import Dashboard, confirm, view

LIMITS = {
    "login": {
        "algorithm": "sliding_window", "key": "{address}", "limit": 5, "window": 3600,
        'values."192.0.2.1"': 50,
    },
    "pay": {"algorithm": "fixed_window", "key": "{biz}:{channel}", "limit": 20, "window": 86400},
    "edge": {"algorithm": "token_bucket", "limit": 4, "window": 3600, "burst": 8},
    "slow": {"algorithm": "leaky_bucket", "limit": 1, "window": 30, "on_exceed": "pace",
             "max_wait": 3600},
    "slots": {"algorithm": "concurrency", "limit": 2, "lease": 3600},
}  # fmt: skip
HOSTILE = "<img/src=x/onerror=alert(1)>"


@pytest.fixture(scope="module")
def site():
    with Dashboard(limits=LIMITS) as site:
        yield site


def row(page, text):
    return page.locator("#limits tbody tr:visible").filter(has_text=text)


def figure(page, name):
    return page.locator(f"#limits [data-f={name}]:visible")


def call(site, limit, **body):
    """One call; whether it may go. (Of a list, which is answered whatever the decisions are.)"""
    (decision,) = site.api("POST", f"/limits/{limit}/acquire", [body])
    return decision["allowed"]


def test_what_a_key_has_used(site, opened):
    """From the list to a key that is typed, and live."""
    page = opened("limits")
    expect(row(page, "login")).to_contain_text("5 calls in 60 min")
    expect(row(page, "slow")).to_contain_text("waits, 60 min at most")
    expect(row(page, "slots")).to_contain_text("2 calls at a time")
    page.get_by_role("link", name="login", exact=True).click()
    expect(page.get_by_role("heading", name="login")).to_be_focused()
    for _ in range(3):
        call(site, "login", fields={"address": "198.51.100.7"})
    page.get_by_role("textbox", name="address", exact=True).fill("198.51.100.7")
    page.get_by_role("button", name="Show what it has used").click()
    expect(figure(page, "used")).to_have_text("3")
    expect(figure(page, "size")).to_have_text("5")
    expect(figure(page, "left")).to_have_text("2")
    for _ in range(3):
        call(site, "login", fields={"address": "198.51.100.7"})
    expect(figure(page, "used")).to_have_text("5")
    expect(page.locator("#limits .badge:visible")).to_have_text("Refused")
    expect(figure(page, "wait")).to_have_text(re.compile("min"))


def test_a_keys_limit_is_changed_and_reset(site, opened):
    """With numbers in the question; and what the key has used is forgotten."""
    for _ in range(5):
        call(site, "login", key="198.51.100.8")
    page = opened("limits/login~198.51.100.8")
    expect(figure(page, "left")).to_have_text("0")
    page.get_by_label("Limit of this key").fill("8")
    page.get_by_role("button", name="Set …").click()
    text = confirm(page, "Change")
    assert "8 calls in 60 min, instead of 5 calls in 60 min. It has used 5 of 5." in text
    expect(figure(page, "left")).to_have_text("3")
    assert site.api("GET", "/limits/login/values")["set"] == {"198.51.100.8": 8}
    page.get_by_role("button", name="No limit …").click()
    confirm(page, "Change")
    expect(figure(page, "size")).to_have_text("no limit")
    view(page, "limits/login")
    expect(row(page, "192.0.2.1")).to_contain_text("the settings file")
    row(page, "198.51.100.8").get_by_role("button").click()
    assert "5 calls in 60 min, instead of no limit" in confirm(page, "Reset to configured value")
    expect(row(page, "198.51.100.8")).to_have_count(0)
    assert site.api("GET", "/limits/login/values")["set"] == {}

    page.go_back()
    expect(figure(page, "used")).to_have_text("5")
    page.get_by_role("button", name="Reset the count …").click()
    assert "The 5 of 5 that it has used are forgotten" in confirm(page, "Reset the count")
    expect(figure(page, "used")).to_have_text("0")
    assert call(site, "login", key="198.51.100.8")


def test_each_algorithm_has_its_figures(site, opened):
    page = opened("limits")
    for _ in range(3):
        for limit in ("edge", "slow", "slots"):
            call(site, limit)
    for limit, used, size, badge in (
        ("edge", "3", "8", "May go now"),
        ("slow", "1", "1", "Would wait"),
        ("slots", "2", "2", "Refused"),
    ):
        view(page, f"limits/{limit}")
        page.get_by_role("button", name="Show what it has used").click()
        expect(figure(page, "used")).to_have_text(used)
        expect(figure(page, "size")).to_have_text(size)
        expect(page.locator("#limits .badge:visible")).to_have_text(badge)
    expect(page.locator("#limits h2:visible")).to_contain_text("all calls without a key")


def test_keys_in_use(site, opened):
    """Found by a search; the least left first, and a hostile key is text."""
    with redis.Redis(unix_socket_path=str(site.redis_socket)) as store:
        for key in store.scan_iter("*pay*"):  # of a run before
            store.delete(key)
    for key, calls in ((HOSTILE, 4), ("a/b:c", 2), ("quiet:x", 1)):
        for _ in range(calls):
            call(site, "pay", key=key)
    page = opened("limits/pay")
    expect(page.get_by_label("channel")).to_be_visible()
    page.get_by_role("button", name="Search").click()
    found = page.locator("#limits [data-list=keys] tbody tr")
    expect(found).to_have_count(3)
    expect(found.first).to_contain_text(HOSTILE)
    expect(found.first).to_contain_text("4 of 20")
    found.nth(1).get_by_role("link").click()
    expect(figure(page, "used")).to_have_text("2")
    page.go_back()
    page.get_by_role("button", name="Search").click()
    found.first.get_by_role("link").click()
    expect(page.locator("#limits h2:visible")).to_contain_text(HOSTILE)
    page.get_by_role("button", name="Reset the count …").click()
    confirm(page, "Reset the count")
    expect(figure(page, "used")).to_have_text("0")
    expect(page.locator("#limits img")).to_have_count(0)


def test_refused_calls_are_charted_and_named(site, opened):
    """Of a limit: calls a minute, and the keys that were refused most; of a key: how often."""
    for _ in range(7):
        call(site, "login", key="203.0.113.9")
    call(site, "login", key="203.0.113.10")
    page = opened("limits/login")
    refused = page.locator("#limits [data-list=refused] tbody tr").filter(has_text="203.0.113.9")
    expect(refused).to_contain_text("2", timeout=20_000)  # replicas write every five seconds
    expect(page.locator("#limits figure .legend li")).to_have_count(3)
    refused.get_by_role("link").click()
    expect(figure(page, "refused")).to_have_text("2")
    view(page, "limits/login~203.0.113.10")
    expect(figure(page, "refused")).to_have_text("few or none")


def test_an_unknown_limit(opened):
    page = opened("limits/logon")
    note = page.locator("#limits .away-note")
    expect(note).to_contain_text("There is no limit called logon. There are: login, pay")
