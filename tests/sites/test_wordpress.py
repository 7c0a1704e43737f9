"""A WordPress on PHP-FPM, configured as in docs/recipes/wordpress.md."""

from datetime import UTC, datetime

import pytest
from playwright.sync_api import expect

from tests.sites.php import PASSWORD, WordPress
from tests.support.nginx_client import Visitor
from tests.support.processes import wait_until
from tests.support.site import ROOT
from tests.support.story import ahead


@pytest.fixture(scope="module")
def site():
    room = {
        "total_active_users": 2,
        "heartbeat_interval": 1,
        "exempt_header": True,
        "exempt_paths": ["/feed", "/robots.txt"],
    }
    with WordPress(rooms={"shop": room}) as site:
        yield site


@pytest.fixture
def full(site):
    """Fill the room with two visitors. Earlier visitors are removed, and so is WordPress itself,
    which requested a page during its installation."""
    site.admin("POST", "/rooms/shop/reset")
    site.release_all()
    inside = [Visitor(site.url, {"Accept": "text/html"}) for _ in range(2)]
    for visitor in inside:
        visitor.hold("/sample-page/")
    return inside


def post(site) -> str:
    """Return the permalink of the first post."""
    return f"/{datetime.now(UTC):%Y/%m/%d}/hello-world/"


def test_all_of_a_page_comes(site, full):
    """The start page, a permalink, styles, pictures and the feed come, and WordPress answers
    404."""
    inside = full[0]
    for path, words in (
        ("/", "Hello world!"), (post(site), "Welcome to WordPress"),
        ("/index.php?s=hello", "Hello world!"), ("/sample-page/", "Sample Page"),
        ("/wp-includes/css/dist/block-library/style.min.css", "wp-block"),
        ("/wp-json/wp/v2/posts", "Hello world!"),
    ):  # fmt: skip
        reply = inside.get(path)
        assert (path, reply.status) == (path, 200)
        assert words in reply.text
    assert inside.get("/nothing-here/").status == 404


def test_a_full_room_leaves_no_php_open(site, full):
    """No permalink, front controller or other file bypasses the room."""
    for path in ("/", post(site), "/index.php?s=hello", "/index.php/hello-world/",
                 "/wp-json/wp/v2/posts", "/wp-comments-post.php", "/xmlrpc.php",
                 "/?wc-ajax=get_refreshed_fragments"):  # fmt: skip
        reply = Visitor(site.url, {"Accept": "text/html"}).get(path)
        assert (path, reply.status, reply.waits) == (path, 503, True)


def test_what_needs_no_room(site, full):
    """Styles, the log-in, the cron, the feed and robots.txt bypass the room."""
    for path in ("/wp-includes/css/dist/block-library/style.min.css", "/wp-login.php",
                 "/wp-cron.php", "/feed/", "/robots.txt"):  # fmt: skip
        assert (path, Visitor(site.url).get(path).status) == (path, 200)
    assert Visitor(site.url).get("/wp-admin/").status == 302  # to the log-in


def test_two_in_the_third_waits_and_enters(site, full, visitor):
    """The visitor is admitted by itself, at the post that it had requested, and comments."""
    third = visitor()
    third.goto(site.url + post(site))
    expect(ahead(third)).to_have_text("0")
    full[0].post("/_waitroom/shop/leave")
    expect(third.locator("h1.wp-block-post-title")).to_have_text("Hello world!")
    third.fill("#comment", "I was let in")
    third.fill("#author", "A visitor")
    third.fill("#email", "visitor@shop.example")
    third.click("#submit")
    expect(third.locator("body")).to_contain_text("I was let in")


#: Of the recipe's `geo`.
STAFF = {"X-Forwarded-For": "192.0.2.7"}
SAVE = "([path, data]) => wp.apiFetch({ path: `/wp/v2/${path}`, method: 'POST', data })"


@pytest.fixture
def staff(site, full, visitor):
    """Open the block editor as an administrator, from an address that needs no slot."""
    page = visitor(extra_http_headers=STAFF)
    page.goto(f"{site.url}/wp-login.php")
    page.fill("#user_login", "admin")
    page.fill("#user_pass", PASSWORD)
    page.click("#wp-submit")
    expect(page.locator("#wpadminbar")).to_be_visible()
    page.goto(f"{site.url}/wp-admin/post-new.php")
    page.wait_for_function("Boolean(window.wp && wp.apiFetch)")
    return page


def test_staff_publish_and_upload_while_the_room_is_full(site, full, staff, tmp_path):
    """The editor calls /wp-json/, which is behind the room. nginx serves the uploaded file."""
    made = staff.evaluate(SAVE, ["posts", {"title": "A sale", "status": "publish"}])
    assert "A sale" in full[0].get(made["link"].removeprefix(site.url)).text
    picture = tmp_path / "ticket.png"
    picture.write_bytes((ROOT / "docs" / "seat.png").read_bytes())
    staff.goto(f"{site.url}/wp-admin/media-new.php?browser-uploader")
    staff.set_input_files("#async-upload", picture)
    staff.click("#html-upload")
    staff.wait_for_url("**/upload.php*")
    (kept,) = full[0].get("/wp-json/wp/v2/media").json()
    path = kept["source_url"].removeprefix(site.url)
    assert path.startswith("/wp-content/uploads/")
    reply = Visitor(site.url).get(path)
    assert (reply.status, reply.body[:4]) == (200, b"\x89PNG")
    assert site.room()["active"] == 2


def test_the_received_order_frees_the_slot(site, full, staff):
    """Only the address of the received order frees the slot."""
    parent = staff.evaluate(SAVE, ["pages", {"title": "Checkout", "status": "publish"}])
    order = {"title": "Order received", "parent": parent["id"], "status": "publish"}
    staff.evaluate(SAVE, ["pages", order])
    assert "Checkout" in full[0].get("/checkout/").text
    assert site.room()["active"] == 2
    assert "Order received" in full[0].get("/checkout/order-received/").text
    wait_until(lambda: site.room()["active"] == 1, "the slot of the received order")
