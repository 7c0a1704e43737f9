"""Targets and jobs on the dashboard: real browser, replica, runner, store and database, and a
target that answers as it is told."""

import contextlib
import re
import sqlite3

import pytest
from playwright.sync_api import expect

from sidecar.jobs.redis_keys import target_key
from tests.support.processes import wait_until
from tests.support.site import ADMIN_TOKEN
from tests.support.works import JobSystem

TARGETS = {"images": {"concurrency": 2}, "reports": {"retries": 0}, "films": {"abort": True}}
HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def works():
    with JobSystem(TARGETS, runners=1) as works:
        yield works


@pytest.fixture
def desk(works, visitor):
    """Opens the dashboard, logged in. Asked for after `works`, which has a loop of its own."""

    def make(**options):
        page = visitor(**options)
        page.goto(f"{works.urls[0]}/dashboard")
        page.get_by_label("Who are you?").fill("Night shift")
        page.get_by_label("Admin token").fill(ADMIN_TOKEN)
        page.get_by_role("button", name="Log in").click()
        page.get_by_role("link", name="Targets").click()
        expect(target(page, "images")).to_be_visible()
        return page

    return make


def target(page, name):
    return page.locator(f"#target-{name}")


def jobs(page, name):
    """Its list of jobs, opened."""
    target(page, name).get_by_role("button", name=f"Jobs of {name}").click()
    return target(page, name).locator(".jobs")


def row(page, job):
    return page.locator("tbody tr").filter(has_text=job)


def figure(page, name, what):
    return target(page, name).locator(f"[data-f={what}]")


def press(within, name):
    within.get_by_role("button", name=name).first.click()


def do(page, within, name, answer):
    """Presses a button and answers the question that comes."""
    press(within, name)
    press(page.locator("#ask"), answer)


def said(page, name, control):
    return target(page, name).locator(f"[data-control={control}] output")


def runner_knows(works, name):
    """It heard that the target was changed."""
    heard = re.compile(rf'"target": "{name}".*"target_changed"')
    wait_until(lambda: heard.search(works.runners[0].output) is not None, "the runner's word")


@contextlib.contextmanager
def without_jobs(works):
    """The database has no table of them, which is as if it were away."""
    with contextlib.closing(sqlite3.connect(works.folder / "jobs.db", timeout=10)) as database:
        database.execute("ALTER TABLE waitroom_jobs RENAME TO gone")
        try:
            yield
        finally:
            database.execute("ALTER TABLE gone RENAME TO waitroom_jobs")


def test_pause_stops_and_resume_goes_on(works, desk):
    """A paused target is called by no runner; what waits is listed a page at a time with its place,
    one of them is cancelled, the others are called after the pause. The target's capacity is
    changed, and is the file's again; what somebody types stays."""
    page, caller = desk(), works.caller("shop")
    card = target(page, "images")
    do(page, card, "Pause", "Cancel")
    assert caller.target("images")["settings"]["paused"] is False
    do(page, card, "Pause", "Pause")
    expect(said(page, "images", "run")).to_contain_text("✓ It is paused.")
    expect(card.locator(".mode")).to_have_text("Paused")
    expect(card.locator("button.main")).to_have_text(["Resume …"])  # what the state calls for
    runner_knows(works, "images")
    sent = [caller.submit(target="images", path=f"ok/{n}").id for n in range(22)]

    listed = jobs(page, "images")
    expect(listed.locator("tbody .id")).to_have_text(sent[:1:-1])
    expect(row(page, sent[2])).to_contain_text(re.compile(r"GET ok/2\W*pending\W*place 3\b.*shop"))
    press(listed, "Older")
    expect(listed.locator("tbody .id")).to_have_text(sent[1::-1])
    expect(listed.locator(".pages .hint")).to_have_text("Page 2")
    do(page, row(page, sent[1]), "Cancel", "Cancel the job")
    expect(listed.locator(".list > output")).to_have_text(f"✓ {sent[1]} is cancelled.")
    expect(row(page, sent[1])).to_contain_text("cancelled")
    expect(row(page, sent[1]).get_by_role("button", name="Retry")).to_be_visible()
    expect(figure(page, "images", "pending")).to_have_text("21")
    assert works.target.calls() == []

    at_a_time, rate = (card.locator(f"[data-control={what}]") for what in ("concurrency", "rate"))
    at_a_time.get_by_label("Calls at a time").fill("3")
    rate.get_by_label("Rate").fill("500")
    do(page, at_a_time, "Set", "Change")
    expect(said(page, "images", "concurrency")).to_have_text("✓ It is 3 now.")
    expect(figure(page, "images", "concurrency")).to_have_text("3")
    expect(rate.get_by_label("Rate")).to_have_value("500")
    rate.get_by_label("in seconds").fill("10")
    do(page, rate, "Set", "Change")
    expect(said(page, "images", "rate")).to_have_text("✓ 500 calls in 10 s, at most, now.")
    expect(figure(page, "images", "rate")).to_have_text("0 of 500")
    settings = caller.target("images")["settings"]
    assert [settings[name] for name in ("concurrency", "rate", "window")] == [3, 500, 10]

    listed.get_by_label("State").select_option("pending")
    do(page, card, "Resume", "Resume")
    expect(listed.locator(".nothing")).to_be_visible()
    listed.get_by_label("State").select_option("completed")
    expect(listed.locator("tbody .id")).to_have_text(sent[:1:-1])
    assert caller.job(sent[1])["state"] == "cancelled"
    assert {note["job"] for note in works.target.calls()} == {sent[0], *sent[2:]}
    do(page, card, "Reset to configured values", "Reset to configured values")
    expect(said(page, "images", "back")).to_have_text("✓ What was changed is taken back.")
    expect(figure(page, "images", "rate")).to_have_text("none")
    assert caller.target("images")["source"] == "file"
    assert page.problems == []


def test_a_runner_that_is_missing_is_missed(works, desk):
    """The store forgets when the one that stands still last asked: nobody waits for 15 s."""
    page = desk()
    mode, meaning = (target(page, "images").locator(f".{what}") for what in ("mode", "meaning"))
    expect(mode).to_have_text("Running")
    works.runners[0].freeze()
    try:
        works.redis_cli("hdel", target_key("images", "state"), "runner")
        expect(mode).to_have_text("No runner")
        expect(meaning).to_contain_text(
            "None has asked for jobs yet. Offline jobs wait until one is"
        )
        assert works.caller("shop").target("images")["runner_seen_at"] is None
    finally:
        works.runners[0].thaw()
    expect(mode).to_have_text("Running")
    assert page.problems == []


def test_jobs_are_tried_again_and_cut_off_on_a_phone(works, desk):
    """One that failed says why; the button has it called once more, and its details say what came
    of it. One that is called is cut off where the target allows it. What was sent is text, whatever
    it says. 390 pixels wide nothing scrolls sideways; what is pressed is as large as a thumb."""
    page = desk(viewport={"width": 390, "height": 844}, color_scheme="dark", has_touch=True)
    caller, details = works.caller("shop"), page.locator("#job")
    works.target.mood("503")
    sent = caller.submit(target="reports", path="ok/%3Cb%3E", method="POST", body=HOSTILE).id
    assert caller.job(sent, 10)["state"] == "failed"
    works.target.mood("ok")
    jobs(page, "reports")
    expect(row(page, sent)).to_contain_text(re.compile(r"ok/%3Cb%3E\W*failed.*503"))
    expect(row(page, sent).locator("[data-title=HTTP]")).to_have_text("503")
    press(row(page, sent), "Details")
    expect(details).to_contain_text(re.compile(f"{sent}.*failed.*POST ok/%3Cb%3E.*shop", re.DOTALL))
    do(page, details, "Retry", "Try again")
    expect(details.locator("output")).to_contain_text(f"✓ {sent} waits again")
    expect(details.locator(".badge")).to_have_text("completed")
    expect(details.locator(".answer .facts")).to_contain_text("Status200")
    expect(details.locator("pre")).to_contain_text(HOSTILE)
    assert page.locator("img").count() == 1  # the logo
    assert [note["status"] for note in works.target.calls() if note["job"] == sent] == [503, 200]
    with page.expect_download() as saved:
        details.get_by_role("link", name="Download").click()
    assert HOSTILE in saved.value.path().read_text()
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    assert details.evaluate("each => each.scrollWidth <= each.clientWidth")
    pressed = page.locator("#targets :is(button, input, select):visible, #job button:visible")
    assert min(pressed.evaluate_all("all => all.map(each => each.offsetHeight)")) >= 44
    page.keyboard.press("Escape")
    expect(row(page, sent).get_by_role("button", name="Details")).to_be_focused()
    expect(row(page, sent)).to_contain_text("completed")

    sent = caller.submit(target="films", path="slow", query={"seconds": "60"}).id
    jobs(page, "films")
    expect(row(page, sent)).to_contain_text("processing")
    press(row(page, sent), "Details")
    do(page, details, "Cancel", "Cut it off")
    expect(details.locator(".badge")).to_have_text("cancelled")
    assert caller.job(sent)["state"] == "cancelled"
    assert page.problems == []


def test_a_database_that_is_away_is_said(works, desk):
    """The figures are said to be old, and are grey, until it is back. A target that is made then is
    shown without a reload, and goes again."""
    page, operator = desk(), works.caller("operator")
    note = page.locator("#targets > [role=alert]")
    target(page, "images").scroll_into_view_if_needed()
    with without_jobs(works):
        expect(note).to_contain_text("The database does not answer. The figures below are old")
        expect(target(page, "images").locator(".figures")).to_have_css("opacity", "0.45")
    assert operator.call("PATCH", "/targets/extra", {"kinds": ["online"]}).status == 200
    expect(target(page, "extra")).to_contain_text("called by its callers themselves")
    expect(note).to_be_hidden()
    do(page, target(page, "extra"), "Reset to configured values", "Reset to configured values")
    expect(page.locator("#targets > output")).to_contain_text("extra is gone")
    expect(target(page, "extra")).to_have_count(0)
