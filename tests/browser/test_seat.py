"""A leased seat and a rate limit in a browser: the pages of those who wait."""

import re

import pytest
from playwright.sync_api import expect

from tests.support.browser import find_violations
from tests.support.site import Site, gated
from tests.support.story import ahead, go_in, leave

MESSAGE = "Somebody is choosing seat {resource}. It is theirs for five minutes at most."


@pytest.fixture(scope="module")
def site():
    locations = gated(
        r"~ ^/seats/(?<seat>\d+)/",
        room="seat~$seat",
        to="http://origin/page/seats/$seat/$is_args$args",
    )
    limit = "set $waitroom_limit calls; include waitroom/limit.conf; proxy_pass http://origin;"
    locations += f"location / {{ proxy_pass http://origin; }} location /calls {{ {limit} }}"
    limits = {"calls": {"algorithm": "fixed_window", "limit": 0, "window": 3600}}
    leases = {"seat": {"term": 300, "message": MESSAGE}}
    with Site(leases=leases, limits=limits, locations=locations, replicas=2) as site:
        yield site


def test_the_next_has_the_seat_by_itself(site, visitor):
    """The page names the seat. When the holder leaves, the page opens the requested address.
    Another seat is free meanwhile."""
    first, second = visitor(), visitor()
    go_in(first, f"{site.url}/seats/17/")
    asked = f"{site.url}/seats/17/?row=4"
    second.goto(asked)
    expect(ahead(second)).to_have_text("0")
    expect(second.locator("#message")).to_have_text(MESSAGE.replace("{resource}", "17"))
    expect(second.locator("#wait")).to_have_text("about 4–6 minutes")
    tab = second.context.new_page()
    go_in(tab, f"{site.url}/seats/18/")
    names = {cookie["name"] for cookie in second.context.cookies()}
    assert [name for name in names if "seat" in name] == ["waitroom_seat"]

    first.evaluate("fetch('/_waitroom/seat~17/leave', { method: 'POST' })")
    expect(second.locator("h1")).to_have_text("Inside")
    expect(second.locator("#at")).to_have_text("/page/seats/17/?row=4")
    assert second.url == asked
    first.goto(f"{site.url}/seats/17/")
    expect(ahead(first)).to_have_text("0")
    assert [first.problems, second.problems] == [[], []]


def test_leaving_the_line_of_a_seat(site, visitor):
    """A visitor who leaves can join again at the end of the queue, also without scripts."""
    holder, second = visitor(), visitor(java_script_enabled=False)
    go_in(holder, f"{site.url}/seats/20/")
    second.goto(f"{site.url}/seats/20/")
    expect(ahead(second)).to_have_text("0")
    leave(second)
    expect(second.locator("h1")).to_have_text("You have left the line")
    second.get_by_role("button", name="Join again").click()
    expect(ahead(second)).to_have_text("0")


@pytest.mark.parametrize(("scheme", "locale"), [("light", "en-GB"), ("dark", "ar")])
def test_no_accessibility_rule_is_broken(site, visitor, scheme, locale):
    """Neither the page of a seat nor that of a refused call breaks a rule of axe-core, in light and
    dark, from left and from right. Who waits for a seat has a reference for support."""
    seat = f"{site.url}/seats/{len(scheme)}/"
    go_in(visitor(), seat)
    page = visitor(locale=locale, color_scheme=scheme)
    page.goto(seat)
    expect(page.locator("#number")).to_have_text(re.compile(r"[0-9A-Z]{4}-[0-9A-Z]{4}"))
    expect(page.locator("#number")).to_be_visible()
    expect(page.locator("#know li")).not_to_have_count(0)
    assert find_violations(page) == []
    page.goto(f"{site.url}/calls")
    expect(page.locator("html")).to_have_attribute("lang", locale[:2])
    expect(page.locator("b i")).to_have_text(re.compile(r"\d+"))
    assert find_violations(page) == []
