"""Views of the waiting page in a real browser, with responses and times that tests set."""

import re
from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import expect

from sidecar.gate.page.render import Page
from sidecar.kit.share import find_share
from sidecar.rooms.settings import RoomSettings
from sidecar.visitors.visitor_number import visitor_number
from tests.browser.played_page import ABOUT, LANGUAGES, NOWHERE, SERVER, closed, iso, prequeue
from tests.support.processes import wait_until
from tests.support.story import leave

GONE = {**NOWHERE, "state": "not_queued", "refresh_after_seconds": 1}


def countdown(page):
    """Return the elements of the visible numbers in the countdown."""
    return page.locator("#left > :not([hidden]) b")


def test_the_countdown_goes_by_the_servers_time(play):
    """The countdown is right though the browser's clock is years behind. It updates each second
    without moving or speaking. The date is in the visitor's time zone."""
    site = play()
    page = site.open(**closed(SERVER + timedelta(days=1, hours=2, minutes=3, seconds=4)))
    expect(page.locator("h1")).to_have_text("Opens on 1 December")
    expect(page).to_have_title("Opens on 1 December – Waitroom")
    expect(page.locator("#when")).to_have_text("Tuesday, 1 December 2026 at 12:03 CET")
    expect(countdown(page)).to_have_text(["01", "02", "03", "04"])
    expect(page.get_by_role("timer", name="Opens in")).to_be_visible()
    boxes = [cell.bounding_box() for cell in countdown(page).all()]
    heard = page.locator("#live").text_content()
    site.forward(5.5)
    expect(countdown(page)).to_have_text(["01", "02", "02", "59"])
    assert [cell.bounding_box() for cell in countdown(page).all()] == boxes
    assert page.locator("#live").text_content() == heard == "Opens on 1 December"
    assert site.asked == ["status"]
    assert page.problems == []


def test_a_change_of_clocks_before_the_opening(play):
    """The countdown and the shown time are right across a change to summer time."""
    server = datetime(2026, 3, 28, 12, 0, tzinfo=UTC)  # 13:00 in Zurich
    page = play(server=server).open(**closed(datetime(2026, 3, 29, 8, 0, tzinfo=UTC)))
    expect(page.locator("#when")).to_have_text("Sunday, 29 March 2026 at 10:00 CEST")
    expect(countdown(page)).to_have_text(["20", "00", "00"])


def test_it_opens_by_itself_and_asks_little(play):
    """A closed page polls once a minute. If the pre-queue begins earlier, the page joins then, and
    no sooner."""
    site = play()
    begins, opens = SERVER + timedelta(seconds=100), SERVER + timedelta(seconds=400)
    page = site.open(**closed(opens, begins))
    expect(page.locator("h1")).to_have_text("Opens at 10:06")
    expect(page.locator("#when")).to_contain_text("Pre-queue from 10:01")
    expect(page.locator("#intro")).to_contain_text("carries on by itself")
    expect(page.locator("button:visible")).to_have_text(["Tell me when it opens"])
    site.forward(59)
    assert site.asked == ["status"]
    site.forward_to("status", 1, **closed(opens, begins, refresh_after_seconds=42))
    site.forward(41, **prequeue(opens))
    assert site.asked == ["status", "status"]
    site.forward_until_asked("join")
    expect(page.locator("h1")).to_have_text("You are in the pre-queue")
    expect(page.locator("#live")).to_have_text("You are in the pre-queue")
    assert site.asked == ["status", "status", "join"]
    assert page.problems == []


def test_the_prequeue_tells_no_place(play):
    """The pre-queue shows the time of the draw and the number of visitors, but no position or wait.
    After the opening it shows the drawn place."""
    site = play()
    opens = SERVER + timedelta(seconds=25)
    page = site.open(**prequeue(opens))
    expect(page.locator("#intro")).to_have_text(
        "When it opens (10:00), everyone here gets a place by lot. It makes no difference when you "
        "came. Keep this page open."
    )
    expect(countdown(page)).to_have_text(["00", "00", "25"])
    expect(page.locator("#waiting")).to_have_text("240")
    for hidden in ("#place", "#time", "progress"):
        expect(page.locator(hidden)).to_be_hidden()
    expect(page.get_by_text("Leave the line")).to_be_visible()
    expect(page).to_have_title("You are in the pre-queue – Waitroom")
    site.forward_to("status", 32, position=42, ahead=41, event="sale", opens_at=iso(opens))
    expect(page.locator("h1")).to_have_text("You are in line")
    expect(page.locator("#ahead")).to_have_text("41")
    expect(page.locator("#live")).to_contain_text("People ahead of you: 41")
    expect(page.locator("#clock")).to_be_hidden()
    assert page.locator("progress").evaluate("bar => [bar.value, bar.max]") == [1, 43]


def test_a_countdown_that_is_over_waits_for_the_server(play):
    """The countdown stays at zero until the next response."""
    site = play()
    page = site.open(**prequeue(SERVER + timedelta(seconds=3)))
    expect(countdown(page)).to_have_text(["00", "00", "03"])
    site.forward(8)
    expect(countdown(page)).to_have_text(["00", "00", "00"])
    expect(page.locator("h1")).to_have_text("You are in the pre-queue")


def test_closed_for_good(play):
    """Without a coming event, or in a closed room, there is no countdown."""
    site = play()
    page = site.open(state="closed", phase="closed", joined_at=None, **NOWHERE)
    expect(page.locator("h1")).to_have_text("The line is closed to newcomers")
    expect(page.locator("#clock")).to_be_hidden()
    site.forward_to("status", 40, state="closed", **NOWHERE, event="sale", opens_at=iso(SERVER))
    expect(page.locator("h1")).to_have_text("The line is closed to newcomers")
    expect(page.locator("#clock")).to_be_hidden()
    assert page.problems == []


@pytest.mark.parametrize(("language", "shown"), [("en-GB", "2,000+"), ("de-DE", "2.000+")])
def test_above_the_rank_limit(play, language, shown):
    """Above the rank limit, the number is formatted by language, in the title and for screen
    readers too, without a bar. Below it, the position appears."""
    site = play(locale=language)
    page = site.open(position=None, ahead=None, position_above=2000, waiting=12_345)
    expect(page.locator("#ahead")).to_have_text(shown)
    expect(page).to_have_title(re.compile(re.escape(f"({shown}) ")))
    expect(page.locator("#lane")).to_be_hidden()
    heard = {
        "en-GB": "People ahead of you: more than 2,000",
        "de-DE": "Personen vor Ihnen: mehr als 2.000",
    }
    expect(page.locator("#live")).to_have_text(heard[language])
    site.forward_to("status", 35, position=1999, ahead=1998)
    expect(page.locator("#ahead")).to_have_text(re.compile(r"^1\D998$"))
    expect(page.locator("#lane")).to_be_visible()


def test_the_own_line(play):
    """The page names the visitor's sub-queue by its label in their language. The default one, of
    which the room tells no label, is not named."""
    site = play(locale="de-DE")
    site.about = {**ABOUT, "lines": {"channel": {"en": "Call centre", "de": "Callcenter"}}}
    page = site.open(line="channel")
    expect(page.locator("#line")).to_have_text("Ihre Warteschlange: Callcenter")
    site.forward_to("status", 35, line="ordinary")
    expect(page.locator("#line")).to_be_hidden()


def test_a_full_line_is_tried_again(play):
    """The page says that the queue is full, and joins at the advised time, no sooner."""
    site = play()
    page = site.open(state="full", joined_at=None, **NOWHERE)
    expect(page.locator("h1")).to_have_text("The line is full right now")
    expect(page.locator("#intro")).to_contain_text("tries again by itself until you have a place")
    expect(page.get_by_text("Leave the line")).to_be_hidden()
    site.forward(29)
    assert site.asked == ["status"]
    site.forward_to("join", 3, position=240, ahead=239)
    expect(page.locator("#ahead")).to_have_text("239")
    assert site.asked == ["status", "join"]


def test_leaving_takes_two_steps_and_is_undone(play):
    """The page warns of the loss, and "Stay" changes nothing. For some seconds "Undo" keeps the
    place, which was not given up yet."""
    site = play()
    page = site.open()
    page.get_by_text("Leave the line").click()
    expect(page.get_by_text("You lose your place.")).to_be_visible()
    page.get_by_role("button", name="Stay in line").click()
    expect(page.get_by_text("You lose your place.")).to_be_hidden()
    leave(page)
    expect(page.locator("h1")).to_have_text("You have left the line")
    expect(page.get_by_role("button", name="Join again")).to_be_hidden()
    shown = "getComputedStyle(document.getElementById('undo'), '::after').animationDuration"
    assert page.evaluate(shown) == "8s"
    site.forward(7)
    with page.expect_response("**/status"):
        page.get_by_role("button", name="Undo").click()
    expect(page.locator("#ahead")).to_have_text("16")
    assert site.asked == ["status", "status"]


def test_leaving_ends_the_place(play):
    """The page leaves the queue when the time for Undo ends. It leads to the site, and says
    that who joins again starts at the end."""
    site = play()
    site.next = "/shoes"
    page = site.open()
    leave(page)
    expect(page.locator("#intro")).to_have_text("If you join again, you start at the end.")
    expect(page.get_by_role("link", name="Go to the site")).to_have_attribute("href", "/")
    site.forward_to("leave", 9, state="not_queued", **NOWHERE)
    expect(page.get_by_role("button", name="Undo")).to_be_hidden()
    expect(page.get_by_role("button", name="Join again")).to_be_visible()
    assert page.problems == []


def test_the_rooms_own_name_and_logo(play):
    """The name is shown as text, also in the title."""
    site = play()
    own = {"site_name": "<b>Rock</b> & Co", "logo": "/_waitroom/static/turn.svg"}
    site.about = {**ABOUT, **own}
    page = site.open()
    expect(page.locator("#site")).to_have_text("<b>Rock</b> & Co")
    expect(page).to_have_title(re.compile(r" . <b>Rock</b> & Co$"))
    expect(page.locator("header img")).to_have_attribute("src", "/_waitroom/static/turn.svg")


def test_the_wait_by_the_clock_and_the_speed(play):
    """The time of admission is in the visitor's time zone. While entry is paused, neither the time
    nor the speed is shown."""
    site = play()
    page = site.open(wait_seconds=780, wait_seconds_low=660, wait_seconds_high=900, ahead=38)
    expect(page.locator("#between")).to_have_text(
        re.compile(r"^Expected entry: 10:11\u2060.\u206010:15$")
    )
    expect(page.locator("#pace")).to_have_text("about 3 a minute")
    expect(page.get_by_text("If you miss your turn, you are next as soon as")).to_be_visible()
    expect(page.get_by_text("open a page every 5 minutes")).to_be_visible()
    expect(page.get_by_text("this browser keeps your place for 24 hours")).to_be_visible()
    site.again(wait_seconds=780, ahead=16)  # Low speeds have a decimal.
    expect(page.locator("#pace")).to_have_text("about 1.3 a minute")
    site.again(wait_seconds=780, ahead=11)  # Speeds below one are not shown.
    expect(page.locator("#speed")).to_be_hidden()
    site.again(state="full", **NOWHERE)
    expect(page.locator("#know li:visible")).to_have_text(["No need to refresh."])
    site.again(paused=True, wait_seconds=780, wait_seconds_low=660, wait_seconds_high=900)
    expect(page.locator("#paused")).to_be_visible()
    expect(page.locator("#between")).to_be_hidden()
    expect(page.locator("#speed")).to_be_hidden()


WORDS = {
    (40, 50, 60): "less than a minute",
    (10, 50, 110): "less than 2 minutes",
    (660, 780, 900): "about 11–15 minutes",
    (100, 440, 1000): "about 7 minutes",  # wider than 3:1
    (60 * 20, 60 * 50, 60 * 110): "about 50 minutes",
    (60 * 25, 60 * 40, 60 * 55): "about 25–55 minutes",
    (60 * 65, 60 * 75, 60 * 85): "about 1–1.5 hours",
    (60 * 70, 60 * 150, 60 * 300): "about 2.5 hours",
    (3600 * 5, 3600 * 7, 3600 * 9): "about 5–9 hours",
}


def test_the_wait_in_words(play):
    """The script and the replica say the same. A clock time is beside a range only."""
    site = play()
    page = site.open(wait_seconds=None, measuring=True)
    expect(page.locator("#wait")).to_have_text("we are still measuring")
    server, settings = Page(find_share("static")), RoomSettings(total_active_users=1)
    for (low, middle, high), text in WORDS.items():
        wait = {"wait_seconds": middle, "wait_seconds_low": low, "wait_seconds_high": high}
        site.again(**wait)
        expect(page.locator("#wait")).to_have_text(text)
        assert page.locator("#between").is_visible() == ("–" in text)
        assert server.collect_status_values(site.document(), "en", settings)["wait"] == text
    late = site.document() | dict.fromkeys(wait, 5400)
    german = server.collect_status_values(late, "de", settings)
    assert german["wait"] == "etwa 1,5 Stunden"
    unknown = {**site.document(), "wait_seconds": None}
    assert server.collect_status_values(unknown, "en", settings)["wait"] == "not known yet"
    unknown["measuring"] = True
    assert server.collect_status_values(unknown, "en", settings)["wait"] == "we are still measuring"


def test_the_bar_never_goes_backwards(play):
    """The bar begins near zero, and does not move if others are moved ahead of the visitor."""
    site = play()
    page = site.open(position=40, ahead=39)
    bar = page.locator("progress")
    share = "bar => bar.value / bar.max"
    assert 0 < bar.evaluate(share) < 0.05
    site.again(position=10, ahead=9)
    expect(page.locator("#ahead")).to_have_text("9")
    reached = bar.evaluate(share)
    assert reached > 0.7
    site.again(position=12, ahead=11)
    expect(page.locator("#ahead")).to_have_text("11")
    assert bar.evaluate(share) == reached


def test_a_page_of_an_older_version_polls_on(play):
    """The new script works with a page of an older version, and ignores missing elements."""
    site = play()
    site.older = True
    page = site.open()
    expect(page.locator("#waiting")).to_have_text("240")
    site.forward_to("status", 35)
    assert page.problems == []


def test_texts_that_a_language_lacks_are_english(play):
    """Texts that are missing in a translation are shown in English."""
    site = play(locale="de-DE")
    site.lacks = {"heading", "pace", "leave_sure"}
    page = site.open(wait_seconds=300)
    expect(page.locator("h1")).to_have_text("You are in line")
    expect(page.locator("#pace")).to_have_text("about 3 a minute")
    expect(page.locator("#label")).to_have_text("Personen vor Ihnen")
    expect(page.locator("#offline")).to_be_hidden()


def test_nothing_is_promised_that_is_not_known(play):
    """Without values from the replica, as with leases or older versions, the page shows no
    promises."""
    site = play()
    durations = ("claim_seconds", "session_seconds", "session_max_seconds", "place_seconds")
    site.about = {**ABOUT, **dict.fromkeys(durations)}
    page = site.open()
    expect(page.locator("#know li")).to_have_text(["No need to refresh."])
    site.about = None
    page.reload()
    expect(page.locator("#ahead")).to_have_text("16")
    expect(page.locator("#know")).to_be_hidden()


def test_the_network_coming_back_leaves_undo_alone(play):
    """The page does not poll during the time for Undo, because a poll could admit the visitor."""
    site = play()
    page = site.open()
    page.get_by_text("Leave the line").wait_for()
    site.again()
    leave(page)
    asked = len(site.asked)
    page.evaluate("dispatchEvent(new Event('online'))")
    site.forward(5)
    assert len(site.asked) == asked
    expect(page.get_by_role("button", name="Undo")).to_be_visible()


def test_the_visitors_number(play):
    """The page shows the same visitor number as the server."""
    page = play().open(visitor="hQmVzkXy3c1tA9bWn0Lr-Q")
    expect(page.locator("#number")).to_have_text(visitor_number("hQmVzkXy3c1tA9bWn0Lr-Q"))
    expect(page.locator("#own")).to_contain_text("Reference, for support")


def test_a_phone_in_landscape(play):
    """The wait or the opening, and the buttons, are in sight. How the room works is folded in, and
    its reference for support follows."""
    site = play(viewport={"width": 740, "height": 360})
    before = ("#left", "#when", "#calendar", "#notify")
    for answer, names in (
        (closed(SERVER + timedelta(days=2), SERVER + timedelta(days=1)), before),
        (prequeue(SERVER + timedelta(hours=1)), before),
        ({"wait_seconds": 780}, ("#ahead", "progress", "#wait", "#pace", "#notify")),
    ):
        page = site.open(**answer)
        expect(page.locator(names[-2])).not_to_be_empty()
        for name in names:
            box = page.locator(name).bounding_box()
            assert box["y"] + box["height"] <= 360, name
    page.set_viewport_size({"width": 390, "height": 800})
    page.reload()
    expect(page.get_by_text("How this works")).to_be_visible()
    expect(page.get_by_text("No need to refresh.")).to_be_hidden()
    page.get_by_text("How this works").click()
    expect(page.get_by_text("No need to refresh.")).to_be_visible()


def test_a_site_that_does_not_load(play):
    """If the site has not loaded after five seconds, a button loads it again."""
    site = play()
    page = site.open()
    expect(page.locator("#ahead")).to_have_text("16")
    loads = []

    def load_nothing(route):
        loads.append(route)
        route.fulfill(status=204)  # the browser keeps the page

    page.route("**/page", load_nothing)
    site.again(state="admitted", **NOWHERE)
    expect(page.locator("h1")).to_have_text("It is your turn")
    assert page.locator("progress").evaluate("bar => bar.value === bar.max")
    button = page.get_by_role("button", name="Continue")
    site.forward(4)
    expect(button).to_be_hidden()
    site.forward(2)
    assert len(loads) == 1
    button.click()
    wait_until(lambda: page.wait_for_timeout(20) or len(loads) == 2, "the second try")


def test_blocked_notifications(play):
    """If the browser blocks notifications, the page says so, and that there is a sound."""
    site = play()
    site.page.add_init_script(
        "window.Notification = class { static permission = 'default';"
        " static requestPermission() { this.permission = 'denied';"
        " return Promise.resolve('denied') } }"
    )
    page = site.open()
    page.get_by_role("button", name="Tell me when it is my turn").click()
    expect(page.locator("#blocked")).to_contain_text("Your browser blocks notifications")
    page.get_by_role("button", name="Tell me when it is my turn").click()
    expect(page.locator("#blocked")).to_be_hidden()


NOTIFICATIONS = """
    window.shown = [];
    window.Notification = class {
        static permission = 'granted';
        constructor(title) { shown.push(title); }
    };
    window.tones = 0;
    const start = OscillatorNode.prototype.start;
    OscillatorNode.prototype.start = function (...at) {
        tones++;
        return start.apply(this, at);
    };
"""


def test_before_the_opening_there_is_something_to_do(play):
    """The page says that places are drawn, and the time in the event's own time zone too. It has a
    calendar entry, keeps the screen on, and reports the opening with a sound and a notification."""
    site = play()
    site.page.add_init_script(NOTIFICATIONS)
    # Chromium has wake locks by HTTPS only.
    site.page.add_init_script("Object.defineProperty(navigator, 'wakeLock', { value: {} })")
    opens, zone = SERVER + timedelta(hours=30), "America/New_York"
    page = site.open(**closed(opens, SERVER + timedelta(hours=29), timezone=zone))
    expect(page.locator("#intro")).to_contain_text("any time before it opens: places are drawn")
    expect(page.locator("#when")).to_have_text(
        "Tuesday, 1 December 2026 at 16:00 CET\n10:00 Eastern Standard Time\nPre-queue from 15:00",
        use_inner_text=True,
    )
    entry = page.get_by_role("link", name="Add to calendar")
    expect(entry).to_have_attribute("href", "/_waitroom/shop/opening.ics?next=/")
    expect(page.get_by_role("button", name="Keep the screen on")).to_be_visible()
    button = page.get_by_role("button", name="Tell me when it opens")
    button.click()
    assert page.evaluate("tones") == 2
    site.again(**prequeue(opens))
    expect(page.locator("h1")).to_have_text("You are in the pre-queue")
    expect(button).to_have_attribute("aria-pressed", "true")
    expect(entry).to_be_visible()
    assert page.evaluate("shown") == []
    site.again(position=42, ahead=41, event="sale", opens_at=iso(SERVER))
    expect(page.locator("#ahead")).to_have_text("41")
    assert page.evaluate("shown") == ["It is open now"]
    assert page.evaluate("tones") == 4
    expect(page.locator("[rel=icon]")).to_have_attribute("href", "/_waitroom/static/logo.svg")
    expect(entry).to_be_hidden()
    expect(page.get_by_role("button", name="Tell me when it is my turn")).to_be_visible()
    assert page.problems == []


def test_the_message_is_in_the_visitors_language(play):
    """The page chooses among the message's languages by itself, also one that it does not speak. As
    on the replica, the text without a language is for all others."""
    texts = {"de": "Weiter um 9", "en": "Back then", "sv": "Fortsätter 9", "zh-TW": "九點繼續"}
    message = {"message": "Back at 9", "messages": texts}
    for locale, shown in (("de-CH", texts["de"]), ("sv-SE", texts["sv"]), ("en-US", texts["en"]),
                          ("zh-HK", texts["zh-TW"]), ("fi-FI", "Back at 9")):  # fmt: skip
        page = play(locale=locale).open(**message)
        expect(page.locator("#message")).to_have_text(shown)
        expect(page.locator("#live")).to_contain_text(shown)


def test_the_call_reaches_who_looks_elsewhere(play):
    """A call changes title and icon. If the visitor pressed the button, there are a sound and a
    notification."""
    site = play()
    site.page.add_init_script(NOTIFICATIONS)
    page = site.open()
    button = page.get_by_role("button", name="Tell me when it is my turn")
    button.click()
    expect(button).to_have_attribute("aria-pressed", "true")
    assert page.evaluate("tones") == 2
    site.again(state="admitted", **NOWHERE)
    expect(page).to_have_title("It is your turn – Waitroom")
    expect(page.locator("[rel=icon]")).to_have_attribute("href", "/_waitroom/static/turn.svg")
    assert page.evaluate("shown") == ["It is your turn"]
    assert page.evaluate("tones") == 4


GRANT = "vip.1790000000.once-1." + "0af" * 21 + "0"


@pytest.mark.parametrize(
    ("address", "on", "asked"),
    [
        (f"/page?a=1&waitroom_grant={GRANT}&b=2", "/", f"join?waitroom_grant={GRANT}"),
        (f"/_waitroom/shop/?next=/page?waitroom_grant={GRANT}", f"/page?waitroom_grant={GRANT}",
         f"join?waitroom_grant={GRANT}"),
        ("/_waitroom/shop/", f"/page?a&waitroom_grant={GRANT}", f"join?waitroom_grant={GRANT}"),
        ("/page?waitroom_grant=%22%3E&x=1", "/", "join"),
    ],
)  # fmt: skip
def test_a_grant_is_passed_on(play, address, on, asked):
    """The page passes on a grant in its own address or in the return address, when it joins."""
    site = play()
    site.next = on
    page = site.open(address, state="not_queued", refresh_after_seconds=1, **NOWHERE)
    expect(page.locator("#updated")).to_be_empty()
    site.forward_until_asked("join", position=1, ahead=0)
    expect(page.locator("#ahead")).to_have_text("0")
    assert site.asked == ["status", asked]


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_view_in_every_language(play, language):
    """All views have texts in each language, and fit on a narrow phone."""
    site = play(locale=language, viewport={"width": 320, "height": 640}, color_scheme="dark")
    opens = SERVER + timedelta(days=123, hours=4)
    page = site.open()
    heading = page.locator("h1")
    expect(page.locator("#updated")).not_to_be_empty()
    headings = {heading.inner_text()}
    for answer in (
        closed(opens, opens - timedelta(hours=1)),
        prequeue(opens),
        {"state": "full", **NOWHERE},
        closed(SERVER + timedelta(hours=1), SERVER + timedelta(minutes=30)),
        {"state": "closed", **NOWHERE},
        {"position": None, "position_above": 2_000_000, "line": "channel", "waiting": 3_000_000},
    ):
        before = heading.inner_text()
        site.again(**answer)
        expect(heading).not_to_have_text(before)
        text = page.locator("main").inner_text()
        assert not re.search(r"[{}]|undefined|null|NaN|Invalid", text), text
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), text
        headings.add(heading.inner_text())
    assert len(headings) == 6
    assert page.problems == []


def test_a_place_that_was_not_kept(play):
    """After a long absence the page takes a new place, and says that the place is new."""
    site = play()
    page = site.open(position=3, ahead=2)
    expect(page.locator("#ahead")).to_have_text("2")
    with page.expect_response("**/status") as answer:
        site.sleep(900, **GONE)
    answer.value.finished()
    site.forward_until_asked("join", position=40, ahead=39)
    expect(page.locator("#ahead")).to_have_text("39")
    expect(page.locator("#intro")).to_contain_text("Your earlier place could not be kept")
    assert site.asked.count("join") == 1
    assert page.problems == []


def test_a_place_that_is_gone_at_the_next_poll(play):
    """If the place is lost at once, as without cookies, the page does not join again."""
    site = play()
    page = site.open(position=3, ahead=2)
    expect(page.locator("#ahead")).to_have_text("2")
    site.sleep(60, **GONE)
    expect(page.locator("#intro")).to_contain_text("Allow cookies")
    site.forward(60)
    assert "join" not in site.asked
