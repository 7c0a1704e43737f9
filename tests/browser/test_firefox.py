"""The waiting page, with and without JavaScript, and the dashboard in Firefox."""

import pytest

from tests.browser.firefox import Firefox
from tests.support.dashboard import TOKEN, write_past
from tests.support.nginx_client import Visitor
from tests.support.site import ADMIN_TOKEN, Site, gated
from waitroom import Client

QUICK = {"total_active_users": 1, "heartbeat_interval": 1}
ROOMS = {"shop": QUICK, "sale": QUICK}
#: Script that stores all titles and icons of the page, for reading on the next page.
REMEMBER = """(() => {
    const note = () => sessionStorage.setItem('seen', (sessionStorage.getItem('seen') ?? '')
        + document.title + ' ' + document.querySelector('[rel=icon]').href + '\\n');
    new MutationObserver(note).observe(document.head,
        { subtree: true, childList: true, characterData: true, attributes: true });
})()"""


@pytest.fixture(scope="module")
def site():
    rooms = [gated(f"/{room}/", to="http://origin/page/", room=room) for room in ROOMS]
    limit = {"algorithm": "fixed_window", "limit": 5, "window": "24h", "key": "{address}"}
    with Site(
        rooms=ROOMS,
        locations="".join(rooms),
        settings={"service_token": TOKEN},
        leases={"seat": {"term": "10m"}},
        limits={"login": limit},
    ) as site:
        write_past(site, "sale", 60)
        yield site


@pytest.fixture(scope="module")
def firefox():
    with Firefox() as firefox:
        yield firefox


@pytest.fixture
def holder(site):
    """Return a function that lets a visitor take a room's slot, and returns one that leaves."""
    holders = []

    def make(room):
        visitor = Visitor(site.url)
        visitor.hold(f"/{room}/")
        holders.append((visitor, room))
        return lambda: visitor.post(f"/_waitroom/{room}/leave")

    yield make
    for visitor, room in holders:
        visitor.post(f"/_waitroom/{room}/leave")


def test_from_joining_to_being_let_in(site, firefox, holder):
    """The page shows numbers, progress and pauses, announces the call by title and icon, and opens
    the requested address."""
    end_visit = holder("shop")
    page = firefox.visitor()
    page.goto(f"{site.url}/shop/a?b=1")
    page.shows("h1", "You are next")
    page.shows("#ahead", "0")
    page.shows("#wait", "still measuring")
    page.shows("#number", "-")
    page.until("Boolean(document.querySelector('#lane progress').checkVisibility())")
    site.admin("POST", "/rooms/shop/pause")
    page.shows("#paused", "Entry is paused")
    page.run(REMEMBER)
    site.admin("POST", "/rooms/shop/resume")
    page.until("document.querySelector('#paused').hidden")
    end_visit()
    page.shows("h1", "Inside")
    seen = page.run("sessionStorage.getItem('seen')")
    assert "It is your turn" in seen
    assert "turn.svg" in seen
    assert page.run("location.pathname + location.search") == "/shop/a?b=1"
    assert page.problems == []


def test_the_dashboard(site, firefox, holder):
    """All views of the dashboard work, from the log-in to the wall display."""
    site.admin("POST", "/rooms/sale/resume")
    holder("sale")
    page = firefox.visitor()
    page.resize(1280)
    page.goto(f"{site.ops[0]}/dashboard")
    page.type("[name=name]", "Ada")
    page.type("[type=password]", ADMIN_TOKEN)
    page.click("button", "Log in")
    page.shows("#link", "Live")
    page.click("#overview a", "sale")
    page.shows("#room-sale [data-f=active]", "1")
    page.until("document.querySelectorAll('#room-sale .charts polyline').length > 9")
    page.click("#room-sale .charts [role=slider][aria-label^=Waiting]")
    page.shows("#room-sale .charts .readout", " to ")
    page.click("#room-sale [data-do=pause]")
    page.click("#ask [value=yes]")
    page.shows("#room-sale .mode", "Paused")
    page.click("#room-sale .latest button", "Undo")
    page.until("document.querySelector('#room-sale .mode').innerText === 'Paused'", False)
    with Client(site.ops[0], token=TOKEN) as client, client.lease("seat", "17", holder="order-1"):
        client.acquire("login", address="198.51.100.7")
        page.click("#views a", "Leases")
        page.shows("#leases h1", "Leases")
        page.click("#leases a", "seat")
        page.shows("#leases tbody tr", "order-1")
    page.click("#views a", "Limits")
    page.shows("#limits h1", "Limits")
    page.click("#limits a", "login")
    page.type("#limits [name=address]", "198.51.100.7")
    page.click("#limits button", "Show what it has used")
    page.shows("#limits [data-f=used]", "1")
    page.click("#views a", "Log")
    page.shows("main h1", "Who did what")
    page.shows("#log", "paused")
    page.shows("#log", "Ada")
    assert page.run("document.querySelector('#views li:last-child').innerText") == "Log"
    lasting = "import('/dashboard/static/draw.js').then(all => [86400, 9000].map(all.duration))"
    assert page.run(lasting) == ["24 h", "2 h 30 min"]
    page.goto(f"{site.ops[0]}/dashboard/wall?room=sale")
    page.shows("#room", "sale")
    page.shows("#active", "1")
    assert page.problems == []
