"""Waiting and entering with a real browser, nginx and Redis."""

import pytest
from playwright.sync_api import expect

from sidecar.kit.clock import StoreClock
from sidecar.visitors.tokens import Tokens
from tests.support import story
from tests.support.processes import wait_until
from tests.support.site import SECRET, Site
from tests.support.story import ahead, go_in, leave


@pytest.fixture
def site():
    rooms = {
        "shop": {
            "total_active_users": 1,
            "claim_window": 5,
            "heartbeat_timeout": 10,
            "heartbeat_interval": 1,
        }
    }
    with Site(rooms=rooms, replicas=2) as site:
        yield site


def let_one_more_in(site):
    """Raise the cap, which works at once. A slot of a visitor who leaves is free only when nginx
    has no cached verdict."""
    site.admin("PATCH", "/rooms/shop", {"total_active_users": 2})


def wait_behind_one(site, visitor, path="/page", **options):
    """Let a visitor enter. Return the page of a second visitor, who waits."""
    go_in(visitor(), f"{site.url}/page")
    second = visitor(**options)
    second.goto(site.url + path)
    expect(ahead(second)).to_have_text("0")
    return second


def one_inside_two_waiting(site, visitor):
    """Let three visitors arrive one after the other. Return their pages."""
    first, second, third = visitor(), visitor(), visitor()
    go_in(first, f"{site.url}/page")
    for page in (second, third):
        page.goto(f"{site.url}/page")
        expect(ahead(page)).to_be_visible()
    expect(ahead(third)).to_have_text("1")
    return first, second, third


def test_in_wait_enter(site, visitor):
    """One visitor is inside, two wait. When the first finishes, the second enters in both tabs. The
    third, without JavaScript, enters when there is one more slot."""
    story.play_story(site, visitor)


def test_a_claim_link_says_how_long_the_turn_is_held(site, visitor):
    """The page of a claim link counts down, and then says that the place is gone."""
    second = wait_behind_one(site, visitor)
    (cookie,) = (each for each in second.context.cookies() if each["name"] == "waitroom_shop")
    second.close()
    tokens = Tokens("shop", [SECRET], StoreClock())
    link = tokens.write_claim(tokens.read(cookie["value"]))
    let_one_more_in(site)
    wait_until(lambda: site.room()["provisional"] == 1, "the call")
    phone = visitor()
    phone.goto(f"{site.url}/_waitroom/shop/claim?token={link}")
    expect(phone.locator("h1")).to_have_text("It is your turn")
    expect(phone.locator("#held")).to_have_text("Time left: 0:01")
    expect(phone.locator("h1")).to_have_text("This place is gone")
    assert [text for text in phone.problems if "410 (Gone)" not in text] == []


def test_the_back_button_works_after_entering(site, visitor):
    """The waiting page has no address of its own, so Back leads to the previous page."""
    first, second = visitor(), visitor()
    go_in(first, f"{site.url}/page")
    second.goto("about:blank")
    second.goto(f"{site.url}/page/before")
    expect(ahead(second)).to_have_text("0")
    let_one_more_in(site)
    expect(second.locator("h1")).to_have_text("Inside")
    second.goto(f"{site.url}/page/after")
    second.go_back()
    expect(second.locator("#at")).to_have_text("/page/before")


def test_leaving_the_page_ends_the_time_for_undo(site, visitor):
    """Leaving the page during the time for Undo gives up the place at once."""
    _, second, third = one_inside_two_waiting(site, visitor)
    leave(second)
    expect(second.get_by_role("button", name="Undo")).to_be_visible()
    second.goto("about:blank")
    expect(ahead(third)).to_have_text("0")


def test_the_page_keeps_its_numbers_while_the_sidecar_is_away(site, visitor):
    """Without replicas the page says so, keeps its numbers, and continues by itself later."""
    second = wait_behind_one(site, visitor)
    for replica in site.replicas:
        replica.stop()
    expect(second.locator("#offline")).to_be_visible()
    expect(ahead(second)).to_have_text("0")
    for replica in site.replicas:
        replica.start()
    expect(second.locator("#offline")).to_be_hidden(timeout=60_000)
    let_one_more_in(site)
    expect(second.locator("h1")).to_have_text("Inside")
