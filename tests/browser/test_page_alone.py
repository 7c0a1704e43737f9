"""The waiting page without its script, with a broken script, or in an old browser."""

import pytest
from playwright.sync_api import expect

from tests.support.nginx_client import Visitor
from tests.support.site import Site, gated
from tests.support.story import ahead

#: Scripts that remove features that old browsers do not have.
LACKS = {
    "units": "const own = Intl.NumberFormat; Intl.NumberFormat = function (l, o) {"
    " if (o && o.style === 'unit') throw new RangeError('style'); return own(l, o); };",
    "BroadcastChannel": "delete window.BroadcastChannel",
    "notifications": "delete window.Notification; delete window.AudioContext",
    "wake lock": "Object.defineProperty(navigator, 'wakeLock', { value: undefined })",
    "storage and navigation entries": "Object.defineProperty(window, 'sessionStorage',"
    " { get() { throw new Error('refused'); } }); performance.getEntriesByType = () => []",
    "EventSource": "delete window.EventSource",
    "Intl.Locale": "delete Intl.Locale",
}


@pytest.fixture(scope="module")
def site():
    """Start a site with a room for each test."""
    names = [f"room-{number}" for number in range(20)]
    rooms = {name: {"total_active_users": 1, "heartbeat_interval": 1} for name in names}
    origin = "http://origin/page/"
    locations = "".join(gated(f"/{name}/", room=name, to=origin) for name in names)
    with Site(rooms=rooms, locations=locations) as site:
        site.names = iter(names)
        yield site


@pytest.fixture
def full(site):
    """Return the name of a room whose slot is taken."""
    room = next(site.names)
    insider = Visitor(site.url)
    insider.hold(f"/{room}/")
    return room


def let_one_more_in(site, room):
    site.admin("PATCH", f"/rooms/{room}", {"total_active_users": 2})


def reload_sooner(page, site):
    """Make the page reload after two seconds instead of sixty."""

    def answer(route):
        reply = route.fetch(max_redirects=0)
        route.fulfill(response=reply, body=reply.text().replace('content="60;', 'content="2;'))

    page.route(lambda url: "static" not in url and "status" not in url, answer)


@pytest.mark.parametrize(
    "script", [None, "fetch = () => { throw new Error('it dies'); }"], ids=["never arrives", "dies"]
)
def test_without_its_script_the_page_enters(site, full, visitor, script):
    page = visitor()
    reload_sooner(page, site)
    page.route(
        "**/waiting.js*",
        lambda route: route.abort() if script is None else route.fulfill(body=script),
    )
    asked = f"/{full}/page?a=1"
    page.goto(site.url + asked)
    page.wait_for_url(f"**/_waitroom/{full}/?next={asked}")
    let_one_more_in(site, full)
    expect(page.locator("h1")).to_have_text("Inside")
    assert page.url == site.url + asked


def test_the_script_stops_the_reload(site, full, visitor):
    page = visitor()
    reload_sooner(page, site)
    page.goto(f"{site.url}/{full}/page")
    expect(ahead(page)).to_have_text("0")
    page.wait_for_timeout(4000)
    assert page.url == f"{site.url}/{full}/page"
    assert page.problems == []


@pytest.mark.parametrize("lacks", LACKS.values(), ids=LACKS)
def test_a_browser_that_lacks_something_waits_and_enters(site, full, visitor, lacks):
    page = visitor()
    page.add_init_script(lacks)
    page.goto(f"{site.url}/{full}/page")
    expect(ahead(page)).to_have_text("0")
    let_one_more_in(site, full)
    expect(page.locator("h1")).to_have_text("Inside")
    assert page.url == f"{site.url}/{full}/page"
    assert page.problems == []


def test_a_site_that_swaps_pages_gets_into_the_room(site, full, visitor):
    """The page works if a library like Turbo replaces head and body, and runs scripts again."""
    page = visitor()
    page.route("**/own", lambda route: route.fulfill(content_type="text/html", body="<h1>x</h1>"))
    page.goto(f"{site.url}/own")
    page.evaluate(
        """async path => {
            const reply = await fetch(path, { headers: { Accept: 'text/html' } });
            const made = new DOMParser().parseFromString(await reply.text(), 'text/html');
            made.querySelectorAll('noscript').forEach(each => each.remove());
            history.pushState({}, '', path);
            document.head.replaceWith(made.head);
            document.body.replaceWith(made.body);
            document.querySelectorAll('script').forEach(old => {
                const script = document.createElement('script');
                script.src = old.src;
                old.replaceWith(script);
            });
        }""",
        f"/{full}/page",
    )
    expect(ahead(page)).to_have_text("0")
    let_one_more_in(site, full)
    expect(page.locator("h1")).to_have_text("Inside")
