"""The search at the top of the dashboard."""

import pytest
from playwright.sync_api import expect

from sidecar.visitors.visitor_number import visitor_number
from tests.support.dashboard import QUICK, Dashboard, view

SLOW = {**QUICK, "session_duration": 600, "heartbeat_timeout": 7200, "claim_window": 3600}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    settings = {
        "jobs": f"sqlite:///{tmp_path_factory.mktemp('jobs')}/jobs.db",
        "targets.mailer.url": "http://127.0.0.1:1/",
        "targets.mailer.private": True,
        "targets.mailer.paused": True,
    }
    rooms = {"sale": SLOW, "tickets": SLOW}
    with Dashboard(rooms=rooms, leases={"seat": {"term": "10m"}}, settings=settings) as site:
        site.guests = [site.arrive("tickets") for _ in range(3)]
        site.api("POST", "/leases/seat/17", {"holder": "order-4711"})
        yield site


def found(page):
    return page.locator("#found a")


def search(page, text):
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox", name="Search rooms")).to_be_focused()
    page.keyboard.type(text)


def test_support_finds_a_visitor_with_the_reference_alone(site, operator):
    """The key / leads to the search. A reference and Enter open the visitor's room, and say where
    the visitor is."""
    page = operator()
    number = visitor_number(site.guests[2])
    search(page, number.lower())
    page.keyboard.press("Enter")
    tickets = page.locator("#room-tickets")
    expect(tickets.locator("[data-control=look] output")).to_contain_text("at place 2")
    expect(
        tickets.locator("[data-control=look]").get_by_role("button", name="Release")
    ).to_be_visible()
    expect(page.locator("#found")).to_be_hidden()
    # In a field the key is a letter.
    field = tickets.locator("[data-control=look] input")
    field.fill("")
    field.press("/")
    expect(field).to_have_value("/")
    assert page.problems == []


def test_all_kinds_are_found(site, operator):
    """Each hit says what it is, and leads to its view. The arrow keys and Escape work."""
    page = operator()
    job = site.api("POST", "/jobs", {"target": "mailer"})["id"]
    for text, hits, address in (
        ("sal", ["Room sale"], "#/rooms/sale"),
        ("MAIL", ["Target mailer"], "#/targets/mailer"),
        (job[:8], [f"Job {job} in mailer, pending"], f"#/jobs/mailer/{job}"),
        ("order-4711", ["Lease 17 in seat"], "#/leases/seat~17"),
        ("sea", ["Leases seat"], "#/leases/seat"),
    ):
        search(page, text)
        expect(found(page)).to_have_text(hits)
        page.keyboard.press("ArrowDown")
        expect(found(page).first).to_be_focused()
        page.keyboard.press("Enter")
        page.wait_for_url(f"**/dashboard{address}")
        expect(page.locator("#found")).to_be_hidden()
    search(page, "nothing-like-this")
    expect(page.locator("#found [role=status]")).to_have_text("Nothing found.")
    page.keyboard.press("Escape")
    expect(page.locator("#found")).to_be_hidden()
    view(page, f"jobs/mailer/{job}")
    expect(page.locator("#jobs tbody tr")).to_have_count(1)
    assert page.problems == []
