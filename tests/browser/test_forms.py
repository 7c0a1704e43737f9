"""Forms that visitors send after their sessions have ended."""

import re

import pytest
from playwright.sync_api import expect

from tests.support.nginx_client import Visitor
from tests.support.processes import wait_until
from tests.support.site import ROOT, Site, gated
from tests.support.story import ahead

UNSENT = "What you sent has not arrived. Go back and send it again once you are in."


@pytest.fixture(scope="module")
def site():
    """Start a site with a room for each test. Paths below /redirect-… use the mode `redirect`."""
    names = [f"room-{number}" for number in range(12)]
    rooms = {
        name: {"total_active_users": 1, "heartbeat_interval": 1, "claim_window": 60}
        for name in names
    }
    rooms["short"] = {"total_active_users": 9, "session_duration": 15}
    rooms["pays"] = {"total_active_users": 1, "claim_window": 60}
    rooms["never"] = {**rooms["short"], "keepalive_max_duration": 0}
    to = "http://origin/forms/"
    locations = "".join(gated(f"/{name}/", room=name, to=to) for name in rooms)
    locations += "".join(
        f"location /redirect-{name}/ {{ set $waitroom_mode redirect; set $waitroom_room {name};"
        f" include waitroom/location.conf; proxy_pass {to}; }}\n"
        for name in rooms
    )
    docs = (ROOT / "docs" / "nginx.md").read_text()
    (back,) = re.findall(r"location = /payment/back \{.*?\n  \}\n", docs, re.DOTALL)
    locations += back + gated("/payment/", room="pays", to=to)
    with Site(rooms=rooms, locations=locations) as site:
        site.names = iter(names)
        yield site


@pytest.fixture
def room(site):
    return next(site.names)


def end_visit(site, room):
    """End the visit of the only visitor inside. Another visitor takes the slot."""
    (session,) = site.admin("GET", f"/rooms/{room}/sessions")["sessions"]
    site.admin("POST", f"/rooms/{room}/visitors/{session['visitor']}/release")
    wait_until(lambda: site.room(room)["active"] == 0, "the end of the visit")
    Visitor(site.url).hold(f"/{room}/form")


def let_one_more_in(site, room):
    """Raise the cap, which works at once."""
    site.admin("PATCH", f"/rooms/{room}", {"total_active_users": 2})


def fill_in(page, url):
    page.goto(url)
    page.reload()  # The request sends the cookie.
    page.fill("[name=text]", "A long letter")


def send_without_session(site, room, page, url):
    """Fill in a form, end the visit, and send the form. Another visitor has the slot then."""
    fill_in(page, url)
    end_visit(site, room)
    page.get_by_text("Send").click()


@pytest.mark.parametrize("prefix", ["", "redirect-"])
def test_the_page_says_so_and_leads_back_to_the_form(site, room, visitor, prefix):
    """The page leads back to the form with its text, which the visitor can send again. The browser
    never requests the address of the form by GET."""
    page = visitor()
    asked = []
    page.on("request", lambda request: asked.append((request.method, request.url)))
    form = f"{site.url}/{prefix}{room}/form"
    send_without_session(site, room, page, form)
    expect(page.locator("#unsent")).to_have_text(UNSENT)
    expect(ahead(page)).to_have_text("0")
    let_one_more_in(site, room)
    expect(page.locator("h1")).to_have_text("Form")
    assert page.url == form
    expect(page.locator("[name=text]")).to_have_value("A long letter")
    page.get_by_text("Send").click()
    expect(page.locator("h1")).to_have_text("Arrived: A long letter")
    assert ("GET", f"{site.url}/{prefix}{room}/sent") not in asked


def test_who_asked_for_a_page_is_not_told(site, room, visitor):
    Visitor(site.url).hold(f"/{room}/form")
    page = visitor()
    page.goto(f"{site.url}/{room}/form")
    expect(ahead(page)).to_have_text("0")
    expect(page.locator("#unsent")).to_be_hidden()


def test_without_scripts(site, room, visitor):
    """The reloaded page still says that the form was not sent, and leads to the form."""
    page = visitor(java_script_enabled=False)
    send_without_session(site, room, page, f"{site.url}/{room}/form")
    page.wait_for_url(f"**/_waitroom/{room}/?unsent=1&next=/{room}/form")
    expect(page.locator("#unsent")).to_have_text(UNSENT)
    expect(ahead(page)).to_have_text("0")
    let_one_more_in(site, room)
    expect(page.locator("h1")).to_have_text("Form")


def test_a_form_that_does_not_say_where_it_is(site, room, visitor):
    """Without a referrer, the page leads to the start page."""
    page = visitor()
    url = f"{site.url}/{room}/form?referrer=no-referrer"
    send_without_session(site, room, page, url)
    expect(page.locator("#unsent")).to_have_text(UNSENT)
    expect(ahead(page)).to_have_text("0")
    let_one_more_in(site, room)
    page.wait_for_url(site.url + "/")


def test_a_form_of_another_site(site, room, visitor):
    """After a form of a payment page on another site, the page does not lead to that site."""
    page = visitor()
    fill_in(page, f"{site.url}/{room}/form")
    end_visit(site, room)
    bank = "http://bank.example/"
    action = f"{site.url}/{room}/sent"
    form = f'<form method=post action="{action}"><input name=text><button>Pay</button></form>'
    page.route(bank, lambda route: route.fulfill(content_type="text/html", body=form))
    page.goto(bank)
    page.get_by_text("Pay").click()
    expect(page.locator("#unsent")).to_have_text(UNSENT)
    let_one_more_in(site, room)
    page.wait_for_url(site.url + "/")


def test_who_comes_back_by_get_is_inside(site, visitor):
    """With the lines of docs/nginx.md, the browser repeats the POST by GET, with its cookies."""
    page = visitor()
    fill_in(page, f"{site.url}/payment/form")
    bank = "http://bank.example/"
    form = f'<form method=post action="{site.url}/payment/back?order=7"><button>Pay</button></form>'
    page.route(bank, lambda route: route.fulfill(content_type="text/html", body=form))
    page.goto(bank)
    page.get_by_text("Pay").click()
    page.wait_for_url(f"{site.url}/payment/done?order=7")
    expect(page.locator("#unsent")).to_have_count(0)
    assert site.room("pays")["waiting"] == 0


def test_who_types_stays_inside(site, visitor):
    """keep.js keeps a session of a typing visitor alive as long as the room's settings allow."""
    rooms, pages = ("short", "never"), []
    for room in rooms:
        page = visitor()
        page.goto(f"{site.url}/{room}/form?js=/_waitroom/{room}/keep.js")
        page.reload()
        pages.append(page)
    assert [site.room(room)["active"] for room in rooms] == [1, 1]
    for _ in range(36):
        for page in pages:
            page.type("[name=text]", "x")
        pages[0].wait_for_timeout(500)
    wait_until(lambda: site.room("never")["active"] == 0, "the end of a session")
    assert site.room("short")["active"] == 1
    assert [page.problems for page in pages] == [[], []]


def test_who_scrolls_stays_inside(site, visitor):
    page = visitor()
    page.goto(f"{site.url}/short/form?js=/_waitroom/short/keep.js")
    page.reload()
    with page.expect_response(re.compile("/_waitroom/short/status$")) as asked:
        for _ in range(16):
            page.evaluate("scrollBy(0, 50)")
            page.wait_for_timeout(500)
    assert asked.value.json()["state"] == "admitted"
