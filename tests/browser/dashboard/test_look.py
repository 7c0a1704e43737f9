"""An operator changes the appearance of a room's page: preview, save and undo."""

import json
import re

import pytest
from playwright.sync_api import expect

from tests.support.dashboard import log_in
from tests.support.site import Site

ROSE = "rgb(225, 29, 72)"


@pytest.fixture(scope="module")
def site():
    footer = json.dumps([{"text": "Terms", "address": "/terms"}])
    rooms = {"sale": {"total_active_users": 1, "site_name": "Alpenrock", "footer": footer}}
    with Site(rooms=rooms) as site:
        yield site


@pytest.fixture
def look(site, visitor):
    """Open the view for the appearance of a room, by the link on the room's card."""
    page = log_in(site, visitor(), "Designer")
    page.evaluate("location.hash = '#/rooms/sale'")
    page.get_by_role("link", name="Look of the page").click()
    expect(page.get_by_role("heading", name="Look of sale")).to_be_visible()
    yield page
    site.admin("PATCH", "/rooms/sale", dict.fromkeys(("accent", "footer", "custom_css")))


def test_what_is_typed_is_previewed_saved_and_undone(site, look):
    """A frame previews the page in the chosen state. Saved changes apply, and one click undoes
    them."""
    page, frame = look, look.frame_locator("#look iframe")
    expect(frame.locator("#site")).to_have_text("Alpenrock")
    expect(frame.locator("#ahead")).to_have_text("37")
    page.get_by_label("Accent: bar and main button").fill("#e11d48")
    page.get_by_label("Footer").fill("Imprint | https://shop.example/imprint")
    page.locator("#look").get_by_label("State").select_option("left")
    expect(frame.locator("#undo")).to_have_css("background-color", ROSE)
    expect(frame.locator("footer a")).to_have_attribute("href", "https://shop.example/imprint")
    assert site.room("sale")["settings"]["accent"] is None

    page.get_by_role("button", name="Save").click()
    output = page.locator("#look output")
    expect(output).to_contain_text("Saved.")
    settings = site.room("sale")["settings"]
    assert settings["accent"] == "#e11d48"
    assert settings["footer"] == [{"text": "Imprint", "address": "https://shop.example/imprint"}]
    page.get_by_role("button", name="Undo").click()
    expect(output).to_contain_text("Undone.")
    assert site.room("sale")["changed"] == {}
    expect(page.get_by_label("Accent: bar and main button")).to_have_value("")

    expect(page.get_by_label("Footer")).to_have_value("Terms | /terms")
    page.get_by_label("Footer").fill("")
    expect(frame.locator("footer a")).to_have_count(0)
    page.get_by_role("button", name="Save").click()
    expect(output).to_contain_text("Saved.")
    assert site.room("sale")["changed"] == {"footer": []}
    assert page.problems == []


def test_what_is_not_allowed_is_said_at_once(site, look):
    """The preview does not change, and saving reports the same problem."""
    page, frame = look, look.frame_locator("#look iframe")
    expect(frame.locator("#ahead")).to_have_text("37")
    css = page.get_by_label("Own CSS")
    css.fill("h1 { background: url(https://evil.test/x.png) }")
    refused = page.get_by_role("alert").get_by_text("takes a picture or a font on your site")
    expect(refused).to_be_visible()
    expect(css).to_have_attribute("aria-invalid", "true")
    expect(frame.locator("#ahead")).to_have_text("37")
    page.get_by_role("button", name="Save").click()
    expect(page.locator("#look output")).to_contain_text("Not done")
    css.fill("h1 { letter-spacing: 5px }")
    expect(frame.locator("h1")).to_have_css("letter-spacing", "5px")
    expect(refused).to_be_hidden()
    assert [text for text in page.problems if "422" not in text] == []


def test_dark_and_wide_and_arabic(look):
    """The preview can show other colours, languages, states and widths."""
    page, frame = look, look.frame_locator("#look iframe")
    expect(frame.locator("body")).to_have_css("background-color", "rgb(243, 245, 244)")
    page.get_by_label("Colours").select_option("dark")
    expect(frame.locator("body")).to_have_css("background-color", "rgb(14, 20, 19)")
    page.locator("#look").get_by_label("Language").select_option("ar")
    expect(frame.locator("html")).to_have_attribute("dir", "rtl")
    page.locator("#look").get_by_label("State").select_option("called")
    expect(frame.locator("html")).to_have_attribute("data-state", "admitted")
    page.get_by_label("Width").select_option("1280")
    expect(page.locator("#look iframe")).to_have_css("inline-size", re.compile("1280px"))
    assert page.problems == []
