"""The overview of the dashboard: twenty rooms, alerts, and links to rooms."""

import json
import time

import pytest
from playwright.sync_api import expect

from tests.support.dashboard import Dashboard, room, send_log_in

STAYS = {"heartbeat_timeout": 3600, "session_duration": 3600}
ROOMS = {f"sale-{n:02}": {"total_active_users": 2, **STAYS} for n in range(20)}
ROOMS["sale-09"]["queue_all"] = True
ROOMS["sale-13"] |= {"total_active_users": 1, "max_waiting": 1}
ROOMS["sale-02"]["events"] = json.dumps(
    [{"name": "autumn", "opens_at": (int(time.time()) + 90_060) * 1000}]
)
ROOMS["sale-05"]["total_active_users"] = 1


@pytest.fixture(scope="module")
def site():
    leases = {"seat": {"capacity": 1, "term": 300}}
    limits = {"mail": {"algorithm": "fixed_window", "limit": 2, "window": 60}}
    hooks = {"webhooks.pager.url": "https://pager.example.com/secret"}
    settings = {**hooks, "store_timeout": 1}
    with Dashboard(rooms=ROOMS, leases=leases, limits=limits, settings=settings) as site:
        yield site


@pytest.fixture
def desk(site, visitor):
    """Return a function that logs in to the dashboard."""

    def make(width=1280, height=800, **options):
        page = visitor(viewport={"width": width, "height": height}, **options)
        send_log_in(page, site.ops[0])
        expect(rows(page)).to_have_count(20)
        return page

    return make


def rows(page):
    return page.locator("table.rooms tbody tr")


def state(page, name):
    return row(page, name).locator(".state")


def row(page, name):
    return rows(page).filter(has=page.get_by_role("link", name=name))


def test_twenty_rooms_fit_and_the_troubled_ones_are_first(desk):
    """A laptop shows all rooms without scrolling, the paused room first and last the one that is
    closed as planned. Leases, limits and webhooks have rows below, without addresses of webhooks.
    Each table has its name, and a line has the totals."""
    page = desk()
    box = rows(page).last.bounding_box()
    assert box["y"] + box["height"] <= 800
    expect(rows(page).first).to_contain_text("Paused")
    expect(rows(page).nth(1)).to_contain_text("sale-00")
    expect(rows(page).last).to_contain_text("sale-02")
    expect(state(page, "sale-02")).to_have_text("Closed, opens in 25 h")
    expect(state(page, "sale-02")).to_have_attribute("data-kind", "planned")
    expect(page.locator("#totals")).to_have_text(
        "20 rooms (1 closed, 1 paused) · 0 waiting · 0 of 38 inside · 0 let in a minute"
    )
    for name in ("Rooms", "Leases", "Limits", "Webhooks"):
        expect(page.get_by_role("table", name=name, exact=True)).to_be_visible()
    expect(page.locator("#alerts .quiet")).to_have_text("No alerts.")
    for kind, name in (("leases", "seat"), ("limits", "mail"), ("webhooks", "pager")):
        expect(page.locator(f"table.{kind} tbody tr")).to_contain_text([name])
    assert "secret" not in page.content()
    assert page.problems == []


def test_a_room_has_one_word_for_its_state(site, desk):
    """In the overview, on its card and on the wall display. A room in which somebody waits comes
    before those in which nobody does."""
    page = desk()
    page.mouse.move(0, 0)
    for _ in range(2):
        site.arrive("sale-05")
    expect(state(page, "sale-05")).to_have_text("At cap")
    expect(rows(page).nth(1)).to_contain_text("sale-05")
    expect(page.locator("#totals")).to_contain_text("1 waiting · 1 of 38 inside")
    card = room(page, "sale-05")
    expect(card.locator(".mode")).to_have_text("At cap")
    with page.expect_popup() as wall:
        card.get_by_role("link", name="Wall display").click()
    expect(wall.value.locator("#state")).to_have_text("At cap")
    assert site.room("sale-05")["state"] == "at_cap"
    assert page.problems == []


def test_a_row_opens_its_room_by_a_click_and_by_the_keyboard(desk):
    """A click anywhere in the row, or Enter, opens the room with its controls."""
    page = desk()
    row(page, "sale-04").locator("td").nth(2).click()
    expect(page.get_by_role("heading", level=1, name="sale-04")).to_be_visible()
    expect(page.locator("#room-sale-04").get_by_role("button", name="Pause").first).to_be_visible()
    page.go_back()
    row(page, "sale-05").get_by_role("link").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1, name="sale-05")).to_be_visible()
    assert page.problems == []


def test_a_room_is_found_by_its_name(desk):
    """Typing shows only the rooms whose names contain the text."""
    page = desk()
    page.get_by_label("Show rooms whose name contains").fill("-1")
    expect(rows(page).locator("visible=true")).to_have_count(10)


def test_an_alert_is_shown_said_once_and_leads_to_its_room(site, desk):
    """An alert has its meaning and a remedy. The row of its room moves up."""
    page = desk()
    page.mouse.move(0, 0)
    page.evaluate(
        "window.said = []; new MutationObserver(() => said.push(1))"
        ".observe(document.querySelector('#alerts [role=status]'), {childList: true})"
    )
    for _ in range(4):
        site.arrive("sale-13")
    alert = page.locator("#alerts li")
    expect(alert).to_contain_text(
        "Room sale-13: newcomers are turned away because the queue is full"
    )
    expect(page.locator("#alerts [role=status]")).to_contain_text("New alert: Room sale-13")
    expect(rows(page).first).to_contain_text("1 alert")
    # Updates in the next three seconds must not announce the alert again.
    page.wait_for_timeout(3000)
    assert page.evaluate("said.length") == 1
    alert.locator("summary").click()
    expect(alert).to_contain_text("What to do: Raise max_waiting or total_active_users.")
    alert.get_by_role("link", name="Open sale-13").click()
    expect(page.get_by_role("heading", level=1, name="sale-13")).to_be_visible()
    assert page.problems == []


def test_an_alert_of_all_rooms_is_one_and_goes(site, desk):
    """If Redis does not respond, twenty rooms have one alert, which disappears afterwards."""
    page = desk()
    away = page.locator("#alerts li[data-severity=critical]")
    expect(away).to_have_count(0)
    site.redis.freeze()
    try:
        expect(away).to_contain_text("Redis does not answer")
        expect(away).to_contain_text("and 19 more")
        expect(row(page, "sale-00")).to_contain_text("No Redis")
    finally:
        site.redis.thaw()
    expect(away).to_have_count(0)
