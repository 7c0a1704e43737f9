"""The dashboard in a browser, with a real replica and Redis, and without nginx."""

import json
import re
import time
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from playwright.sync_api import expect

from sidecar.visitors.visitor_number import visitor_number
from tests.support.dashboard import (
    QUICK,
    WithHistory,
    choose,
    confirm,
    control,
    figure,
    is_waiting,
    log,
    log_in,
    move,
    numbers,
    overview,
    press,
    room,
    said,
    send_log_in,
)
from tests.support.processes import wait_until
from tests.support.site import ADMIN_TOKEN, answers

#: An event in its pre-queue, which opens in about five hours.
NOW = int(time.time() * 1000)
EVENT = {"name": "autumn", "prequeue_from": NOW - 60_000, "opens_at": NOW + 17_000_000}
ROOMS = {
    "act": QUICK,
    "line": QUICK,
    "move": QUICK,
    "live": {**QUICK, "total_active_users": 5},
    "lines": {
        **QUICK,
        "lines": json.dumps([{"name": "fast"}, {"name": "ordinary"}]),
        "classes": json.dumps({"vip": {"line": "fast"}}),
        "class_header": True,
        "heartbeat_timeout": 7200,
        "claim_window": 3600,
    },
    "draw": {**QUICK, "events": json.dumps([EVENT])},
}


@pytest.fixture(scope="module")
def site():
    with WithHistory(rooms=ROOMS) as site:
        yield site


def test_the_way_in_and_out(site, visitor):
    """A wrong token is refused with a message. Logging out also ends the session in other tabs."""
    page = visitor()
    send_log_in(page, site.ops[0], "Ada", "wrong")
    expect(page.get_by_role("alert")).to_contain_text("not the admin token")
    page.problems.clear()  # The browser reports the status 401.
    page.get_by_label("Who are you?").fill("Ada")
    page.get_by_label("Admin token").fill(ADMIN_TOKEN)
    press(page, "Log in")
    expect(page.locator("#operator")).to_have_text("Ada")
    tab = page.context.new_page()
    tab.goto(site.dashboard)
    expect(tab.locator("#link")).to_have_text("Live")
    press(page, "Log out")
    expect(page.get_by_label("Admin token")).to_be_visible()
    expect(tab.get_by_label("Admin token")).to_be_visible()
    assert page.problems == []


def test_what_is_set_is_in_force(site, operator, visitor):
    """Changes of cap, rate and message are shown, apply to the room and its visitors, and can be
    reset."""
    page, waiting = operator(), visitor()
    site.arrive("act")
    waiting.goto(site.page("act"))
    expect(waiting.locator("#ahead")).to_have_text("0")

    cap = control(page, "act", "total_active_users")
    cap.get_by_label("Cap").fill("-1")
    cap.get_by_label("Cap").evaluate("field => field.form.noValidate = true")
    press(cap, "Set")
    expect(said(page, "act", "total_active_users")).to_contain_text(
        "Not done: total_active_users: must be at least 0 (got -1)"
    )
    page.problems.clear()  # The browser reports the status 422.
    cap.get_by_label("Cap").fill("0")
    press(cap, "Set")
    expect(said(page, "act", "total_active_users")).to_have_text("✓ It is 0 now.")
    expect(figure(page, "act", "cap")).to_have_text("0")
    expect(room(page, "act").locator(".differs")).to_have_text("cap 0, file: 1")
    expect(room(page, "act").locator(".notices")).to_contain_text("The cap is 0")
    assert site.room("act")["settings"]["total_active_users"] == 0
    press(cap, "Reset to configured value: 1")
    expect(said(page, "act", "total_active_users")).to_have_text("✓ It is 1 now.")
    expect(cap.get_by_label("Cap")).to_have_value("1")

    rate = control(page, "act", "new_users_per_minute")
    rate.get_by_label("Rate").fill("30")
    rate.get_by_label("Rate").press("Enter")
    expect(said(page, "act", "new_users_per_minute")).to_have_text("✓ It is 30 now.")
    assert site.room("act")["changed"] == {"new_users_per_minute": 30}
    changed = room(page, "act").locator(".changed")
    expect(changed).to_contain_text("new_users_per_minute: 30, file: none")
    press(changed, "Take back new_users_per_minute")
    expect(changed).to_have_text("Nothing: all is as in the settings file.")
    assert site.room("act")["changed"] == {}

    message = control(page, "act", "message")
    message.get_by_label("Message").fill("Back in <b>five</b> minutes")
    press(message, "Show it")
    expect(said(page, "act", "message")).to_contain_text("It is “Back in <b>five</b> minutes” now.")
    expect(waiting.locator("#message")).to_have_text("Back in <b>five</b> minutes")
    press(message, "Take it away")
    expect(said(page, "act", "message")).to_have_text("✓ It is none now.")
    expect(waiting.locator("#message")).to_be_hidden()
    assert site.room("act")["changed"] == {}
    assert page.problems == []


def test_running_pausing_draining_suspending(site, operator):
    """Modes apply and are shown. Pause, drain and suspend ask first, and Cancel changes nothing.
    Only the button that ends a mode is accented."""
    page = operator()
    mode, accented = room(page, "act").locator(".mode"), room(page, "act").locator("button.main")
    will = control(page, "act", "run").locator(".will")
    runs = "At cap" if site.room("act")["active"] else "Running"
    expect(accented).to_have_count(0)
    press(room(page, "act"), "Pause")
    confirm(page, "Pause")
    expect(said(page, "act", "run")).to_contain_text("✓ Paused: Nobody is let in")
    expect(mode).to_have_text("Paused")
    expect(room(page, "act").get_by_role("button", name="Pause …")).to_be_disabled()
    expect(accented).to_have_text(["Resume"])
    expect(will).to_contain_text("Resume: ")
    assert site.room("act")["changed"] == {"queue_all": True}
    press(room(page, "act"), "Resume")
    expect(mode).to_have_text(runs)
    expect(accented).to_have_count(0)

    press(room(page, "act"), "Drain")
    confirm(page, "Cancel")
    assert site.room("act")["mode"] == "running"
    press(room(page, "act"), "Drain")
    confirm(page, "Drain")
    expect(mode).to_have_text("Draining")
    expect(accented).to_have_text(["Resume"])
    expect(will).to_contain_text("Resume: ")
    assert site.room("act")["changed"] == {"max_waiting": 0}
    press(room(page, "act"), "Resume")
    expect(mode).to_have_text(runs)

    press(room(page, "act"), "Suspend")
    page.keyboard.press("Escape")
    assert site.room("act")["mode"] == "running"
    press(room(page, "act"), "Suspend")
    confirm(page, "Suspend")
    expect(mode).to_have_text("Off")
    expect(accented).to_have_text(["End it"])
    expect(will).to_contain_text("End it: ")
    assert site.room("act")["changed"] == {"suspended": True}
    press(room(page, "act"), "End it")
    expect(mode).to_have_text(runs)
    assert site.room("act")["changed"] == {}
    assert page.problems == []


def test_the_line_is_in_the_operators_hands(site, operator, visitor):
    """Visitors are released from the queue and from inside, and looked up with their past. The
    queue is emptied. The visitors' pages show it."""
    page, inside, first, second = operator(), visitor(), visitor(), visitor()
    inside.goto(site.page("line"))
    guest = site.admin("GET", "/rooms/line/sessions")["sessions"][0]["visitor"]
    for waiting, ahead in ((first, "0"), (second, "1")):
        waiting.goto(site.page("line"))
        expect(waiting.locator("#ahead")).to_have_text(ahead)
    site.arrive("line")
    ids = site.line("line")
    rows = room(page, "line").locator("tbody tr")
    expect(rows.locator("code")).to_have_text(numbers(ids))
    expect(rows.locator("code").nth(0)).to_have_attribute("title", ids[0])

    choose(rows.nth(0), "Release")
    expect(page.locator("#ask")).to_contain_text(visitor_number(ids[0]))
    confirm(page, "Release")
    expect(first.locator("html")).to_have_attribute("data-state", "not_queued")
    expect(rows.locator("code")).to_have_text(numbers(ids[1:]))

    look = control(page, "line", "look")
    for visitor_id, words in (
        (ids[1], "In the queue, at place 1."),
        (visitor_number(ids[1]).replace("-", "").lower(), "In the queue, at place 1."),
        ("oooo-ooo0", "Unknown visitor: no visitor here has the number 0000-0000"),
        (ids[0], "Left or was released at "),
        ("a" * 22, "Unknown: neither in the queue nor inside."),
        (visitor_number(guest), "Inside since "),
    ):
        look.get_by_label("Look a visitor up").fill(visitor_id)
        press(look, "Look up")
        expect(look.locator("output")).to_contain_text(words)
    expect(look.locator(".past")).to_contain_text("admitted, at_once")
    page.problems.clear()  # The browser reports the 404 of the unknown visitor.

    press(room(page, "line"), "Reset the queue")
    confirm(page, "Reset the queue", typed="lime")
    expect(page.locator("#ask")).to_contain_text("That is not line.")
    confirm(page, "Reset the queue", typed="line")
    expect(said(page, "line", "reset")).to_have_text("✓ 2 places removed.")
    expect(room(page, "line").locator(".nobody")).to_be_visible()
    expect(second.locator("html")).to_have_attribute("data-state", "not_queued")
    assert site.line("line") == []

    press(look, "Release")
    confirm(page, "Release")
    expect(look.locator("output")).to_contain_text("is released")
    inside.goto("about:blank")
    wait_until(lambda: is_waiting(site, inside), "the end of the released visit")
    expect(log(page)).to_contain_text("reset the queue: 2 places")
    expect(log(page)).to_contain_text(f"released {visitor_number(guest)}")
    assert page.problems == []


def test_somebody_is_moved(site, operator, visitor):
    """A visitor is moved to the head, to a place and back. The visitor's page shows it, and the log
    has the reason."""
    page, guest = operator(), visitor()
    site.arrive("move")
    first = site.arrive("move")
    guest.goto(site.page("move"))
    expect(guest.locator("#ahead")).to_have_text("1")
    last = site.arrive("move")
    rows = room(page, "move").locator("tbody tr")
    expect(rows).to_have_count(3)
    moved = site.line("move")[1]
    move(page, rows.nth(1), "To the head", then="Cancel")
    move(page, rows.nth(1), "To the head", why="<b>paid</b> twice")
    expect(room(page, "move").locator(".line > output")).to_have_text(
        f"✓ {visitor_number(moved)} is at place 1 now."
    )
    expect(guest.locator("#ahead")).to_have_text("0")
    expect(rows.locator("code")).to_have_text(numbers([moved, first, last]))

    question = page.locator("#move")
    move(page, rows.nth(0), "To a place")
    expect(question).to_contain_text("A place is a whole number from 1 on.")
    question.get_by_label("Place, from 1 on").fill("3")
    press(question, "Move")
    expect(guest.locator("#ahead")).to_have_text("2")
    expect(rows.locator("code")).to_have_text(numbers([first, last, moved]))
    move(page, rows.nth(2), "Back, to where they were")
    expect(guest.locator("#ahead")).to_have_text("1")
    expect(log(page)).to_contain_text(
        f"moved {visitor_number(moved)} from 2 to 1: <b>paid</b> twice"
    )
    expect(log(page)).to_contain_text(f"moved {visitor_number(moved)} back, from 3 to 2")
    assert page.problems == []


def test_each_line_is_shown_and_a_class_is_given(site, operator):
    """Each sub-queue has its length and wait. Places are those in the sub-queue. A visitor with a
    new class moves to the sub-queue of the class."""
    for class_name in ("", "", "vip", "", ""):
        site.arrive("lines", class_name)
    ids = site.line("lines")
    page = operator()
    lines = room(page, "lines").locator(".lines > div")
    expect(lines.locator("dt")).to_have_text(["fast", "ordinary"])
    expect(lines.locator("dd:not(.hint)")).to_have_text(["1", "3"])
    expect(lines.locator(".hint")).to_have_text([re.compile(r"wait \d+ (s|min)")] * 2)
    rows = room(page, "lines").locator("tbody tr")
    expect(rows.locator("code")).to_have_text(numbers(ids))
    expect(rows.locator("th")).to_have_text(["1", "1", "2", "3"])
    expect(rows.locator(".hint")).to_have_text(["fast, vip", "ordinary", "ordinary", "ordinary"])
    look = control(page, "lines", "look")
    look.get_by_label("Look a visitor up").fill(ids[3])
    press(look, "Look up")
    found = look.locator("output")
    expect(found).to_contain_text("In sub-queue ordinary, at place 3; 4 among all.")

    press(look, "Move")
    question = page.locator("#move")
    question.locator("select").select_option("vip")
    expect(question.get_by_role("radio", name="To another class")).to_be_checked()
    press(question, "Move")
    expect(found).to_contain_text(f"{visitor_number(ids[3])} is at place 2 now, as vip.")
    expect(lines.locator("dd:not(.hint)")).to_have_text(["2", "2"])
    expect(log(page)).to_contain_text(
        f"gave {visitor_number(ids[3])} another class, from 3 to 2: class vip"
    )
    assert page.problems == []


def test_a_pre_queue_is_shown_with_its_opening_and_without_its_lots(site, operator):
    """The room is in its pre-queue, with the opening in the browser's time zone. Nobody has a place
    yet."""
    guest = site.arrive("draw")
    page = operator(timezone_id="Asia/Kathmandu")
    expect(room(page, "draw").locator(".mode")).to_have_text("Pre-queue")
    opens = datetime.fromtimestamp(EVENT["opens_at"] / 1000, ZoneInfo("Asia/Kathmandu"))
    expect(room(page, "draw").locator(".event")).to_contain_text(f"{opens:%a %-d %b}")
    expect(room(page, "draw").locator(".event")).to_contain_text(f"{opens:%H:%M}")
    expect(overview(page)).to_contain_text("Pre-queue")
    expect(figure(page, "draw", "waiting")).to_have_text("1")
    expect(room(page, "draw").locator(".nobody")).to_contain_text("before the opening")
    look = control(page, "draw", "look")
    look.get_by_label("Look a visitor up").fill(guest)
    press(look, "Look up")
    expect(look.locator("output")).to_contain_text("the place is drawn at the opening")
    expect(look.locator(".found button")).to_have_text(["Release …"])
    assert page.problems == []


def test_the_page_lives(site, operator):
    """Newcomers and changes of others appear without a reload. Typed text stays. Names of operators
    are shown as text. Without targets there is no link to targets."""
    page = operator(name="<img src=x onerror=alert(1)>")
    page.evaluate("window.loaded = 'once'")
    before = int(figure(page, "live", "active").inner_text())
    field = control(page, "live", "total_active_users").get_by_label("Cap")
    field.fill("77")
    site.arrive("live")
    site.admin("PATCH", "/rooms/live", {"total_active_users": 9, "message": "<i>soon</i>"})
    expect(figure(page, "live", "active")).to_have_text(str(before + 1))
    expect(figure(page, "live", "cap")).to_have_text("9")
    expect(field).to_have_value("77")
    expect(control(page, "live", "message").get_by_label("Message")).to_have_value("<i>soon</i>")
    expect(overview(page)).to_contain_text(f"{before + 1} / 9")
    press(room(page, "live"), "Pause")
    confirm(page, "Pause")
    expect(log(page).locator("li").first).to_contain_text("<img src=x onerror=alert(1)>")
    press(room(page, "live"), "Resume")
    site.admin("PATCH", "/rooms/live", {"total_active_users": None, "message": None})
    expect(log(page)).to_contain_text('message: none → "<i>soon</i>"')
    assert page.evaluate("window.loaded") == "once"
    assert log(page).locator("img").count() == 0
    expect(page.get_by_role("link", name="Targets")).to_have_count(0)
    assert page.problems == []


def test_a_room_on_a_wall(site, operator, visitor):
    """The link opens the wall display without a log-in. The display updates, and fits the
    screen."""
    page = operator()
    with page.expect_popup() as popup:
        room(page, "act").get_by_role("link", name="Wall display").click()
    display = visitor(viewport={"width": 1280, "height": 720})
    display.goto(popup.value.url)
    expect(display.locator("h1")).to_have_text("act")
    expect(display.locator("#active")).to_have_text(re.compile(r"\d"))
    expect(display.get_by_role("button")).to_have_count(0)
    fits = "document.documentElement.scrollHeight <= innerHeight"
    assert display.evaluate(fits)
    display.set_viewport_size({"width": 390, "height": 844})
    assert display.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert display.problems == []


def test_by_keyboard_only(site, visitor):
    """Log-in, pause, resume, both answers to a question and log-out work by Tab and Enter. The
    focus is visible, and returns after a question."""
    page = visitor()
    page.goto(site.dashboard)

    def tab_to(name):
        for _ in range(300):
            focused = page.evaluate(
                "(document.activeElement.getAttribute('aria-label') || "
                "document.activeElement.textContent || '').trim()"
            )
            if focused.startswith(name):
                return
            page.keyboard.press("Tab")
        pytest.fail(f"{name} is not reached")

    expect(page.get_by_label("Who are you?")).to_be_focused()
    page.keyboard.type("Ada")
    page.keyboard.press("Tab")
    page.keyboard.type(ADMIN_TOKEN)
    page.keyboard.press("Enter")
    expect(page.locator("#link")).to_have_text("Live")
    mode = room(page, "act").locator(".mode")
    tab_to("Pause")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    expect(page.locator("#ask button").first).to_be_focused()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(mode).to_have_text("Paused")
    tab_to("Resume")
    page.keyboard.press("Enter")
    expect(mode).to_have_text("Running")
    tab_to("Drain")
    page.keyboard.press("Enter")
    expect(page.locator("#ask button").first).to_be_focused()
    page.keyboard.press("Enter")  # Cancel is the first button.
    expect(page.locator("#ask")).to_be_hidden()
    tab_to("Drain")
    page.keyboard.press("Enter")
    expect(page.locator("#ask button").first).to_be_focused()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(mode).to_have_text("Draining")
    site.admin("POST", "/rooms/act/resume")
    page.evaluate("document.activeElement.blur(); scrollTo(0, 0)")
    page.locator("body").press("Tab")
    tab_to("Log out")
    page.keyboard.press("Enter")
    expect(page.get_by_label("Admin token")).to_be_visible()
    assert page.problems == []


def test_a_question_right_after_another_waits_for_its_own_answer(operator):
    """The browser tells that a dialog was closed when the next question may be open already."""
    answers = operator().evaluate(
        """async () => {
            const { ask } = await import('/dashboard/static/acts.js');
            const [no, yes] = document.querySelectorAll('#ask button');
            const words = { title: 'Sure?', text: 'It asks.', go: 'Yes' };
            const first = ask(words);
            no.click();
            const second = ask(words);
            await new Promise(resolve => setTimeout(resolve, 200));
            yes.click();
            const late = new Promise(resolve => setTimeout(resolve, 2000, 'no answer'));
            return Promise.all([first, second].map(answer => Promise.race([answer, late])));
        }"""
    )
    assert answers == [None, True]


def test_a_lost_connection_is_said_and_comes_back(site, operator):
    """Without the replica, figures are stale and grey, and controls report the failure. The same
    page recovers with the replica."""
    page = operator()
    page.evaluate("window.loaded = 'once'")
    replica = site.replicas[0]
    replica.stop()
    expect(page.locator("#stale")).to_contain_text("Stale since ")
    expect(page.locator("#link")).to_have_text("No connection")
    figures = room(page, "act").locator(".figures")
    expect(figures).to_have_css("opacity", "0.45")
    press(room(page, "act"), "Pause")
    confirm(page, "Pause")
    expect(said(page, "act", "run")).to_contain_text("It is not known whether this was done.")
    replica.start()
    expect(page.locator("#link")).to_have_text("Live")
    expect(page.locator("#stale")).to_be_hidden()
    expect(figures).to_have_css("opacity", "1")
    assert page.evaluate("window.loaded") == "once"
    wait_until(lambda: answers(f"{site.ops[0]}/readyz"), "the replica")


def test_a_store_in_memory_is_said(operator, visitor):
    """A notice at the top says that the store is in memory, but not if replicas share Redis."""
    expect(operator().locator("#memory")).to_be_hidden()
    with WithHistory(rooms={"live": ROOMS["live"]}, store="memory://") as site:
        page = log_in(site, visitor(), "Ada")
        expect(page.locator("#memory")).to_contain_text("The store is this replica's memory")
        expect(page.locator("#memory")).to_be_in_viewport()
        assert page.problems == []
