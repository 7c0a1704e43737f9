"""Webhooks on the dashboard, in a real browser: what a real receiver answered, and resending."""

import json
import re
import threading
import urllib.request

import pytest
from playwright.sync_api import expect

from tests.support.dashboard import Dashboard, confirm, overview, press, view
from tests.support.http_server import serve
from tests.support.processes import run_command, wait_until

NOT_DELIVERED = re.compile(r"^Not delivered since \d\d:\d\d$")
HOSTILE = "<img src=x onerror=alert(1)>"


class Receiver:
    """What came, as (event, id); each is answered with `status`, the address and something
    hostile. With `may_go` cleared, only once it is set."""

    def __init__(self):
        self.came, self.status, self.may_go, self.url = [], 200, threading.Event(), ""
        self.may_go.set()

    def respond(self, request):
        event = json.loads(request.body)["event"]
        self.came.append((event, request.headers["X-Waitroom-Delivery"]))
        assert self.may_go.wait(10)
        return self.status, f"Cannot POST {request.path}: {HOSTILE}".encode(), {}


@pytest.fixture(scope="module")
def receiver():
    receiver = Receiver()
    with serve(receiver.respond) as url:
        receiver.url = f"{url}/hook/token-that-nobody-sees"
        yield receiver
        receiver.may_go.set()


@pytest.fixture(scope="module")
def site(receiver):
    settings = {
        "webhooks.team.url": receiver.url,
        "webhooks.team.secret": "secret-that-nobody-sees",
        "webhooks.team.rooms": ["sale", "late"],
        "webhooks.quiet.url": "https://chat.example.com/token-that-nobody-sees",
        "webhooks.quiet.format": "slack",
        "webhooks.quiet.rooms": ["other"],
    }
    rooms = {name: {"total_active_users": 1} for name in ("sale", "late", "other")}
    with Dashboard(rooms=rooms, settings=settings) as site:
        yield site


@pytest.fixture
def opened(site, visitor, receiver):
    receiver.came.clear()
    receiver.status = 200
    return lambda address, **options: site.open(visitor(**options), address)


def row(page, text):
    return page.locator("#webhooks tbody tr:visible").filter(has_text=text)


def state(page, text):
    return row(page, text).first.locator(".badge")


def said(page, where=".listed"):
    """What came of it; of a row, where there is no other place."""
    return page.locator(f"#webhooks {where} > output:visible")


def send_test(page, receiver, status):
    """A test that is answered so. Its id."""
    receiver.status, before = status, len(receiver.came)
    press(page, "Send a test")
    wait_until(lambda: len(receiver.came) > before, "the test")
    event, id_ = receiver.came[-1]
    assert event == "test"
    expect(state(page, id_)).to_have_text("Failed" if status >= 300 else "Delivered")
    return id_


def test_what_was_sent_and_sending_it_again(site, opened, receiver):
    """A queue begins, the receiver refuses; an operator sees why, and sends it again with its id.
    Nothing that the receiver says is more than text, and nothing secret is in it."""
    receiver.status = 404
    page = opened("webhooks")
    expect(page).to_have_title(re.compile("Webhooks"))
    expect(state(page, "team")).to_have_text("Nothing sent")
    for _ in range(2):
        url = f"{site.edges[0]}/_waitroom/sale/join"
        urllib.request.urlopen(urllib.request.Request(url, method="POST"), timeout=5).close()
    expect(state(page, "team")).to_have_text(NOT_DELIVERED)
    page.get_by_role("link", name="team", exact=True).click()
    expect(page.get_by_role("heading", name="team")).to_be_focused()
    began = row(page, "queue_started")
    expect(began).to_contain_text("HTTP 404")
    expect(began.locator("code.said")).to_have_text(f"Cannot POST …: {HOSTILE}")
    expect(page.locator("#webhooks [data-f=failed]")).to_have_text("2")
    assert "nobody-sees" not in page.content()
    assert page.locator("#webhooks img").count() == 0

    receiver.status = 200
    began.get_by_role("button", name=re.compile("Resend")).click()
    expect(said(page)).to_contain_text("It is sent again now, once")
    expect(state(page, "queue_started")).to_have_text("Delivered")
    expect(began).to_contain_text("sent again by Night shift")
    ids = [id_ for event, id_ in receiver.came if event == "queue_started"]
    assert len(ids) == 2
    assert len(set(ids)) == 1
    assert page.problems == []


def test_a_test_and_all_that_failed(opened, receiver):
    """A test has its own event. All that failed are sent again after a question with numbers."""
    page = opened("webhooks/team")
    failed = {send_test(page, receiver, 500), send_test(page, receiver, 410)}
    delivered = send_test(page, receiver, 200)
    expect(row(page, min(failed))).to_contain_text(re.compile("HTTP (500|410)"))
    page.get_by_label("Which deliveries").select_option("failed")
    expect(row(page, delivered)).to_have_count(0)
    receiver.came.clear()
    press(page.locator("#webhooks"), "Resend all failed")
    title = page.locator("#ask-title")
    expect(title).to_have_text(re.compile(r"^Send \d+ failed messages again\?$"))
    count = int(re.search(r"\d+", title.inner_text())[0])
    expect(page.locator("#webhooks [data-f=failed]")).to_have_text(str(count))
    assert "Each is sent to team once" in confirm(page, "Resend")
    expect(said(page, ".control")).to_contain_text(f"{count} are sent again")
    expect(page.locator("#webhooks .nothing:visible")).to_have_text("None.")
    wait_until(lambda: len(receiver.came) == count, "all of them")
    assert failed <= {id_ for _, id_ in receiver.came}
    expect(page.locator("#webhooks [data-f=waiting]")).to_have_text("0")
    assert len(receiver.came) == count
    assert page.problems == []


def test_two_operators_who_press_together_send_it_once(opened, receiver):
    """The other one is told that it is on its way."""
    first, second = opened("webhooks/team"), opened("webhooks/team")
    id_ = send_test(first, receiver, 503)
    expect(state(second, id_)).to_have_text("Failed")
    receiver.came.clear()
    receiver.may_go.clear()
    try:
        # Both see what failed when they press.
        held = []

        def hold(route):
            held.append(route)

        second.route("**/deliveries?**", hold)
        for page in (first, second):
            row(page, id_).get_by_role("button", name=re.compile("Resend")).dispatch_event("click")
        expect(said(first)).to_contain_text("It is sent again now")
        for each in held:
            each.continue_()
        second.unroute("**/deliveries?**", hold)
        expect(said(second)).to_contain_text(re.compile("on its way|attempt since"))
        wait_until(lambda: len(receiver.came) == 1, "the message")
        expect(state(second, id_)).to_have_text("Waiting")
        expect(row(second, id_).get_by_role("button")).to_have_attribute("aria-disabled", "true")
    finally:
        receiver.status = 200
        receiver.may_go.set()
    expect(state(second, id_)).to_have_text("Delivered")
    assert receiver.came == [("test", id_)]


def test_a_receiver_that_takes_nothing_is_red(site, opened, receiver):
    """After three failed attempts, with the time: in the overview, in the list, on its own page and
    in the command. One that is delivered ends it."""
    receiver.status = 503
    page = opened("")
    team = overview(page).locator("tr").filter(has=page.get_by_role("link", name="team"))
    for _ in range(2):
        site.arrive("late")
    expect(team.locator(".state")).to_have_text(NOT_DELIVERED)
    expect(team.locator(".state")).to_have_attribute("data-kind", "lost")
    expect(page.locator("#totals strong")).to_have_text("1 of 2 webhooks in trouble")
    expect(page.get_by_text("No alerts.")).to_be_hidden()
    page.mouse.move(0, 0)
    expect(overview(page).locator("table.webhooks tbody tr").first).to_contain_text("team")
    view(page, "webhooks")
    expect(state(page, "team")).to_have_text(NOT_DELIVERED)
    view(page, "webhooks/team")
    expect(page.locator("#webhooks .health")).to_have_text(NOT_DELIVERED)
    listed = run_command(
        *("webhooks", "list", "--config", str(site.folder / "replica-0.toml")), cwd=site.folder
    )
    row = next(line for line in listed.stdout.splitlines() if line.startswith("team"))
    assert re.search(r"\tnot delivered since \d\d:\d\d:\d\d\t127.0.0.1\t", row), listed
    send_test(page, receiver, 200)
    expect(page.locator("#webhooks .health")).not_to_have_text(NOT_DELIVERED)
    assert page.problems == []


def test_from_the_overview_and_on_a_phone(opened):
    """A row of the overview leads there; an unknown webhook is said; nothing scrolls sideways."""
    page = opened("", viewport={"width": 390, "height": 844})
    overview(page).get_by_role("link", name="quiet").click()
    expect(page.get_by_role("heading", name="quiet")).to_be_focused()
    expect(page.locator("#webhooks .nothing:visible")).to_have_text(
        "Nothing was sent yet. Send a test."
    )
    expect(page.locator("#webhooks")).to_contain_text("To chat.example.com, slack, not signed")
    page.evaluate("location.hash = '#/webhooks/team'")
    expect(page.locator("#webhooks [data-list=deliveries] tbody tr").first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    page.evaluate("location.hash = '#/webhooks/none'")
    expect(page.locator("#webhooks .away-note")).to_contain_text("no webhook called none")
