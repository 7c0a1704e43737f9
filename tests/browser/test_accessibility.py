"""Accessibility of the waiting page: axe-core's rules, the keyboard, zoom and forced colours."""

import re
from datetime import timedelta

import pytest
from playwright.sync_api import expect

from tests.browser.played_page import NOWHERE, PAGE, SERVER, closed, prequeue
from tests.support.browser import find_violations

STATES = {
    "joining": {"state": "not_queued", **NOWHERE, "refresh_after_seconds": 300},
    "waiting": {"wait_seconds_low": 600, "wait_seconds_high": 900, "line": "fast"},
    "measuring": {"wait_seconds": None, "measuring": True},
    "next": {"position": 1, "ahead": 0},
    "paused": {"paused": True, "message": "We mend a thing.\nBack soon."},
    "admitted": {"state": "admitted", **NOWHERE},
    "opens": closed(SERVER + timedelta(days=2), SERVER + timedelta(days=1)),
    "prequeue": prequeue(SERVER + timedelta(hours=1)),
    "closed": {"state": "closed", **NOWHERE},
    "full": {"state": "full", **NOWHERE},
}


@pytest.mark.parametrize(("scheme", "locale"), [("light", "en-GB"), ("dark", "ar")])
def test_no_rule_is_broken_in_any_state(play, scheme, locale):
    """No state breaks a rule of axe-core, in light and dark, from left and from right, also without
    a replica and while a visitor leaves."""
    site = play(locale=locale, color_scheme=scheme)
    found = {}
    page = None
    for name, answer in STATES.items():
        # After several returns, the page enters with a delay.
        if name == "admitted":
            page.evaluate("sessionStorage['wr-shop-enter'] = `{'count':9,'at':${Date.now()}}`"
                          ".replaceAll(\"'\", '\"')")  # fmt: skip
        page = site.open(**answer)
        page.clock.resume()
        expect(page.locator("#heading")).not_to_be_empty()
        expect(page.locator("#intro")).not_to_be_empty()
        # The page is hidden until it has its texts.
        expect(page.locator("html.load")).to_have_count(0)
        found[name] = find_violations(page)
    page = site.open(**STATES["waiting"])
    expect(page.locator("#know li")).not_to_have_count(0)
    page.locator("form summary").click()
    found["leaving"] = find_violations(page)
    page.locator("#leave").click()
    found["left"] = find_violations(page)
    page.locator("#undo").click()
    expect(page.locator("html")).to_have_attribute("data-state", "waiting")
    asking = re.compile(r"/(status|join)(\?|$)")
    page.route(asking, lambda route: route.abort())
    page.evaluate("dispatchEvent(new PageTransitionEvent('pageshow', { persisted: true }))")
    expect(page.locator("#offline")).to_be_visible()
    found["offline"] = find_violations(page)
    texts = PAGE.languages.texts(site.language)
    expect(page.locator("#offline")).to_have_text(texts["offline"])
    # A newcomer has no place yet that could be kept.
    page = site.open(**STATES["joining"])
    expect(page.locator("#offline")).to_be_visible()
    expect(page.locator("#offline")).to_have_text(texts["offline_new"])
    found["offline newcomer"] = find_violations(page)
    # The answer to a visitor whose cookies are blocked, also after joining.
    page.unroute(asking)
    page = site.open(state="not_queued", **NOWHERE, refresh_after_seconds=0.02)
    expect(page.locator("#heading")).to_have_text(texts["lost"])
    found["lost"] = find_violations(page)
    assert {name: each for name, each in found.items() if each} == {}


def test_the_keyboard_is_enough(play):
    """The keyboard reaches all controls in visual order. Each shows its focus and works. The focus
    never returns to the top of the page."""
    site = play()
    page = site.open()
    expect(page.locator("#know li")).not_to_have_count(0)

    def focused():
        return page.evaluate("document.activeElement.id || document.activeElement.localName")

    for name in ("notify", "summary"):
        page.keyboard.press("Tab")
        assert focused() == name
        outline = "getComputedStyle(document.activeElement).outlineStyle"
        assert page.evaluate(outline) == "solid"
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert focused() == "leave"
    page.keyboard.press("Enter")
    assert focused() == "heading"
    page.keyboard.press("Tab")
    assert focused() == "undo"
    page.keyboard.press("Enter")
    assert focused() == "heading"
    expect(page.locator("html")).to_have_attribute("data-state", "waiting")
    page.locator("form summary").focus()
    site.again(state="full", **NOWHERE)
    expect(page.locator("html")).to_have_attribute("data-state", "full")
    assert focused() == "heading"  # The focused element is hidden.
    assert page.problems == []


@pytest.mark.parametrize("locale", ["de-DE", "ar", "ja"])
def test_a_zoom_of_400_percent_loses_nothing(play, locale):
    """At 320 x 256, as on a screen of 1280 x 1024, nothing scrolls sideways or is cut off."""
    site = play(locale=locale, viewport={"width": 320, "height": 256})
    for answer in STATES.values():
        page = site.open(**answer)
        expect(page.locator("#heading")).not_to_be_empty()
        assert page.evaluate("document.documentElement.scrollWidth") == 320
        cut = page.locator("main :visible").evaluate_all(
            "all => all.filter(e => e.scrollWidth > e.clientWidth + 1 && e.clientWidth > 1 &&"
            " getComputedStyle(e).overflow === 'hidden').map(e => e.id)"
        )
        assert cut == []


def test_forced_colours_show_the_progress_and_what_is_pressed(play):
    """With forced colours, the bar and the buttons have a border."""
    site = play(forced_colors="active")
    page = site.open(position=5)
    site.again(position=3, ahead=2)
    bar, button = page.locator("progress"), page.locator("#notify")
    expect(button).to_be_visible()
    for each in (bar, button):
        assert each.evaluate("e => getComputedStyle(e).borderTopStyle") == "solid"
    page.clock.resume()
    assert find_violations(page) == []


def test_no_rule_is_broken_without_scripts(play):
    """The page breaks no rule before its script runs, or if the script does not load."""
    site = play()
    site.view = "waiting"
    site.page.route("**/waiting.js*", lambda route: route.abort())
    page = site.open()
    page.clock.resume()
    expect(page.get_by_role("button", name="Join again")).to_have_count(0)
    page.get_by_text("Leave the line").click()
    expect(page.get_by_role("button", name="Leave", exact=True)).to_be_visible()
    page.evaluate("document.documentElement.lang = 'en'")  # The sidecar sets it.
    # Without a script the page must reload itself.
    assert [each for each in find_violations(page) if "meta-refresh" not in each] == []
