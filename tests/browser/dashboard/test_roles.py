"""Roles on the dashboard: viewer, operator and admin, and logging out everywhere."""

import pytest
from playwright.sync_api import expect

from sidecar.http.auth.passwords import HASHER
from tests.support.dashboard import Dashboard, control, overview, press, room, send_log_in, view

PASSWORD = "correct horse battery"
HASH = HASHER.hash(PASSWORD)


@pytest.fixture(scope="module")
def site():
    settings = {"webhooks.team.url": "http://127.0.0.1:1/"}
    for name, role in (("vera", "viewer"), ("otto", "operator"), ("ada", "admin")):
        settings |= {f"operators.{name}.role": role, f"operators.{name}.password": HASH}
    limit = {"algorithm": "fixed_window", "limit": 5, "window": "1m", "key": "{address}"}
    leases = {"seat": {"term": "10m", "max_waiting": 5}}
    with Dashboard(
        rooms={"sale": {"total_active_users": 1}},
        settings=settings,
        limits={"login": limit},
        leases=leases,
    ) as site:
        site.api("POST", "/leases/seat/17", {"holder": "order-1"})
        yield site


def log_in(site, page, name, password=PASSWORD):
    send_log_in(page, site.ops[0], name, password)


def read_buttons(page):
    """Return the texts of the view's buttons, except of those that only show something."""
    texts = page.locator("main button:visible").all_inner_texts()
    looks = ("Look up", "Find", "Show what", "Head", "Previous", "Next", "First", "Older", "Search")
    periods = {"15 min", "1 h", "3 h", "6 h", "24 h"}  # of charts
    return [text for text in texts if text and text not in periods and not text.startswith(looks)]


@pytest.fixture
def page(browser):
    with browser.new_context() as context:
        yield context.new_page()


def test_a_viewer_sees_all_and_changes_nothing(site, page):
    """No view has a button that changes anything, and the replica refuses changes."""
    log_in(site, page, "vera", "wrong")
    expect(page.get_by_role("alert")).to_have_text("The name or the password is wrong.")
    log_in(site, page, "vera")
    expect(page.locator("#role")).to_have_text("viewer")
    expect(overview(page).get_by_role("link", name="sale")).to_be_visible()
    expect(room(page, "sale")).to_be_visible()
    expect(control(page, "sale", "run")).to_be_hidden()
    assert read_buttons(page) == []
    for address in (
        "leases/seat",
        "leases/seat/17",
        "limits/login",
        "look/sale",
        "log",
        "webhooks/team",
    ):
        view(page, address)
        expect(page.locator("main h1:visible").first).to_be_visible()
        page.wait_for_timeout(300)
        assert read_buttons(page) == [], address
    response = page.evaluate(
        """async () => {
            const { csrf } = await (await fetch('/dashboard/session')).json();
            const headers = { 'X-Waitroom-CSRF': csrf };
            const reply = await fetch('/admin/rooms/sale/pause', { method: 'POST', headers });
            return [reply.status, (await reply.json()).detail];
        }"""
    )
    assert response == [403, "vera has the role viewer. This needs the role operator."]


def test_an_operator_changes_and_an_admin_resets(site, page):
    log_in(site, page, "otto")
    card = room(page, "sale")
    expect(control(page, "sale", "run")).to_be_visible()
    expect(control(page, "sale", "reset")).to_be_hidden()
    control(page, "sale", "message").get_by_role("textbox").fill("Soon.")
    press(control(page, "sale", "message"), "Show it")
    expect(card.locator(".latest")).to_contain_text("otto")
    assert "Pause …" in read_buttons(page)
    press(page.locator("header"), "Log out")
    expect(page.get_by_label("Who are you?")).to_be_visible()
    log_in(site, page, "ada")
    room(page, "sale")
    expect(control(page, "sale", "reset")).to_be_visible()


def test_logging_out_everywhere_ends_the_other_browser(site, page, browser):
    log_in(site, page, "vera")
    expect(page.locator("#link")).to_have_text("Live")
    with browser.new_context() as context:
        other = context.new_page()
        log_in(site, other, "vera")
        expect(other.locator("#link")).to_have_text("Live")
        press(page.locator("header"), "Everywhere")
        expect(page.get_by_label("Who are you?")).to_be_visible()
        expect(other.get_by_label("Who are you?")).to_be_visible(timeout=10_000)
