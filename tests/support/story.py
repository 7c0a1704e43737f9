"""A scenario that must succeed behind every proxy: visitors wait, leave, and are admitted."""

import re

from playwright.sync_api import expect

from tests.support.nginx_client import JSON, Visitor
from tests.support.processes import wait_until


def ahead(page):
    return page.locator("#ahead")


def leave(page):
    """Leave the queue by the waiting page's button, and confirm."""
    page.get_by_text("Leave the line").click()
    page.get_by_role("button", name="Leave", exact=True).click()


def go_in(page, url):
    """Take a free slot. Then reload the page, because a session needs a request with its cookie."""
    page.goto(url)
    expect(page.locator("h1")).to_have_text("Inside")
    page.reload()


def play_story(site, visitor):
    """Run the scenario. The room must have one free slot, and nobody may wait.

    `visitor` is the fixture, which opens a page for a new visitor.
    """
    first, second, third = visitor(), visitor(), visitor(java_script_enabled=False)
    go_in(first, f"{site.url}/page/one")

    asked = f"{site.url}/page/two?colour=red&size=9"
    second.goto(asked)
    expect(ahead(second)).to_have_text("0")
    expect(second).to_have_title(re.compile(r"^You are next "))
    second.reload()
    expect(ahead(second)).to_have_text("0")
    tab = second.context.new_page()
    tab.goto(f"{site.url}/page/tab")
    expect(ahead(tab)).to_have_text("0")
    third.goto(f"{site.url}/page/three?x=1&y=2")
    expect(ahead(third)).to_have_text("1")
    expect(third.locator("#wait")).to_contain_text("measuring")
    assert second.url == asked
    assert site.room()["waiting"] == 2

    first.goto(f"{site.url}/done")
    expect(second.locator("h1")).to_have_text("Inside")
    assert second.url == asked
    expect(second.locator("#at")).to_have_text("/page/two?colour=red&size=9")
    expect(tab.locator("#at")).to_have_text("/page/tab")
    expect(ahead(third)).to_have_text("0")

    # The operator raises the cap by one.
    cap = site.room()["settings"]["total_active_users"]
    site.admin("PATCH", "/rooms/shop", {"total_active_users": cap + 1})
    expect(third.locator("#at")).to_have_text("/page/three?x=1&y=2")
    assert third.url == f"{site.url}/page/three?x=1&y=2"
    assert [page.problems for page in (first, second, third)] == [[], [], []]


def raise_shield(site, room="shop"):
    """Join as newcomers until the room's shield is up. The room has `shield_above = 1`."""

    def is_up():
        joined = Visitor(site.url).post(f"/_waitroom/{room}/join", headers={"Accept": JSON})
        return joined.json()["state"] == "not_queued"

    wait_until(is_up, "the shield")
