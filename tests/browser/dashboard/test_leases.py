"""Leases on the dashboard: holders, waiting clients, and their removal."""

import re
import urllib.error

import pytest
from playwright.sync_api import expect

from tests.support.dashboard import TOKEN, Dashboard, confirm, view
from waitroom import Client

LEASES = {
    "seat": {"term": 3600},
    "hall": {"term": 600, "capacity": 60, "renewable": True},
    "many": {"term": 3600},
}


@pytest.fixture(scope="module")
def site():
    with Dashboard(leases=LEASES) as site:
        yield site


def row(page, text):
    return page.locator("#leases tbody tr:visible").filter(has_text=text)


def take(site, template, resource, holder):
    return site.api("POST", f"/leases/{template}/{resource}", {"holder": holder})


def test_who_holds_what_and_who_waits(site, opened):
    """The page leads from templates to a resource, and shows leases that programs take
    meanwhile."""
    page = opened("leases")
    expect(page).to_have_title(re.compile("Leases"))
    expect(row(page, "seat")).to_contain_text("60 min")
    page.get_by_role("link", name="seat", exact=True).click()
    expect(page.get_by_role("heading", name="seat")).to_be_focused()
    expect(page.locator("#leases")).to_contain_text("POST /v1/leases/seat/17")
    client = Client(site.ops[0], token=TOKEN)
    with client, client.lease("seat", "A", holder="order-1") as held:
        expect(row(page, "order-1")).to_contain_text("Held")
        expect(row(page, "order-1")).to_contain_text("1 of 1")
        take(site, "seat", "A", "order-2")
        page.get_by_role("link", name="A", exact=True).click()
        expect(row(page, str(held.fence))).to_contain_text("by the token service")
        expect(row(page, "order-2")).to_contain_text("Remove")
        expect(page.locator("#leases [data-f=wait]:visible")).to_have_text(re.compile("h|min"))
    # The lease has ended, so the next client is called.
    expect(row(page, "order-2")).to_contain_text("called, has not come yet")
    take(site, "seat", "A", "order-2")
    expect(row(page, "order-2")).to_contain_text(re.compile(r"\d{16}"))
    page.get_by_role("link", name="All resources of seat").click()
    expect(row(page, "order-2")).to_be_visible()


def test_releasing(site, opened):
    """Leases and waiting clients can be removed, one or several at a time. Questions name numbers.
    A newer lease of the same holder is not removed."""
    for holder in ("anna", "ben", "eva", "zoe"):
        take(site, "seat", "R", holder)
    page = opened("leases/seat~R")
    row(page, "zoe").get_by_role("button", name=re.compile("Remove")).click()
    assert "Of the 3 who wait for R" in confirm(page, "Remove")
    expect(row(page, "zoe")).to_have_count(0)
    row(page, "anna").get_by_role("button", name=re.compile("Release")).click()
    text = confirm(page, "Release")
    assert "2 clients wait; the next has it at once. No holder is notified" in text
    expect(page.locator("#leases output:visible").first).to_contain_text("1 is released")
    expect(row(page, "anna")).to_have_count(0)
    expect(row(page, "ben")).to_contain_text("called")

    for holder in ("one", "two", "three"):
        take(site, "hall", "H", holder)
    view(page, "leases/hall~H")
    page.get_by_label("Select one (service)").check()
    page.get_by_label("Select two (service)").check()
    page.locator("#leases .chosen:visible").get_by_role("button", name="Release").click()
    expect(page.locator("#ask-title")).to_have_text("Release 2 leases?")
    # Meanwhile the lease of the first holder ended, and the holder took another.
    site.api("DELETE", "/leases/hall/H?holder=one")
    newer = take(site, "hall", "H", "one")["fence"]
    confirm(page, "Release")
    expect(page.locator("#leases output:visible").first).to_contain_text(
        "1 is released. 1 was over already."
    )
    holders = {
        each["holder"]: each["fence"] for each in site.api("GET", "/leases/hall/H/queue")["holders"]
    }
    assert holders.keys() == {"one", "three"}
    assert holders["one"] == newer


def test_pages_and_a_search(site, opened):
    """A page has 50 rows. Turning the page clears the selection."""
    for number in range(120):
        take(site, "many", f"r{number:03}", f"holder-{number}")
    page = opened("leases/many")
    rows = page.locator("#leases tbody tr:visible")
    expect(rows).to_have_count(50)
    expect(page.locator("#leases .pages:visible")).to_contain_text("Page 1; 120 in all")
    page.get_by_label("Select r000").check()
    page.get_by_role("button", name="Next").click()
    expect(row(page, "r050")).to_be_visible()
    expect(page.locator("#leases .chosen:visible")).to_have_count(0)
    page.get_by_role("button", name="Next").click()
    expect(rows).to_have_count(20)
    page.get_by_role("button", name="Previous").click()
    expect(row(page, "r099")).to_be_visible()
    for wanted in ("holder-7", "r007"):
        page.get_by_label("Find").fill(wanted)
        page.get_by_role("button", name="Find").click()
        expect(rows).to_have_count(1)
        expect(rows).to_contain_text("r007")
    page.get_by_role("checkbox", name="Select all on this page").check()
    page.locator("#leases .chosen:visible").get_by_role("button").click()
    confirm(page, "Release")
    expect(page.locator("#leases .nothing:visible")).to_contain_text("r007")
    assert site.api("GET", "/leases/many")["count"] == 119


def test_an_address_that_names_nothing(opened):
    """The page lists the existing names, and shows the wrong name as text, not as markup."""
    page = opened("leases/seet")
    note = page.locator("#leases .away-note")
    expect(note).to_contain_text(
        "There is no template of leases called seet. There are: seat, hall"
    )
    view(page, "leases/<img src=x onerror=alert(1)>")
    expect(note).to_contain_text("called <img src=x onerror=alert(1)>")
    expect(page.locator("#leases img")).to_have_count(0)


def test_without_any(visitor):
    """The page says how to configure a template or a limit."""
    with Dashboard() as site:
        page = site.open(visitor(), "leases")
        expect(page.locator("#leases .none")).to_contain_text("[leases.seat]")
        with pytest.raises(urllib.error.HTTPError):
            site.api("GET", "/leases/seat")
        view(page, "limits")
        expect(page.locator("#limits .none")).to_contain_text("[limits.login]")
