"""The list of all jobs on the dashboard: search, and retry and cancel in bulk."""

import re

import pytest
from playwright.sync_api import expect

from tests.support.dashboard import confirm, press, send_log_in, view
from tests.support.processes import wait_until
from tests.support.works import JobSystem

FAILED, HELD = 7, 3


@pytest.fixture(scope="module")
def works():
    """Start a job system with jobs that failed with 503 and 404, and with waiting jobs."""
    targets = {
        "images": {"retries": 0, "fail_on": ["4xx", "5xx"], "break_after": 999},
        "held": {"paused": True},
    }
    with JobSystem(targets, runners=1) as works:
        shop = works.caller("shop")
        paths = [("images", "status/503")] * FAILED + [("images", "status/404")]
        sent = [shop.submit(target=target, path=path).id for target, path in paths]
        wait_until(lambda: {shop.job(id_)["state"] for id_ in sent} == {"failed"}, "their failures")
        works.waiting = [shop.submit(target="held", path="ok/1").id for _ in range(HELD)]
        works.shop = shop
        yield works


@pytest.fixture
def page(works, visitor):
    page = visitor()
    send_log_in(page, works.urls[0])
    page.get_by_role("link", name="Jobs", exact=True).click()
    return page


def rows(page):
    return page.locator("#jobs tbody tr")


def tab(page, state):
    return page.locator("#jobs .tabs").get_by_role("button", name=re.compile(f"^{state}"))


def search(page, state="", **fields):
    form = page.locator("#jobs form")
    if state:
        tab(page, state).click()
    for name, text in fields.items():
        field = form.locator(f"[name={name}]")
        if name == "target":
            field.select_option(text)
        else:
            field.fill(text)
    press(form, "Search")


def test_jobs_are_found(works, page):
    """Jobs are found by status, by the beginning of an id, and by a target in the address. The page
    reports invalid search values."""
    expect(rows(page)).to_have_count(FAILED + 1 + HELD)
    search(page, status="5xx")
    expect(rows(page)).to_have_count(FAILED)
    press(page.locator("#jobs form"), "Clear")
    one = works.waiting[1]
    search(page, id=one[:8])
    expect(rows(page).locator("code")).to_have_text([one])
    search(page, "failed", id=one[:8])
    expect(page.locator("#jobs .nothing")).to_have_text("No job matches.")
    press(page.locator("#jobs form"), "Clear")
    search(page, **{"from": "soon"})
    expect(page.locator("#jobs .away-note")).to_contain_text("from: write a time such as")
    view(page, "jobs/held")
    expect(rows(page)).to_have_count(HELD)
    press(rows(page).first, "Details")
    expect(page.locator("#job")).to_contain_text(works.waiting[-1])
    press(page.locator("#job"), "Close")


def test_tabs_have_counters_and_failures_their_reasons(works, page):
    """Each state has a tab with its number, of the chosen target. Failed jobs are grouped by
    reason, and a reason shows its jobs. An id is copied whole."""
    expect(tab(page, "all")).to_have_text(f"all {FAILED + 1 + HELD}")
    expect(tab(page, "all")).to_have_attribute("aria-pressed", "true")
    tab(page, "failed").click()
    expect(tab(page, "failed")).to_have_text(f"failed {FAILED + 1}")
    expect(rows(page)).to_have_count(FAILED + 1)
    reasons = page.locator("#jobs .reasons li")
    expect(reasons).to_have_count(2)
    expect(reasons.first).to_contain_text(re.compile(rf"^{FAILED}.*the target says 503.*last "))
    reasons.last.get_by_role("button", name="Show").click()
    expect(rows(page)).to_have_count(1)
    expect(rows(page)).to_contain_text("404")
    expect(tab(page, "failed")).to_have_text("failed ")  # not known for a search by status

    press(page.locator("#jobs form"), "Clear")
    expect(tab(page, "all")).to_have_attribute("aria-pressed", "true")
    page.locator("#jobs form [name=target]").select_option("held")
    expect(tab(page, "pending")).to_have_text(f"pending {HELD}")
    expect(reasons).to_have_count(0)
    page.locator("#jobs .pace summary").click()
    expect(page.locator("#jobs .pace figure")).to_have_count(3)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    rows(page).first.get_by_role("button", name="Copy").click()
    expect(rows(page).first.get_by_role("button", name="Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == works.waiting[-1]


def test_what_did_nothing_has_no_sign_of_success(page):
    """The question has two answers that say what they do; a change of no job is not green."""
    view(page, "jobs/held")
    expect(rows(page)).to_have_count(HELD)
    page.locator("#jobs").get_by_label("Select all on this page").check()
    press(page.locator("#jobs .chosen"), "Retry")
    expect(page.locator("#ask button")).to_have_text(["Leave them", f"Retry {HELD} jobs"])
    confirm(page, f"Retry {HELD} jobs")
    output = page.locator("#jobs .listed output")
    expect(output).to_have_text(re.compile(rf"^0 jobs wait again. {HELD} jobs skipped: "))
    expect(output).to_have_class("nothing")


def test_a_late_answer_does_not_widen_the_list(works, page):
    """If the list of targets arrives after a target was opened, only jobs of that target are
    shown."""
    view(page, "")
    late = []
    page.route("**/v1/targets", lambda route: route.continue_() if late else late.append(route))
    view(page, "jobs")
    wait_until(lambda: page.evaluate("1") and late, "a question for the targets")
    view(page, "jobs/held")
    expect(rows(page)).to_have_count(HELD)
    with page.expect_response("**/v1/jobs?*"):
        late[0].continue_()
    page.wait_for_timeout(500)
    expect(rows(page)).to_have_count(HELD)
    expect(page.locator("#jobs form [name=target]")).to_have_value("held")
    view(page, "jobs/nobody")
    expect(page.locator("#jobs .nothing")).to_have_text("No job matches.")


def test_all_that_match_wait_again(works, page):
    """The question and the result name the number of jobs. Actions that the state forbids are
    disabled."""
    every = page.locator("#jobs .every")
    again, cancel = (every.get_by_role("button", name=name) for name in ("Retry", "Cancel"))
    expect(again).to_have_attribute("aria-disabled", "true")
    expect(every).to_contain_text("Search first")
    search(page, status="503")
    expect(rows(page)).to_have_count(FAILED)
    expect(again).to_have_attribute("aria-disabled", "false")
    again.click()
    assert "called once more" in confirm(page, f"Retry {FAILED} jobs")
    expect(page.locator("#jobs .card > output")).to_contain_text(f"{FAILED} jobs wait again.")
    wait_until(
        lambda: len(works.shop.call("GET", "/jobs?status=503&state=failed").json["jobs"]) == FAILED,
        "their second failures",
    )
    notes = [note for note in works.target.calls() if "503" in note["path"]]
    assert len(notes) == 2 * FAILED
    search(page, "failed", status="")
    expect(cancel).to_have_attribute("aria-disabled", "true")


def test_those_selected_are_cancelled(works, page):
    """Selected jobs are cancelled, also a job that was cancelled and retried meanwhile."""
    view(page, "jobs/held")
    expect(rows(page)).to_have_count(HELD)
    page.locator("#jobs").get_by_label("Select all on this page").check()
    works.shop.call("DELETE", f"/jobs/{works.waiting[0]}")
    works.shop.call("POST", f"/jobs/{works.waiting[0]}/retry")
    press(page.locator("#jobs .chosen"), "Cancel")
    confirm(page, f"Cancel {HELD} jobs")
    expect(page.locator("#jobs .listed output")).to_contain_text(f"{HELD} jobs are cancelled.")
    states = {works.shop.job(id_)["state"] for id_ in works.waiting}
    assert states == {"cancelled"}
