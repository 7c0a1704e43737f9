"""The waiting page while the shield is up: the page joins by itself, a moment later."""

import pytest
from playwright.sync_api import expect

from tests.support.site import Site
from tests.support.story import ahead, raise_shield

ROOMS = {"shop": {"total_active_users": 0, "shield_above": 1, "heartbeat_interval": 1}}


@pytest.fixture(scope="module")
def site():
    with Site(rooms=ROOMS) as site:
        yield site


def test_its_script_joins_by_the_address_that_it_is_told(site, visitor):
    raise_shield(site)
    page, asked = visitor(), []
    page.on("request", lambda request: asked.append(request.url.partition("/shop/")[2]))
    page.goto(f"{site.url}/page")
    expect(page.locator("h1")).to_have_text("Joining…")
    expect(ahead(page)).to_be_visible(timeout=20_000)
    polls = [path for path in asked if path.startswith(("status", "join"))]
    assert polls[0] == "status"
    assert polls[1].startswith("join?token=")
    assert page.url == f"{site.url}/page"
