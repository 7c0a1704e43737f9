"""The list of all jobs on the dashboard: search, and retry and cancel in bulk."""

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


def search(page, **fields):
    form = page.locator("#jobs form")
    for name, text in fields.items():
        field = form.locator(f"[name={name}]")
        if name in {"state", "target"}:
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
    search(page, id=one[:8], state="failed")
    expect(page.locator("#jobs .nothing")).to_have_text("No job matches.")
    press(page.locator("#jobs form"), "Clear")
    search(page, **{"from": "soon"})
    expect(page.locator("#jobs .away-note")).to_contain_text("from: write a time such as")
    view(page, "jobs/held")
    expect(rows(page)).to_have_count(HELD)
    press(rows(page).first, "Details")
    expect(page.locator("#job")).to_contain_text(works.waiting[-1])
    press(page.locator("#job"), "Close")


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
    search(page, status="", state="failed")
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
