"""Waiting and entering with a real browser, nginx and Redis."""

import pytest
from playwright.sync_api import expect

from sidecar.kit.clock import StoreClock
from sidecar.visitors.tokens import Tokens
from tests.support import story
from tests.support.processes import wait_until
from tests.support.site import SECRET, Site, gated
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


def test_reload_and_second_tab_keep_the_place(site, visitor):
    """Reloads and further tabs of a browser belong to the same visitor, who has one place."""
    second = wait_behind_one(site, visitor)
    for _ in range(3):
        second.reload()
        expect(ahead(second)).to_have_text("0")
    tab = second.context.new_page()
    tab.goto(f"{site.url}/page/other")
    expect(ahead(tab)).to_have_text("0")
    assert site.room()["waiting"] == 1

    let_one_more_in(site)
    expect(second.locator("h1")).to_have_text("Inside")
    expect(tab.locator("h1")).to_have_text("Inside")
    assert tab.url == f"{site.url}/page/other"


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


def test_without_javascript(site, visitor):
    """The page shows its numbers, and enters by reloading."""
    second = wait_behind_one(site, visitor, "/page/plain?x=1&y=2", java_script_enabled=False)
    expect(second.locator("#wait")).to_have_text("we are still measuring")
    let_one_more_in(site)
    expect(second.locator("h1")).to_have_text("Inside")
    assert second.url == f"{site.url}/page/plain?x=1&y=2"


def test_leaving_and_joining_again(site, visitor):
    """Leaving gives the place to the next visitor. Joining again is at the end."""
    _, second, third = one_inside_two_waiting(site, visitor)
    leave(second)
    expect(second.locator("h1")).to_have_text("You have left the line")
    expect(ahead(third)).to_have_text("0")
    second.get_by_role("button", name="Join again").click()
    expect(ahead(second)).to_have_text("1")


def test_leaving_the_page_ends_the_time_for_undo(site, visitor):
    """Leaving the page during the time for Undo gives up the place at once."""
    _, second, third = one_inside_two_waiting(site, visitor)
    leave(second)
    expect(second.get_by_role("button", name="Undo")).to_be_visible()
    second.goto("about:blank")
    expect(ahead(third)).to_have_text("0")


def test_leaving_without_javascript(site, visitor):
    """Leaving and joining again are forms, which work without JavaScript."""
    second = wait_behind_one(site, visitor, java_script_enabled=False)
    leave(second)
    expect(second.locator("h1")).to_have_text("You have left the line")
    assert site.room()["waiting"] == 0
    second.get_by_role("button", name="Join again").click()
    expect(ahead(second)).to_have_text("0")


def test_a_browser_that_dies_is_passed_over(site, visitor):
    """The visitor behind a closed browser gets the slot without delay."""
    _, second, third = one_inside_two_waiting(site, visitor)
    second.context.close()
    third.wait_for_timeout(6_500)  # The poll is late by more than claim_window.
    let_one_more_in(site)
    expect(third.locator("h1")).to_have_text("Inside")
    counters = site.room()["counters"]
    assert counters.get("expired_silent", 0) == 1


def test_the_operators_message_appears(site, visitor):
    """The page shows a message that is set at run time after the next poll."""
    second = wait_behind_one(site, visitor)
    site.admin("PATCH", "/rooms/shop", {"message": "Tickets <b>left</b>: 12"})
    expect(second.locator("#message")).to_have_text("Tickets <b>left</b>: 12")


def test_the_page_follows_the_browsers_language(site, visitor):
    """An Arabic browser gets Arabic text from right to left."""
    second = visitor(locale="ar")
    go_in(visitor(), f"{site.url}/page")
    second.goto(f"{site.url}/page")
    expect(second.locator("h1")).to_have_text("دورك هو التالي")
    assert second.evaluate("document.documentElement.dir") == "rtl"


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


def test_the_redirect_variant(visitor):
    """In redirect mode the page has its own address, and leads to the requested address."""
    locations = gated("/", "set $waitroom_mode redirect;")
    locations += gated("/done", "include waitroom/release.conf;")
    with Site(locations=locations) as site:
        first, second = visitor(), visitor()
        go_in(first, f"{site.url}/page")
        second.goto(f"{site.url}/page/deep?a=1&b=2")
        expect(ahead(second)).to_have_text("0")
        assert second.url == f"{site.url}/_waitroom/shop/?next=/page/deep?a=1&b=2"
        let_one_more_in(site)
        expect(second.locator("h1")).to_have_text("Inside")
        assert second.url == f"{site.url}/page/deep?a=1&b=2"
        assert [first.problems, second.problems] == [[], []]
