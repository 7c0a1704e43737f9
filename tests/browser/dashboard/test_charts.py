"""The charts of a room on the dashboard."""

import json
import re
import time

import pytest
import redis
from playwright.sync_api import expect

from sidecar.rooms.redis_keys import room_key
from tests.support.dashboard import Dashboard, log_in, view, write_past

HOUR = 60
NOW = int(time.time() * 1000)
ADAPTIVE = {"mode": "on", "p90": 1.2, "min": 30}
SALE = {"name": "sale", "opens_at": NOW - 40 * 60_000}


@pytest.fixture(scope="module")
def site():
    rooms = {
        "shop": {"total_active_users": 50, "events": json.dumps([SALE])},
        "new": {"total_active_users": 5},
        "young": {"total_active_users": 50},
        "sized": {"total_active_users": 50, "adaptive": json.dumps(ADAPTIVE)},
    }
    with Dashboard(rooms=rooms) as site:
        write_past(site, "sized", 60, lambda ago: {"site": [20 + ago % 31, 0.4 + ago / 50, 0]})
        write_past(site, "shop", 100)
        write_past(site, "young", 12)
        yield site


@pytest.fixture
def charts(site, visitor):
    """Return a function that opens the charts of a room."""

    def make(room="shop", **options):
        page = log_in(site, visitor(**options), "Ada")
        view(page, f"rooms/{room}")
        return page, page.locator(f"#room-{room} .charts")

    return make


def read_steps(site, **asked):
    query = "&".join(f"{name}={value}" for name, value in asked.items())
    return site.admin("GET", f"/rooms/shop/series?{query}")["steps"]


def find_slider(shown, title):
    return shown.get_by_role("slider", name=title)


def read_first_time(shown):
    """Wait until the charts are drawn. Return the time at which they begin."""
    chart, summary = shown.get_by_role("img").first, re.compile(r"a minute, (.*) to .*?\. Joined")
    expect(chart).to_have_attribute("aria-label", summary)
    return summary.search(chart.get_attribute("aria-label"))[1]


def test_what_is_pointed_at_is_what_the_api_says(site, charts):
    """All charts show the API's values for the same minute, by mouse and by keyboard."""
    page, shown = charts()
    slider = find_slider(shown, "Waiting")
    expect(slider).to_have_attribute("aria-valuemax", re.compile(r"\d\d"))
    slider.scroll_into_view_if_needed()
    box = slider.bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.3, box["y"] + box["height"] / 2)
    expect(shown.locator(".readout")).to_contain_text(" to ")
    at = slider.get_attribute("aria-valuetext").split(": ")[0]
    known = {
        page.evaluate(
            "ms => new Date(ms).toLocaleTimeString('en-GB').slice(0, 5)", each["ends_ms"]
        ): each
        for each in read_steps(site)
    }
    row = known[at[-5:]]
    minutes = (row["ends_ms"] - row["from_ms"]) / 60_000
    values = shown.locator(".value")
    expect(values.nth(0)).to_have_text(f"{row['joined'] / minutes:,.0f}")
    expect(values.nth(1)).to_have_text("3")
    expect(values.nth(2)).to_have_text(str(row["waiting"]))
    half = row["wait_half"]
    expect(values.nth(3)).to_have_text(f"{half:.0f} s" if half < 100 else f"{half / 60:.0f} min")
    page.mouse.move(0, 0)
    slider.focus()
    page.keyboard.press("Home")
    begin = slider.get_attribute("aria-valuetext")
    assert slider.get_attribute("aria-valuenow") == "0"
    page.keyboard.press("ArrowRight")
    assert slider.get_attribute("aria-valuenow") == "1"
    assert slider.get_attribute("aria-valuetext") != begin
    assert page.problems == []


def test_a_range_and_a_zoom_are_of_all_charts(charts):
    """Dragging zooms all charts. Escape, a double click and the button reset the zoom."""
    page, shown = charts()
    hour = read_first_time(shown)
    shown.get_by_role("button", name="15 min").click()
    expect(shown.get_by_role("img").nth(4)).not_to_have_attribute("aria-label", re.compile(hour))
    shown.get_by_role("button", name="6 h").click()
    # The charts begin with the data, an hour and forty minutes ago.
    expect(shown.get_by_role("button", name="6 h")).to_have_attribute("aria-pressed", "true")
    expect(shown.get_by_role("img").first).not_to_have_attribute("aria-label", re.compile(hour))
    shown.get_by_role("button", name="1 h").click()
    expect(shown.get_by_role("img").first).to_have_attribute("aria-label", re.compile(hour))
    slider = find_slider(shown, "Inside")
    for back in ("Escape", "button", "double"):
        slider.scroll_into_view_if_needed()
        box = slider.bounding_box()
        y = box["y"] + box["height"] / 2
        page.mouse.move(box["x"] + box["width"] * 0.5, y)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] * 0.8, y, steps=4)
        page.mouse.up()
        reset = shown.get_by_role("button", name="Reset zoom")
        expect(reset).to_be_visible()
        for picture in (0, 4):
            label = shown.get_by_role("img").nth(picture)
            expect(label).not_to_have_attribute("aria-label", re.compile(hour))
        if back == "button":
            reset.click()
        elif back == "double":
            slider.dblclick()
        else:
            slider.focus()
            page.keyboard.press("Escape")
        expect(reset).to_be_hidden()
        expect(shown.get_by_role("img").first).to_have_attribute("aria-label", re.compile(hour))
    assert page.problems == []


def test_nothing_is_drawn_where_nothing_was_measured(site, charts):
    """Gaps in the data are gaps in the line. The charts of a new room say that there is no data."""
    page, shown = charts()
    chart = shown.locator(".chart", has=page.get_by_role("slider", name="Waiting"))
    expect(chart.locator("polyline.area")).to_have_count(2)
    with redis.Redis(unix_socket_path=str(site.redis_socket)) as store:
        store.delete(room_key("new", "minutes"))  # On a slow machine there may be some.
    view(page, "rooms/new")
    fresh = page.locator("#room-new .charts")
    expect(fresh.locator(".readout")).to_contain_text("No data here")
    expect(fresh.locator("polyline")).to_have_count(0)
    assert page.problems == []


def test_both_waits_name_their_window(charts):
    """A room that has run for less than an hour has a shorter window."""
    page, _ = charts("young")
    named = page.locator("#room-young [data-f=window]")
    expect(named).to_have_text([re.compile(r"^last 1\d min$")] * 2)


def test_a_change_has_its_mark(site, charts):
    """Marks show changes with operator and time, and the opening of an event, also by keyboard."""
    page, shown = charts()
    site.admin("PATCH", "/rooms/shop", {"total_active_users": 60})
    flags = shown.locator(".flag")
    expect(flags.first).to_have_attribute("aria-label", re.compile("Event sale opens"))
    expect(flags.last).to_have_attribute("aria-label", re.compile("total_active_users.*60"))
    flags.last.focus()
    expect(flags.last.locator(".tip")).to_be_visible()
    lines = shown.locator(".chart").nth(3).locator("line.mark")
    expect(lines).not_to_have_count(0)
    shown.get_by_role("button", name="Event", exact=True).click()
    expect(shown.get_by_role("button", name="Event", exact=True)).to_have_attribute(
        "aria-pressed", "true"
    )
    expect(flags.first).to_have_attribute("aria-label", re.compile("Event sale opens"))
    assert page.problems == []


def test_a_table_and_a_phone(charts):
    """A table has the same values as the charts. At 390 px nothing scrolls sideways."""
    page, shown = charts(viewport={"width": 390, "height": 844}, has_touch=True)
    expect(find_slider(shown, "Waiting")).to_have_attribute("aria-valuemax", re.compile(r"\d\d"))
    shown.get_by_text("Show as table").click()
    rows = shown.locator("tbody tr")
    expect(rows.last).to_contain_text("48")
    assert rows.count() > 40
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    assert page.problems == []


def test_an_adaptive_room_shows_its_site(charts):
    """One chart has visitors, and response times by an axis of their own; the card has the state in
    words, and the cap in force. Other rooms have none of this."""
    page, shown = charts("sized")
    card = page.locator("#room-sized")
    expect(card.locator(".adaptive")).to_have_text(
        "Site: no signal (nginx reports too few responses: not growing; 0 inside, 30 allowed)",
        timeout=10_000,
    )
    expect(card.locator("[data-f=cap]")).to_have_text("30 (cap 50)")
    figure = shown.locator(".chart", has_text="Site and ceiling")
    expect(figure.get_by_role("img")).to_have_attribute(
        "aria-label",
        re.compile(r"Ceiling: 20 to 50.* p90: 0.4\d s to 1.6 s.* Target: 1.2 s to 1.2 s"),
    )
    labels = figure.locator("svg[role=img] text[text-anchor]:not([text-anchor=middle])")
    right = figure.locator("svg[role=img] text:not([text-anchor])")
    assert right.count() == labels.count()
    assert right.last.text_content() == "1.8 s"
    slider = find_slider(shown, "Site and ceiling")
    slider.focus()
    page.keyboard.press("Home")
    expect(slider).to_have_attribute(
        "aria-valuetext", re.compile("Ceiling .*, p90 1.6 s, Target 1.2 s")
    )
    view(page, "rooms/new")
    expect(page.locator("#room-new .chart")).to_have_count(6)
    expect(page.locator("#room-new .chart", has_text="Site and ceiling")).to_be_hidden()
    expect(page.locator("#room-new .adaptive")).to_be_hidden()
