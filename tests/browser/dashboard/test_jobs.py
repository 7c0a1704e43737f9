"""Targets and jobs on the dashboard, with a real worker, database and target."""

import contextlib
import re
import sqlite3

import pytest
from playwright.sync_api import expect

from sidecar.jobs.redis_keys import target_key
from tests.support.dashboard import overview, press, send_log_in, view
from tests.support.processes import wait_until
from tests.support.works import JobSystem

TARGETS = {
    "images": {"concurrency": 2},
    "reports": {"retries": 0},
    "films": {"abort": True},
    "lax": {"fail_on": [], "retry_on": []},
    "down": {"break_after": 1},
}
HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def works():
    with JobSystem(TARGETS, runners=1) as works:
        yield works


@pytest.fixture
def desk(works, visitor):
    """Return a function that opens the targets. `works` must start before the browser's loop."""

    def make(**options):
        page = visitor(**options)
        send_log_in(page, works.urls[0])
        page.get_by_role("link", name="Targets").click()
        expect(target(page, "images")).to_be_visible()
        return page

    return make


def target(page, name):
    return page.locator(f"#target-{name}")


def jobs(page, name):
    """Open the list of jobs of a target. Return the list."""
    target(page, name).get_by_role("button", name=f"Jobs of {name}").click()
    return target(page, name).locator(".jobs")


def row(page, job):
    return page.locator("tbody tr").filter(has_text=job)


def figure(page, name, what):
    return target(page, name).locator(f"[data-f={what}]")


def badge(page, job):
    """Return the kind of a job's badge, which decides its colour and sign, and its texts."""
    cell = row(page, job).locator("td").first
    texts = cell.locator("span").all_inner_texts()
    return cell.locator(".badge").get_attribute("data-kind"), [text for text in texts if text]


def do(page, within, name, answer, other=""):
    """Press a button, and answer the question of the dialog, which has this `other` answer."""
    press(within, name)
    if other:
        expect(page.locator("#ask button")).to_have_text([other, answer])
    press(page.locator("#ask"), answer)


def said(page, name, control):
    return target(page, name).locator(f"[data-control={control}] output")


def wait_for_runner(works, name):
    """Wait until the worker has read the changed settings of a target."""
    change = re.compile(rf'"target": "{name}".*"target_changed"')
    wait_until(lambda: change.search(works.runners[0].output) is not None, "the change")


@contextlib.contextmanager
def without_jobs(works):
    """Rename the table of jobs, as if the database were unavailable."""
    with contextlib.closing(sqlite3.connect(works.folder / "jobs.db", timeout=10)) as database:
        database.execute("ALTER TABLE waitroom_jobs RENAME TO gone")
        try:
            yield
        finally:
            database.execute("ALTER TABLE gone RENAME TO waitroom_jobs")


def test_pause_stops_and_resume_goes_on(works, desk):
    """Workers do not call a paused target.

    Waiting jobs are listed in pages with their places. A job is cancelled, the others are called
    after the pause. The capacity is changed and reset. Typed text stays.
    """
    page, caller = desk(), works.caller("shop")
    card = target(page, "images")
    do(page, card, "Pause", "Cancel")
    assert caller.target("images")["settings"]["paused"] is False
    do(page, card, "Pause", "Pause")
    expect(said(page, "images", "run")).to_contain_text("✓ It is paused.")
    expect(card.locator(".mode")).to_have_text("Paused")
    expect(card.locator("button.main")).to_have_text(["Resume …"])
    wait_for_runner(works, "images")
    sent = [caller.submit(target="images", path=f"ok/{n}").id for n in range(22)]

    listed = jobs(page, "images")
    expect(listed.locator("tbody .id")).to_have_text(sent[:1:-1])
    expect(row(page, sent[2])).to_contain_text(re.compile(r"GET ok/2\W*pending\W*place 3\b.*shop"))
    press(listed, "Older")
    expect(listed.locator("tbody .id")).to_have_text(sent[1::-1])
    expect(listed.locator(".pages .hint")).to_have_text("Page 2")
    do(page, row(page, sent[1]), "Cancel", "Cancel the job", other="Keep it")
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
    """If no worker claims jobs, the dashboard says so. Deleting the time of the last claim saves
    waiting 15 s."""
    page = desk()
    mode, meaning = (target(page, "images").locator(f".{what}") for what in ("mode", "meaning"))
    expect(mode).to_have_text("Running")
    works.runners[0].freeze()
    try:
        works.redis_cli("hdel", target_key("images", "state"), "runner")
        expect(mode).to_have_text("No worker")
        expect(meaning).to_contain_text(
            "None has asked for jobs yet. Offline jobs wait until one is"
        )
        assert works.caller("shop").target("images")["runner_seen_at"] is None
    finally:
        works.runners[0].thaw()
    expect(mode).to_have_text("Running")
    assert page.problems == []


def test_the_target_with_trouble_is_first_and_its_link_shows_it_alone(works, desk):
    """A link, such as that of an alert, leads to the target's own card, and focuses its name."""
    page = desk()
    page.mouse.move(0, 0)
    cards = page.locator("#targets .target:visible h2")
    expect(cards).to_have_text(["images", "reports", "films", "lax", "down"])
    works.runners[0].freeze()
    try:
        works.redis_cli("hdel", target_key("films", "state"), "runner")
        expect(cards).to_have_text(["films", "images", "reports", "lax", "down"])
        overview(page).get_by_role("link", name="films").click()
        expect(cards).to_have_text(["films"])
        expect(cards).to_be_focused()
    finally:
        works.runners[0].thaw()
    page.get_by_role("link", name="All targets").click()
    expect(cards).to_have_text(["images", "reports", "films", "lax", "down"])
    view(page, "targets/none")
    expect(page.locator("#targets .missing")).to_have_text("There is no target “none”.")
    assert page.problems == []


def test_jobs_are_tried_again_and_cut_off_on_a_phone(works, desk):
    """A failed job shows its reason and can be retried.

    A running job can be aborted if the target allows it. Bodies are shown as text. At 390 px
    nothing scrolls sideways, and controls are as large as a thumb.
    """
    page = desk(viewport={"width": 390, "height": 844}, color_scheme="dark", has_touch=True)
    caller, details = works.caller("shop"), page.locator("#job")
    works.target.set_mood("503")
    sent = caller.submit(target="reports", path="ok/%3Cb%3E", method="POST", body=HOSTILE).id
    assert caller.job(sent, 10)["state"] == "failed"
    works.target.set_mood("ok")
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
    do(page, details, "Cancel", "Cut it off", other="Let it go on")
    expect(details.locator(".badge")).to_have_text("cancelled")
    assert caller.job(sent)["state"] == "cancelled"
    assert page.problems == []


def test_a_target_that_fails_says_when_it_is_tried_next(works, desk):
    """And not "Stopped". Its failed attempts are charted, and its failures have their reasons."""
    shop = works.caller("shop")
    failed = shop.submit(target="reports", path="status/404").id
    wait_until(lambda: shop.job(failed)["state"] == "failed", "the failure")
    works.target.set_mood("503")
    sent = shop.submit(target="down", path="ok/1").id
    wait_until(lambda: shop.target("down")["breaker"] == "open", "the open breaker")
    works.target.set_mood("ok")
    page = desk()
    card = target(page, "down")
    expect(card.locator(".mode")).to_have_text(re.compile(r"^Failing: next try \d\d:\d\d:\d\d$"))
    expect(card.locator(".mode")).to_have_attribute("data-kind", "lost")
    wait_until(lambda: shop.job(sent)["state"] == "completed", "the next try", 60)
    expect(card.locator(".mode")).to_have_text("Running")
    [calls] = [step for step in shop.target("down/history")["steps"] if step["calls_failed"]]
    assert (calls["calls_failed"], calls["calls_retried"]) == (1, 1)
    expect(card.locator(".ended figure")).to_have_count(3)
    expect(card.locator(".ended figure").nth(1)).to_contain_text("every attempt")
    reports = target(page, "reports").locator(".reasons li").filter(has_text="404")
    expect(reports).to_contain_text(re.compile("1.*the target says 404"))


def test_a_database_that_is_away_is_said(works, desk):
    """While the database is unavailable, the dashboard greys out its figures and says that they are
    old. A new target appears and disappears without a reload."""
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


def test_only_a_2xx_has_the_sign_of_success(works, desk):
    """Any other answer fails its job; where the target says otherwise, the job is amber, and says
    by which answer it was completed."""
    shop = works.caller("shop")
    paths = [("images", "ok/1"), ("images", "status/404"), ("images", "status/302"),
             ("lax", "ok/1"), ("lax", "status/404"), ("lax", "status/302")]  # fmt: skip
    sent = [shop.submit(target=name, path=path).id for name, path in paths]
    wait_until(lambda: all(shop.job(id_)["ended_at"] for id_ in sent), "their ends")
    page, shown = desk(), []
    for name in ("images", "lax"):
        listed = jobs(page, name)
        expect(row(listed, sent[0 if name == "images" else 3])).to_be_visible()
        shown += [
            badge(listed, id_) for id_, (of, _) in zip(sent, paths, strict=True) if of == name
        ]
    said_302 = "the target says 302"
    assert shown == [
        ("done", ["completed"]),
        ("lost", ["failed", "the target says 404"]),
        ("lost", ["failed", f"{said_302}, a redirect"]),
        ("done", ["completed"]),
        ("closed", ["completed", "the target says 404"]),
        ("closed", ["completed", said_302]),
    ]
