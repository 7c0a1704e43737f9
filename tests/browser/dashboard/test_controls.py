"""The controls of a room: forecasts of changes, undo, the log, and the queue in pages."""

import functools
import json
import re
import time

import pytest
import redis
from playwright.sync_api import expect

from sidecar.rooms.redis_keys import room_key
from sidecar.visitors.visitor_number import visitor_number
from tests.support.browser import find_violations
from tests.support.dashboard import (
    QUICK,
    WithHistory,
    choose,
    confirm,
    control,
    log,
    overview,
    press,
    room,
    said,
    view,
    write_past,
)
from tests.support.processes import wait_until

PEOPLE = 75
SLOW = {**QUICK, "session_duration": 600, "heartbeat_timeout": 7200, "claim_window": 3600}
ROOMS = {"sale": SLOW, "act": SLOW, "calm": SLOW, "past": {"total_active_users": 50}}


@pytest.fixture(scope="module")
def site():
    with WithHistory(rooms=ROOMS) as site:
        for _ in range(1 + PEOPLE):
            site.arrive("sale")
        write_past(site, "past", 12)  # before a dashboard reads the samples
        yield site


def will(page, name, what):
    """Return the element in which a control forecasts its effect."""
    return control(page, name, what).locator(".will")


def make_older(site, name, ms):
    """Let the entries of a room's log be older than they are."""
    with redis.Redis(unix_socket_path=str(site.redis_socket)) as store:
        key = room_key(name, "log")
        for i, row in enumerate(store.lrange(key, 0, -1)):
            entry = json.loads(row)
            store.lset(key, i, json.dumps({**entry, "at": entry["at"] - ms}))


def cap_of(site, name):
    return site.room(name)["settings"]["total_active_users"]


def test_what_a_change_will_do_is_said_before(site, operator):
    """While an operator types, a forecast with numbers appears, and nothing changes. Later the
    forecast comes true."""
    page = operator()
    cap = control(page, "sale", "total_active_users").get_by_label("Cap")
    cap.fill("21")
    forecast = will(page, "sale", "total_active_users")
    expect(forecast).to_contain_text(re.compile(r"Raise to 21: 2\d more are called within about a"))
    expect(forecast).to_contain_text(
        re.compile(rf"The last of the {PEOPLE} waiting now gets in at about .*\(now: .*\d\d:\d\d\)")
    )
    assert cap_of(site, "sale") == 1
    cap.fill("0")
    expect(forecast).to_have_text(
        f"Set to 0: nobody is called. {PEOPLE} wait, and the 1 inside stay."
    )
    cap.fill("-1")
    expect(forecast).to_be_hidden()
    cap.fill("21")
    cap.press("Enter")
    confirm(page, "Raise to 21")
    expect(said(page, "sale", "total_active_users")).to_have_text("✓ It is 21 now.")
    expect(forecast).to_be_hidden()
    expect(room(page, "sale").locator("[data-f=active]")).to_have_text("21")
    cap.fill("5")
    expect(forecast).to_contain_text(
        "Lower to 5: 21 are inside: nobody is called until 16 have left"
    )

    rate = control(page, "sale", "new_users_per_minute").get_by_label("Rate")
    rate.fill("1")
    expect(will(page, "sale", "new_users_per_minute")).to_contain_text(
        re.compile(r"At 1 a minute the last of the 55 waiting now gets in at about .*\(now: ")
    )
    text = control(page, "sale", "message").get_by_label("Message")
    text.fill("<b>Soon</b>\nWe are back at nine")
    expect(will(page, "sale", "message").locator(".box")).to_have_text(
        "<b>Soon</b>\nWe are back at nine", use_inner_text=True
    )
    assert site.room("sale")["settings"]["message"] is None

    press(room(page, "sale"), "Pause")
    expect(page.locator("#ask-text")).to_contain_text("55 wait")
    confirm(page, "Cancel")
    press(room(page, "sale"), "Drain")
    expect(page.locator("#ask-text")).to_contain_text("The 55 in the queue are let in, the last of")
    confirm(page, "Cancel")
    press(room(page, "sale"), "Suspend")
    expect(page.locator("#ask-text")).to_contain_text("the 55 in the queue at their next poll")
    confirm(page, "Cancel")
    press(room(page, "sale"), "Reset the queue")
    expect(page.locator("#ask-text")).to_contain_text(
        "55 now, loses the place. The 21 inside stay."
    )
    confirm(page, "Cancel")
    assert site.room("sale")["changed"] == {"total_active_users": 21}
    assert page.problems == []


def test_a_message_has_languages_and_an_end(site, operator):
    """An operator writes it for some languages and says how long visitors see it. It is shown and
    undone as a whole. Resume offers to take it away, in the same change."""
    page = operator()
    form = control(page, "calm", "message")
    form.get_by_label("Message").fill("Back soon")
    form.get_by_text("In other languages").click()
    form.get_by_label("Add a language").select_option("German")
    form.get_by_role("textbox", name="German").fill("Gleich weiter")
    form.get_by_label("Show it").select_option("for 15 minutes")
    press(form, "Show it")
    expect(said(page, "calm", "message")).to_have_text(
        re.compile("^✓ It is “Back soon” \\(de, until [0-9]{2}:[0-9]{2}\\) now\\.$")
    )
    message = site.room("calm")["settings"]["message"]
    assert message.items() >= {"text": "Back soon", "de": "Gleich weiter"}.items()
    expect(form.locator(".ends")).to_have_text(re.compile("^Visitors see it until "))
    expect(form.get_by_label("Show it").locator(":checked")).to_have_text(re.compile("^until "))
    expect(room(page, "calm").locator(".changed")).to_contain_text("message: “Back soon” (de, ")
    assert find_violations(page) == []
    press(form, "Undo")
    expect(form.get_by_label("Message")).to_have_value("")
    expect(form.locator(".ends")).to_be_hidden()
    site.admin("PATCH", "/rooms/calm", {"message": message, "queue_all": True})
    press(room(page, "calm"), "Resume")
    expect(page.get_by_role("checkbox", name="Take it away: “Back soon”")).to_be_checked()
    assert find_violations(page) == []
    confirm(page, "Resume")
    expect(room(page, "calm").locator(".mode")).to_have_text("Running")
    assert site.room("calm")["changed"] == {}
    press(control(page, "calm", "run"), "Undo")
    expect(room(page, "calm").locator(".mode")).to_have_text("Paused")
    press(room(page, "calm"), "Resume")
    page.get_by_role("checkbox").uncheck()
    confirm(page, "Resume")
    expect(room(page, "calm").locator(".mode")).to_have_text("Running")
    assert site.room("calm")["changed"] == {"message": message}
    site.admin("PATCH", "/rooms/calm", {"message": None})
    assert page.problems == []


def test_one_click_undoes(site, operator):
    """Undo restores cap, rate, message and mode, also if there was no own value. The log names both
    changes with old and new values."""
    page = operator()
    site.admin("PATCH", "/rooms/act", {"new_users_per_minute": 30})
    for what, label, value in (
        ("total_active_users", "Cap", "9"),
        ("new_users_per_minute", "Rate", "60"),
        ("message", "Message", "soon"),
    ):
        control(page, "act", what).get_by_label(label).fill(value)
        press(control(page, "act", what), re.compile("Set|Show it"))
        if label == "Cap":
            confirm(page, "Raise to 9")
        press(control(page, "act", what), "Undo")
        expect(said(page, "act", what)).to_have_text("✓ Undone: it is as it was before.")
        expect(control(page, "act", what).get_by_role("button", name="Undo")).to_have_count(0)
        assert site.room("act")["changed"] == {"new_users_per_minute": 30}
    for act, what in (("Pause", "run"), ("Drain", "drain"), ("Suspend", "suspend")):
        press(control(page, "act", what), act)
        confirm(page, act)
        press(control(page, "act", what), "Undo")
        expect(room(page, "act").locator(".mode")).to_have_text("Running")
        assert site.room("act")["changed"] == {"new_users_per_minute": 30}
    latest = room(page, "act").locator(".latest li")
    expect(latest).to_have_count(5)
    expect(latest.nth(0)).to_contain_text("undid a change: ended the suspension")
    expect(latest.nth(1)).to_contain_text("suspended")
    expect(log(page)).to_contain_text("total_active_users: 1 → 9")
    expect(log(page)).to_contain_text("new_users_per_minute: 60 → 30")
    site.admin("PATCH", "/rooms/act", {"new_users_per_minute": None})
    assert page.problems == []


def test_two_operators_do_not_fight(site, operator):
    """Ada's undo does not overwrite a later change of Bo, and names Bo. Ada can undo Bo's latest
    change from the list."""
    page, other = operator(), operator("Bo")
    cap = control(page, "calm", "total_active_users")
    cap.get_by_label("Cap").fill("5")
    press(cap, "Set")
    confirm(page, "Raise to 5")
    expect(cap.get_by_role("button", name="Undo")).to_be_visible()
    control(other, "calm", "total_active_users").get_by_label("Cap").fill("7")
    press(control(other, "calm", "total_active_users"), "Set")
    expect(said(other, "calm", "total_active_users")).to_have_text("✓ It is 7 now.")
    press(cap, "Undo")
    expect(said(page, "calm", "total_active_users")).to_contain_text(
        "✗ Not done: Changed since: Bo changed total_active_users at "
    )
    assert cap_of(site, "calm") == 7
    page.problems.clear()  # The browser reports the status 409.
    newest = room(page, "calm").locator(".latest li").first
    expect(newest).to_contain_text("Bo")
    press(newest, "Undo")
    expect(room(page, "calm").locator("[data-f=cap]")).to_have_text("5")
    expect(room(page, "calm").locator(".latest output")).to_contain_text("Undone")
    assert other.problems == []
    assert page.problems == []


def test_the_log_of_all_rooms(site, operator):
    """The log can be filtered by room and operator. Older entries come from the history."""
    for number in range(70):
        site.admin("PATCH", "/rooms/calm", {"total_active_users": 200 + number})
    first = "total_active_users: 200 → 201"
    written = functools.partial(site.admin, "GET", "/rooms/calm/changes?limit=100")
    wait_until(lambda: len(written()["changes"]) >= 70, "the history's rows")
    page = operator("Cleo")
    cap = control(page, "sale", "total_active_users")
    cap.get_by_label("Cap").fill("22")
    press(cap, "Set")
    rows = log(page).locator("li")
    expect(rows).to_have_count(50)
    page.get_by_label("Operator").select_option("Cleo")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text(re.compile("total_active_users: .* → 22"))
    page.get_by_label("Operator").select_option("")
    page.locator("#acts [name=room]").select_option("calm")
    expect(rows).to_have_count(50)
    expect(log(page)).not_to_contain_text(first)
    older = page.get_by_role("button", name="Older")
    older.click()
    expect(log(page)).to_contain_text(first)
    press(rows.filter(has_text="total_active_users: 203 → 204"), "Put back")
    expect(page.locator("#acts output")).to_contain_text("Done: put back to 203")
    assert site.admin("GET", "/rooms/calm")["settings"]["total_active_users"] == 203
    view(page, "log/sale")
    assert page.problems == []


def test_somebody_in_the_middle_is_found_and_moved(site, operator):
    """The queue is shown in pages of fifty, with places and times. A row's menu works by keyboard,
    and the focus returns to its button."""
    page = operator()
    rows = room(page, "sale").locator(".line tbody tr")
    expect(rows).to_have_count(10)
    ids = site.line("sale")
    press(room(page, "sale"), "Next 50")
    expect(rows.first.locator("th")).to_have_text("11")
    expect(rows.first.locator(".joined")).to_have_text(re.compile(r"\d+ (s|min) ago, \d\d:\d\d"))
    expect(room(page, "sale").locator(".pages .hint")).to_contain_text(
        f"11 to {len(ids)} of {len(ids)}"
    )
    who = visitor_number(ids[20])
    button = rows.filter(has_text=who).get_by_role("button", name="Actions")
    button.focus()
    page.keyboard.press("ArrowDown")
    expect(page.get_by_role("menuitem", name="Move")).to_be_focused()
    page.keyboard.press("ArrowUp")
    expect(page.get_by_role("menuitem", name="Look up")).to_be_focused()
    page.keyboard.press("Escape")
    expect(button).to_be_focused()
    expect(button).to_have_attribute("aria-expanded", "false")
    button.press("Enter")
    page.keyboard.press("Enter")
    press(page.locator("#move"), "Move")
    expect(room(page, "sale").locator(".line > output")).to_have_text(f"✓ {who} is at place 1 now.")
    press(room(page, "sale"), "Head")
    expect(rows.first.locator("code")).to_have_text(who)
    choose(rows.first, "Look up")
    expect(said(page, "sale", "look")).to_contain_text("In the queue, at place 1. Joined ")
    assert page.problems == []


def test_one_hand_at_night(site, operator):
    """On a dark phone, a row's menu opens within the page, nothing scrolls sideways, and controls
    are as large as a thumb."""
    phone = {"width": 390, "height": 844}
    page = operator(viewport=phone, color_scheme="dark", has_touch=True)
    rows = room(page, "sale").locator(".line tbody tr")
    rows.nth(9).get_by_role("button", name="Actions").tap()
    items = page.get_by_role("menuitem")
    expect(items).to_have_text(["Move …", "Release …", "Look up"])
    for item in items.all():
        box = item.bounding_box()
        assert box["height"] >= 44
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390
    page.locator("h1:visible").tap()
    expect(items).to_have_count(0)
    cap = control(page, "calm", "total_active_users")
    cap.get_by_label("Cap").fill("300")
    expect(cap.locator(".will")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    press(cap, "Set")
    undo = cap.get_by_role("button", name="Undo")
    assert undo.bounding_box()["height"] >= 44
    undo.tap()
    expect(said(page, "calm", "total_active_users")).to_contain_text("Undone")
    expect(log(page).locator("li").first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    assert page.problems == []


def test_who_paused_and_why_is_said(site, operator):
    """The head of the room and the overview name the operator and the reason, in each browser. So
    does the log. After Resume nothing is said. A pause is not also called a change at run time."""
    changed = site.room("calm")["changed"]
    site.admin("PATCH", "/rooms/calm", dict.fromkeys({"total_active_users", *changed}))
    page, other = operator(), operator("Ben")
    press(room(page, "calm"), "Pause")
    confirm(page, "Pause", typed="no stock")
    said_of = re.compile(r"^Paused by Ada, \d+ s ago: no stock$")
    for each in (page, other):
        expect(room(each, "calm").locator(".stopped")).to_have_text(said_of)
        note = overview(each).locator("tr", has_text="calm").locator(".note-of")
        expect(note).to_have_text(said_of)
    expect(log(page)).to_contain_text("paused: no stock")
    press(room(other, "calm"), "Resume")
    expect(room(page, "calm").locator(".stopped")).to_be_hidden()
    assert page.problems == other.problems == []


def test_letting_in_far_more_asks_first(site, operator):
    """A cap that more than doubles, or more than twice as many calls, asks. Steps of 10 % only
    change the field. Cancel changes nothing."""
    page = operator()
    site.admin("PATCH", "/rooms/calm", {"total_active_users": 30})
    cap = control(page, "calm", "total_active_users")
    field = cap.get_by_label("Cap: how many")
    expect(field).to_have_value("30")
    press(cap, "+10 %")
    expect(field).to_have_value("33")
    press(cap, "−10 %")
    press(cap, "−10 %")
    expect(field).to_have_value("27")
    assert cap_of(site, "calm") == 30
    field.fill("61")
    press(cap, re.compile("^Set$"))
    expect(page.locator("#ask-title")).to_have_text("Raise the cap from 30 to 61?")
    confirm(page, "Cancel")
    assert cap_of(site, "calm") == 30
    press(cap, re.compile("^Set$"))
    confirm(page, "Raise to 61")
    expect(said(page, "calm", "total_active_users")).to_have_text("✓ It is 61 now.")
    field.fill("100")
    press(cap, re.compile("^Set$"))
    expect(said(page, "calm", "total_active_users")).to_have_text("✓ It is 100 now.")
    # A higher rate asks if more than twice as many are called.
    site.admin("PATCH", "/rooms/sale", {"total_active_users": 60, "new_users_per_minute": 1})
    rate = control(page, "sale", "new_users_per_minute")
    rate.get_by_label("Rate: let in").fill("40")
    press(rate, re.compile("^Set$"))
    expect(page.locator("#ask-title")).to_contain_text(re.compile(r"Call \d+ in a minute\?"))
    confirm(page, "Cancel")
    assert site.room("sale")["settings"]["new_users_per_minute"] == 1
    assert page.problems == []


def test_a_change_can_be_put_back_later(site, operator):
    """After the minute for Undo, each change that is still in force offers to put the values back
    that were before."""
    site.admin("PATCH", "/rooms/act", {"total_active_users": 5})
    site.admin("PATCH", "/rooms/act", {"total_active_users": 2})
    make_older(site, "act", 120_000)
    page = operator()
    latest = room(page, "act").locator(".latest li")
    expect(latest.nth(0)).to_contain_text(re.compile(r"Put back to 5, as at \d\d:\d\d"))
    expect(latest.nth(1)).to_contain_text(re.compile(r"Put back to 1, as at \d\d:\d\d"))
    press(latest.nth(1), "Put back to 1")
    expect(room(page, "act").locator(".latest output")).to_contain_text("✓ Done: put back to 1")
    assert site.room("act")["changed"] == {}
    assert cap_of(site, "act") == 1
    press(latest.nth(1), "Put back to 5")  # its row moved down
    expect(page.locator("#ask-title")).to_have_text("Raise the cap from 1 to 5?")
    confirm(page, "Cancel")
    assert cap_of(site, "act") == 1
    assert page.problems == []


def test_the_record_of_the_estimate(site, operator):
    """A chart compares what was estimated with the waits that followed, and says how often the
    range held: 120 s were promised eight times, and two visitors were in after 30."""
    events, minute_ms = [], int(time.time() // 60) * 60_000
    for ago in range(10, 2, -1):
        at_ms, waited_ms = minute_ms - ago * 60_000, 30_000 if ago in {5, 6} else 125_000
        promise = {"why": "estimate", "wait": 120_000, "calls": 20, "error": 100}
        for kind, ms, more in (
            ("joined", at_ms + 1, {"why": "new", "order": at_ms, "position": 21}),
            ("promised", at_ms + 2, promise),
            ("admitted", at_ms + 2 + waited_ms, {"why": "claimed", "order": at_ms}),
        ):
            visitor = f"v{ago:021}"
            events.append((ms, {"kind": kind, "visitor": visitor, "at": ms, **more}))
    events.sort(key=lambda event: event[0])
    with redis.Redis(unix_socket_path=str(site.redis_socket)) as store:
        for number, (ms, fields) in enumerate(events):
            store.xadd(room_key("past", "events"), fields, id=f"{ms}-{number + 1}")

    def count():
        steps = site.admin("GET", "/rooms/past/estimates?from=1h")["steps"]
        return sum(step["estimates"] for step in steps)

    wait_until(lambda: count() == 8, "the history's rows")
    page = operator()
    chart = room(page, "past").locator("figure").last
    expect(chart.locator("figcaption")).to_have_text(
        "Estimated and real wait the range held for 75 % of 8"
    )
    said_by_it = re.compile(r"Waited: 30 s to 2 min, .*Estimated: 2 min to 2 min")
    expect(chart.get_by_role("img")).to_have_attribute("aria-label", said_by_it)
    assert find_violations(page) == []
    assert page.problems == []
