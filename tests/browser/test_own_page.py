"""A room's own template, as from Cloudflare, which reloads by its Refresh header until the visitor
is admitted."""

import json

import pytest
from playwright.sync_api import expect

from tests.support.events import make_opening_event
from tests.support.nginx_client import Visitor
from tests.support.site import ROOT, Site, gated


@pytest.fixture(scope="module")
def site():
    shop = {"total_active_users": 1, "template": "cloudflare.html", "heartbeat_interval": 1}
    rooms = {
        "turns": shop,
        "plain": shop,
        "packed": {**shop, "max_waiting": 0},
        "lots": {**shop, "events": json.dumps([make_opening_event(hours=1, prequeue_hours=2)])},
        "rush": {**shop, "total_active_users": 9, "shield_above": 1},
    }
    templates = ROOT / "tests" / "support" / "templates"
    locations = "".join(gated(f"/{room}/", to="http://origin/page/", room=room) for room in rooms)
    with Site(rooms=rooms, locations=locations, settings={"template_dir": str(templates)}) as site:
        yield site


@pytest.mark.parametrize("room", ["turns", "plain"])
def test_waits_keeps_the_place_and_enters(site, visitor, room):
    """The page enters by itself at the requested address, with and without JavaScript."""
    holder, address = Visitor(site.url), f"{site.url}/{room}/a?b=1"
    holder.hold(f"/{room}/")
    page = visitor(java_script_enabled=room == "turns")
    page.goto(address)
    expect(page.locator("h1")).to_have_text("Hang on, Alpenrock is busy")
    expect(page.locator("#box")).to_have_css("background-color", "rgb(255, 255, 255)")
    if room == "turns":
        expect(page.locator("#box")).to_have_attribute("data-ran", "waits")
    updated = page.locator("#updated").inner_text()
    expect(page.locator("#updated")).not_to_have_text(updated)
    assert (site.room(room)["waiting"], page.url) == (1, address)
    assert page.problems == []
    holder.post(f"/_waitroom/{room}/leave")
    expect(page.locator("h1")).to_have_text("Inside")
    assert page.url == address


def test_a_full_queue(site, visitor):
    Visitor(site.url).get("/packed/")
    page = visitor()
    page.goto(f"{site.url}/packed/")
    expect(page.locator("#full")).to_be_visible()
    expect(page.locator("#box")).to_have_attribute("data-ran", "full")
    assert page.problems == []


def test_a_pre_queue(site, visitor):
    page = visitor()
    page.goto(f"{site.url}/lots/")
    expect(page.locator("#prequeue")).to_contain_text("Doors open in")
    expect(page.locator("#shuffle")).to_be_visible()
    expect(page.locator("#unknown")).to_be_visible()


def test_a_newcomer_of_a_rush_gets_in(site, visitor):
    """The page joins by reloading its own address."""
    for _ in range(5):
        Visitor(site.url).get("/rush/")
    page = visitor()
    page.goto(f"{site.url}/rush/a?b=1")
    expect(page.locator("h1")).to_have_text("Inside")
    assert page.url == f"{site.url}/rush/a?b=1"
