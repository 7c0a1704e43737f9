"""A room's own template, as from Cloudflare, which reloads by its Refresh header until the visitor
is admitted."""

import pytest
from playwright.sync_api import expect

from tests.support.nginx_client import Visitor
from tests.support.site import ROOT, Site, gated


@pytest.fixture(scope="module")
def site():
    shop = {"total_active_users": 1, "template": "cloudflare.html", "heartbeat_interval": 1}
    rooms = {"turns": shop, "plain": shop}
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
    site.admin("PATCH", f"/rooms/{room}", {"total_active_users": 2})
    expect(page.locator("h1")).to_have_text("Inside")
    assert page.url == address
