"""The waiting page takes nothing back that it has shown, however late the responses come."""

import json
import re

import pytest
from playwright.sync_api import expect

from sidecar.gate.page.languages import Languages
from tests.browser.played_page import NOWHERE
from tests.support.events import make_opening_event
from tests.support.nginx_client import Visitor
from tests.support.site import ROOT, Site, gated
from tests.support.story import raise_shield

ROOMS = {
    "full": {"total_active_users": 0, "max_waiting": 1},
    "closed": {"total_active_users": 0, "queueing_method": "reject"},
    "opens": {"total_active_users": 1, "events": [make_opening_event(hours=48)]},
    "prequeue": {
        "total_active_users": 0,
        "events": [make_opening_event(hours=1, prequeue_hours=2)],
    },
    "paused": {"total_active_users": 1, "queue_all": True},
    "joining": {"total_active_users": 0, "shield_above": 1, "heartbeat_interval": 1},
}
#: For each room, the names of the texts of the headings that its page may show, in this order.
HEADINGS = {
    "full": ["full"],
    "closed": ["closed"],
    "opens": ["not_open", "opens_on"],
    "prequeue": ["prequeue"],
    "paused": ["heading"],
    "joining": ["joining", "heading"],
}
#: Slows the page's requests down, and keeps in `seen` all that a visitor sees until its last one.
SLOW = """
const now = fetch;
window.fetch = async (path, ...more) => {
    await new Promise(go => setTimeout(go, /join/.test(path) ? 5000 : 1000));
    return now(path, ...more);
};
window.seen = [];
new MutationObserver(() => {
    const main = document.querySelector('main');
    if (!document.getElementById('live') || getComputedStyle(main).visibility === 'hidden') return;
    const { lang, dir, dataset } = document.documentElement;
    const heading = document.getElementById('heading').textContent;
    const words = `${heading}\\n${document.getElementById('intro').textContent}`;
    seen.push({ lang, dir, view: dataset.view, heading, words, all: main.innerText });
}).observe(document, { childList: true, subtree: true, characterData: true, attributes: true });
"""


@pytest.fixture(scope="module")
def site():
    rooms = {
        room: {**settings, "events": json.dumps(settings.get("events", []))}
        for room, settings in ROOMS.items()
    }
    with Site(
        rooms=rooms, locations="".join(gated(f"/{room}/", room=room) for room in rooms)
    ) as site:
        Visitor(site.url).get("/full/")  # takes the only place
        yield site


def test_nothing_is_taken_back(site, visitor):
    """No page shows a heading that a later response contradicts, or another language, while `join`
    takes five seconds: neither in a full, closed or paused room nor before an opening."""
    pages = {}
    for room in ROOMS:
        for locale in ("ar", "en-GB"):
            page = pages[room, locale] = visitor(locale=locale)
            page.add_init_script(SLOW)
            if room == "joining":
                raise_shield(site, room)
            page.goto(f"{site.url}/{room}/")
    for (room, locale), page in pages.items():
        expect(page.locator("#updated")).not_to_be_empty()
        texts = Languages(ROOT / "static").texts(locale[:2])
        seen = page.evaluate("seen")
        assert {(each["lang"], each["dir"]) for each in seen} == {
            ("ar", "rtl") if locale == "ar" else ("en", "ltr")
        }
        headings = list(dict.fromkeys(each["heading"] for each in seen))
        assert len(headings) == len(HEADINGS[room]), headings
        for heading, name in zip(headings, HEADINGS[room], strict=True):
            assert re.fullmatch(re.escape(texts[name]).replace(r"\{t\}", ".+"), heading)
        if len(headings) == 1 and room != "prequeue":  # whose text gets its time
            assert len({each["words"] for each in seen}) == 1
        if locale == "ar":
            assert not [each["all"] for each in seen if re.search("[a-z]{3}", each["all"])]
        assert page.problems == []


def test_without_cookies_no_place_is_shown(play):
    """If the browser blocks cookies, the script shows nothing before the first response, and then
    that it needs cookies. It does not join again."""
    site = play(locale="en-GB")
    site.page.add_init_script(SLOW)
    site.page.add_init_script(
        "Object.defineProperty(Navigator.prototype, 'cookieEnabled', { get: () => false })"
    )
    site.view = "waiting"
    page = site.open(state="not_queued", **NOWHERE, refresh_after_seconds=1)
    page.clock.resume()
    expect(page.locator("#intro")).to_contain_text("Allow cookies")
    seen = [each for each in page.evaluate("seen") if each.get("view") != site.view]  # by scripts
    assert {each["heading"] for each in seen} == {"You are not in line"}
    assert "join" not in site.asked
    assert page.problems == []
