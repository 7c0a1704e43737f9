"""Status, join, leave and the page."""

import gzip
import re

import pytest

from sidecar.gate.polls import compute_closed_interval_s
from sidecar.gate.return_address import make_next_safe
from sidecar.kit.clock import iso
from sidecar.kit.share import find_share
from sidecar.rooms.metrics import RoomMetrics
from sidecar.rooms.openings import RoomEvent
from sidecar.visitors.grants import Grant, Grants
from sidecar.visitors.tokens import is_visitor_id
from sidecar.visitors.verdict_lifetime import RELEASE_HOLD_MS
from tests.support.replica import HTML, KEYS, cookie_of


@pytest.fixture
async def full(replica):
    """A replica whose one slot is taken."""
    site = await replica()
    site.first = cookie_of(await site.check())
    return site


async def test_the_status_document(full):
    """Every member of the contract, and a heartbeat."""
    ticket = cookie_of(await full.check())
    reply = await full.status(ticket)
    document = await reply.json()
    assert reply.headers["Cache-Control"] == "no-store"
    assert set(document) == {
        "state", "position", "waiting", "ahead", "wait_seconds", "wait_seconds_low",
        "wait_seconds_high", "joined_at", "updated_at", "refresh_after_seconds", "message", "room",
        "visitor", "position_above", "line", "phase", "event", "prequeue_from", "opens_at",
        "closes_at", "timezone", "measuring",
    }  # fmt: skip
    assert is_visitor_id(document["visitor"])
    assert document["phase"] == "open"
    for unset in ("position_above", "line", "event", "prequeue_from", "opens_at", "closes_at"):
        assert document[unset] is None
    assert document["state"] == "waiting"
    assert (document["position"], document["ahead"], document["waiting"]) == (1, 0, 1)
    assert document["measuring"]
    assert document["wait_seconds"] is document["wait_seconds_low"] is None
    assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00$", document["joined_at"])
    assert 2 <= document["refresh_after_seconds"] <= 60


async def test_a_wait_that_the_rate_limit_tells_has_a_range(replica):
    """Nothing needs to be measured where new_users_per_minute is the rate."""
    site = await replica(total_active_users=100, session_duration=10, new_users_per_minute=6)
    replies = [await site.check() for _ in range(9)]
    document = await (await site.status(cookie_of(replies[-1]))).json()
    assert (document["state"], "measuring" in document) == ("waiting", False)
    assert document["wait_seconds_low"] <= document["wait_seconds"] <= document["wait_seconds_high"]


async def test_asking_without_a_place_takes_none(full):
    """State not_queued."""
    document = await (await full.status("x=1")).json()
    assert (document["state"], document["position"]) == ("not_queued", None)
    assert (await full.room.refresh()).waiting == 0


async def test_joining_twice_equals_once(full):
    """The second join, with the first one's cookie, finds the same place."""
    path = f"/_waitroom/{full.room.name}/join"
    first = await full.edge.post(path)
    again = await full.edge.post(path, headers={"Cookie": cookie_of(first)})
    assert (await first.json())["position"] == (await again.json())["position"] == 1
    assert (await full.room.refresh()).waiting == 1


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Purpose": "prefetch;prerender;anonymous-client-ip"},
        {"Sec-Purpose": "Prerender", "Purpose": "x"},
        {"Sec-Purpose": "x", "Purpose": "prefetch"},
        {"X-Moz": "prefetch"},
    ],
)
async def test_a_browser_that_fetches_ahead_gives_up_and_takes_nothing(full, headers):
    """A prefetch announced by any one of the headers ends no session and takes no place."""
    leave = f"/_waitroom/{full.room.name}/leave"
    sent = {**headers, "Cookie": full.first, "X-Waitroom-Release": "site"}
    assert (await full.edge.post(leave, headers=sent)).status == 204
    assert (await (await full.status(full.first)).json())["state"] == "admitted"
    reply = await full.edge.post(f"/_waitroom/{full.room.name}/join", headers=headers)
    assert (await reply.json())["state"] == "not_queued"
    assert "Set-Cookie" not in reply.headers


async def test_leaving_gives_up_the_place(full):
    """Leaving twice equals leaving once, and voids the ticket."""
    ticket = cookie_of(await full.check())
    for _ in range(2):
        reply = await full.edge.post(
            f"/_waitroom/{full.room.name}/leave", headers={"Cookie": ticket}
        )
        assert (await reply.json())["state"] == "not_queued"
    assert (await (await full.status(ticket)).json())["state"] == "not_queued"
    assert (await full.room.refresh()).counters["left"] == 1


async def test_the_called_is_admitted_by_its_poll(full):
    """The poll claims: state admitted, and the pass comes with it."""
    ticket = cookie_of(await full.check())
    await full.edge.post(f"/_waitroom/{full.room.name}/leave", headers={"Cookie": full.first})
    full.turn.forward(RELEASE_HOLD_MS / 1000 + 1)
    reply = await full.status(ticket)
    assert (await reply.json())["state"] == "admitted"
    assert (await full.check(cookie_of(reply))).status == 204
    # Another tab that still has the ticket gets the same session.
    again = await full.status(ticket)
    assert (await again.json())["state"] == "admitted"
    assert (await full.room.refresh()).active == 1


async def test_too_many_polls_keep_the_place(replica):
    """429 with Retry-After after poll_limit polls before their time; still a heartbeat."""
    site = await replica(poll_limit=10)
    site.turn.now_ms -= site.turn.now_ms % 60_000
    await site.enters()
    ticket = cookie_of(await site.check())
    statuses = [(await site.status(ticket)).status for _ in range(12)]
    assert statuses == [200] * 11 + [429]  # the first came when it should
    limited = await site.status(ticket)
    assert limited.content_type == "application/problem+json"
    assert 1 <= int(limited.headers["Retry-After"]) <= 60
    site.turn.forward(61)
    reply = await site.status(ticket)
    assert (reply.status, (await reply.json())["position"]) == (200, 1)


async def test_who_waits_in_a_paused_room_is_told_so(replica):
    """Waiting visitors are told that the room is paused, and when it goes on; others are not."""
    site = await replica()
    await site.check()
    ticket = cookie_of(await site.check())
    for is_paused in (True, False):
        await site.room.store.configure({"queue_all": is_paused})
        await site.room.refresh()
        document = await (await site.status(ticket)).json()
        assert (document["state"], document["position"]) == ("waiting", 1)
        assert ("paused" in document) == is_paused
        assert "paused" not in await (await site.status("")).json()


async def test_an_unknown_room_and_a_wrong_method_are_problems(replica):
    """404 as a problem document at every endpoint; 405 with Allow."""
    site = await replica()
    doors = [("GET", "status"), ("POST", "join"), ("POST", "leave"), ("GET", "")]
    doors += [("GET", "claim?token=c~"), ("POST", "claim?token=c~")]
    for method, door in doors:
        reply = await site.edge.request(method, f"/_waitroom/nope/{door}")
        assert (reply.status, reply.content_type) == (404, "application/problem+json")
    reply = await site.edge.get(f"/_waitroom/{site.room.name}/join")
    assert (reply.status, reply.headers["Allow"]) == (405, "POST")


async def test_the_page_has_the_numbers(full):
    """The page has the numbers in the visitor's language, and a refresh without JavaScript."""
    ticket = cookie_of(await full.check())
    path = f"/_waitroom/{full.room.name}/?next=/a?b=1&c=%22%3E"
    reply = await full.edge.get(
        path, headers={**HTML, "Cookie": ticket, "Accept-Language": "de-CH, en;q=0.5"}
    )
    text = await reply.text()
    assert reply.status == 200
    assert '<html lang="de" dir="ltr"' in text
    assert '<dd id="ahead">0</dd>' in text
    assert re.search(rf'content="[23]; url=/_waitroom/{full.room.name}/\?next=/a\?b=1&amp;c=', text)
    assert "<!--#" not in text
    assert '">"' not in text
    assert "script-src 'self'" in reply.headers["Content-Security-Policy"]


async def test_the_page_takes_a_place_and_later_enters(full):
    """The page alone takes a place and enters, for browsers without JavaScript."""
    path = f"/_waitroom/{full.room.name}/?next=/deep/link?x=1&y=2"
    ticket = cookie_of(await full.edge.get(path, headers=HTML))
    await full.edge.post(f"/_waitroom/{full.room.name}/leave", headers={"Cookie": full.first})
    full.turn.forward(RELEASE_HOLD_MS / 1000 + 1)
    reply = await full.edge.get(path, headers={**HTML, "Cookie": ticket}, allow_redirects=False)
    assert (reply.status, reply.headers["Location"]) == (303, "/deep/link?x=1&y=2")
    assert "=p~" in reply.headers["Set-Cookie"]


@pytest.mark.parametrize(
    "value",
    ["", "x", "//evil", "/\\evil", "https://evil", "/\t/evil", "/a\r\nSet-Cookie: x", "\\\\evil",
     "/a\\b", "/a\\b?c", "/a b", "/a?b c", "/a?\udcff", "javascript:alert(1)", "/\x00"],
)  # fmt: skip
def test_next_never_leads_elsewhere(value):
    """Whatever is not plainly a path of this site becomes "/". A query may hold a backslash."""
    assert make_next_safe(value) == "/"
    for path in ("/a?b=\\c", "/ü?q=ü", "/a?b?c", "/a?//b", "/?"):
        assert make_next_safe(path) == path


def test_the_page_is_small():
    """What a visitor loads has at most 30 KB, compressed, in any language."""
    static = find_share("static")
    names = ("waiting.html", "waiting.css", "waiting.js", "logo.svg", "turn.svg")
    once = sum(len(gzip.compress((static / name).read_bytes())) for name in names)
    texts = {
        file.stem: len(gzip.compress(file.read_bytes())) for file in (static / "i18n").iterdir()
    }
    assert once + texts["en"] + max(texts.values()) < 30_000


# Events, lines and bounds -------------------------------------------------------------------------

MINUTE_MS = 60_000
NOW_MS = 1_800_000_000_000


def sale(*, prequeue_in=None, opens_in, **more):
    """An event; minutes from the beginning of the test."""
    begins = None if prequeue_in is None else NOW_MS + prequeue_in * MINUTE_MS
    opens = NOW_MS + opens_in * MINUTE_MS
    return {"name": "sale", "prequeue_from": begins, "opens_at": opens, **more}


async def test_a_closed_room_says_when_it_opens(replica):
    """A closed room shows its event to everybody, records nobody, and is cacheable."""
    site = await replica(events=[sale(prequeue_in=30, opens_in=60, message="Soon")])
    path = f"/_waitroom/{site.room.name}/"
    for reply in (await site.edge.get(f"{path}status"), await site.edge.post(f"{path}join")):
        document = await reply.json()
        told = [document[name] for name in ("state", "phase", "event")]
        assert told == ["closed", "closed", "sale"]
        assert document["prequeue_from"] == iso(NOW_MS + 30 * MINUTE_MS)
        assert document["opens_at"] == iso(NOW_MS + 60 * MINUTE_MS)
        assert document["timezone"] is None
        assert document["updated_at"] == iso(NOW_MS)
        assert document["refresh_after_seconds"] == 60
        for unset in ("visitor", "position", "ahead", "wait_seconds", "closes_at", "message"):
            assert document[unset] is None
        assert "Set-Cookie" not in reply.headers
    assert "X-Accel-Expires" in (await site.edge.get(f"{path}status")).headers
    assert (await site.room.refresh()).waiting == 0


async def test_the_prequeue_tells_nobody_where_they_stand(replica):
    """No endpoint shows a position before the opening; then the drawn one; later it is closed."""
    event = sale(prequeue_in=0, opens_in=60, closes_at=NOW_MS + 90 * MINUTE_MS, message="Welcome")
    site = await replica(total_active_users=0, events=[event], message="Good morning")
    path = f"/_waitroom/{site.room.name}/"
    tickets = []
    for _ in range(3):
        reply = await site.edge.post(f"{path}join")
        tickets.append(cookie_of(reply))
        document = await reply.json()
        assert (document["state"], document["phase"]) == ("waiting", "prequeue")
        assert document["message"] == "Good morning"
        for unset in ("position", "position_above", "ahead", "wait_seconds"):
            assert document[unset] is None
    for ticket in tickets:
        page = await (await site.edge.get(path, headers={**HTML, "Cookie": ticket})).text()
        assert '<dd id="ahead"></dd>' in page
        assert (await (await site.status(ticket)).json())["position"] is None
    for _ in range(59):  # as they stay
        site.turn.forward(60)
        for ticket in tickets:
            await site.status(ticket)
    site.turn.forward(61)
    documents = [await (await site.status(ticket)).json() for ticket in tickets]
    assert sorted(document["position"] for document in documents) == [1, 2, 3]
    assert {document["phase"] for document in documents} == {"open"}
    assert {document["message"] for document in documents} == {"Welcome"}
    site.turn.forward(30 * 60)
    over = await (await site.status(tickets[0])).json()
    assert (over["state"], over["phase"], over["event"]) == ("closed", "closed", None)
    assert (over["opens_at"], over["message"]) == (None, "Good morning")


async def test_when_to_ask_again_says_nothing_of_the_lot(replica):
    """Poll intervals do not reveal lots, or visitors could leave and draw again."""
    site = await replica(total_active_users=0, events=[sale(prequeue_in=0, opens_in=60)])
    path = f"/_waitroom/{site.room.name}/join"
    joined = [await site.edge.post(path) for _ in range(12)]
    asked = [await site.status(cookie_of(reply)) for reply in joined]
    for replies in (joined, asked):
        seconds = [(await reply.json())["refresh_after_seconds"] for reply in replies]
        assert max(seconds) <= 1.25 * min(seconds)


@pytest.mark.parametrize(
    ("before_ms", "draw", "seconds"),
    [
        (3_600_000, 0.5, 60),  # something may be changed until then
        (60_000, 0.99, 60),
        (40_000, 0, 40),
        (40_000, 0.5, 55),  # half of 30 s later
        (20_000, 0.9, 47),
        (1, 0, 1),
    ],
)
def test_not_all_ask_at_the_beginning(before_ms, draw, seconds):
    """Polls at the begin of an hour's pre-queue spread over 30 s, at most a minute ahead."""
    event = RoomEvent(**sale(prequeue_in=0, opens_in=60))
    assert compute_closed_interval_s(event, NOW_MS - before_ms, spread=draw) == seconds


@pytest.mark.parametrize(
    ("prequeue_in", "seconds"), [(None, 40 + 2 / 2), (59, 40 + 6 / 2), (59.9, 40 + 0.6 / 2)]
)
def test_who_comes_early_to_a_short_prequeue_is_there_in_time(prequeue_in, seconds):
    """At most a tenth of it late; two seconds where there is none, and who is first counts."""
    event = RoomEvent(**sale(prequeue_in=prequeue_in, opens_in=60))
    now_ms = round(event.begins_ms - 40_000)
    assert compute_closed_interval_s(event, now_ms, spread=0.5) == pytest.approx(seconds)
    assert compute_closed_interval_s(None, now_ms, spread=0.5) == 60


async def test_no_number_above_the_rank_limit(replica):
    """Beyond it nobody is told a position, by any member; below it, as ever."""
    site = await replica(total_active_users=0, rank_limit=2)
    tickets = [cookie_of(await site.check()) for _ in range(3)]
    documents = [await (await site.status(ticket)).json() for ticket in tickets]
    told = [
        tuple(each[key] for key in ("position", "position_above", "ahead")) for each in documents
    ]
    assert told == [(1, None, 0), (2, None, 1), (None, 2, None)]
    assert {document["waiting"] for document in documents} == {3}
    path = f"/_waitroom/{site.room.name}/"
    page = await (await site.edge.get(path, headers={**HTML, "Cookie": tickets[2]})).text()
    assert '<dd id="ahead">2+</dd>' in page


LINES = {
    "lines": [{"name": "channel"}, {"name": "ordinary"}],
    "classes": {"partner": {"line": "channel"}},
}


async def test_a_sub_queue_has_a_label_in_the_visitors_language(replica):
    """The page shows a label in the visitor's language, or else in English. The default sub-queue
    is not named, and the facts about the room have the labels."""
    channel = {"name": "channel", "labels": {"en": "Call centre", "de": "Callcenter"}}
    lines = [channel, {"name": "ordinary"}]
    site = await replica(total_active_users=0, lines=lines, classes=LINES["classes"])
    site.room.grants = Grants(site.room.name, KEYS)
    path = f"/_waitroom/{site.room.name}/"
    grant = Grants(site.room.name, [KEYS[0]]).sign(Grant("partner", site.turn() // 1000 + 60))
    for language, shown in (
        ("de", "Ihre Warteschlange: Callcenter"),
        ("fr", "Votre file\u00a0: Call centre"),
    ):
        headers = {**HTML, "Accept-Language": language}
        page = await site.edge.get(f"{path}?waitroom_grant={grant}", headers=headers)
        assert f'<p id="line">{shown}</p>' in await page.text()
    assert '<p id="line"></p>' in await (await site.edge.get(path, headers=HTML)).text()
    about = await (await site.edge.get(f"{path}about")).json()
    assert about["lines"] == {"channel": channel["labels"]}


@pytest.mark.parametrize("door", ["join", "page", "page's next", "form"])
async def test_a_grant_is_believed_at_every_door_that_takes_a_place(replica, door):
    """A grant in the address, or in `next`, gives the class's sub-queue."""
    site = await replica(total_active_users=0, **LINES)
    site.room.grants = Grants(site.room.name, KEYS)
    for _ in range(2):
        await site.check()
    grant = Grants(site.room.name, [KEYS[0]]).sign(Grant("partner", site.turn() // 1000 + 60))
    path, asked = f"/_waitroom/{site.room.name}/", f"waitroom_grant={grant}"
    if door == "join":
        reply = await site.edge.post(f"{path}join?{asked}")
    elif door == "page":
        reply = await site.edge.get(f"{path}?{asked}", headers=HTML)
    elif door == "form":
        reply = await site.edge.post(f"{path}join", data={"next": f"/a?{asked}"}, headers=HTML)
    else:
        reply = await site.edge.get(f"{path}?next=/a?b=1&{asked}", headers=HTML)
    if door != "join":
        assert '<p id="line">Your line: channel</p>' in await reply.text()
    document = await (await site.status(cookie_of(reply))).json()
    assert (document["line"], document["position"], document["waiting"]) == ("channel", 1, 1)
    counted = site.metrics.of(RoomMetrics).grants.labels(site.room.name, "believed")._value.get()
    assert counted == 1


OPENING = "January 15, 2027, 10:00 AM GMT+01:00"


@pytest.mark.parametrize(
    ("minutes", "heading", "intro", "seconds"),
    [
        (0, f"Opens on {OPENING}", "Come any time before it opens: places are drawn", (60, 60)),
        (59, f"Opens on {OPENING}", "Come any time before it opens: places are drawn", (60, 60)),
        (60, "You are in the pre-queue", f"When it opens ({OPENING})", (1, 60)),
        (61, "You are next", "You will enter automatically", (1, 60)),
    ],
)  # fmt: skip
async def test_the_page_without_javascript_opens_by_itself(
    replica, minutes, heading, intro, seconds
):
    """The page shows each phase in words, with the event's time zone, and refreshes."""
    event = {**sale(prequeue_in=60, opens_in=60.5), "timezone": "Europe/Zurich"}
    site = await replica(total_active_users=0, events=[event])
    site.turn.forward(minutes * 60)
    reply = await site.edge.get(f"/_waitroom/{site.room.name}/?next=/", headers=HTML)
    text = (await reply.text()).replace("\u202f", " ")  # in a time, a space that breaks no line
    assert f">{heading}</h1>" in text
    assert ("opening.ics?next=/" in text, 'data-view="opens"' in text) == (True, minutes < 60)
    assert intro in text
    refresh = re.search(r'http-equiv="refresh" content="(\d+);', text)
    assert refresh
    assert seconds[0] <= int(refresh[1]) <= seconds[1]
