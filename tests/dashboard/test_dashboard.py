"""The dashboard's doors: who gets in, what a session may do, what is streamed."""

import asyncio
import json
import re
import time

import pytest
from aiohttp.test_utils import make_mocked_request

from sidecar.app.routes import Services, create_ops_app
from sidecar.dashboard.live import LIVE, Live
from sidecar.dashboard.pages import FOLDER
from sidecar.http import app_keys as keys
from sidecar.http.auth.operators import COOKIE, LIFETIME_S, Operators
from sidecar.http.auth.session import OPERATORS
from sidecar.http.auth.throttle import MAX_FAILURES
from sidecar.lottery.service import Draws
from sidecar.rooms.service import WaitingRooms
from sidecar.settings.model import Settings
from sidecar.visitors.tokens import COOKIE_PREFIX
from tests.support.replica import ADMIN_TOKEN, KEYS, Jar, cookie_of, log_in

BEARER = {"Authorization": f"Bearer {ADMIN_TOKEN}"}


def path(site, more=""):
    return f"/admin/rooms/{site.room.name}{more}"


async def admin(site, more, method="GET"):
    """The document at an address of the room, for the admin token."""
    return await (await site.ops.request(method, path(site, more), headers=BEARER)).json()


async def open_stream(site, here=None):
    return await site.ops.get("/dashboard/events", headers=here or await session(site))


async def session(site, name="Night shift") -> dict[str, str]:
    """What the page sends along: the cookie and the CSRF token."""
    cookie = cookie_of(await log_in(site, name))
    told = await (await site.ops.get("/dashboard/session", headers={"Cookie": cookie})).json()
    assert (told["operator"], told["history"], told["jobs"]) == (name, False, False)
    assert told["in_memory"] is True  # the settings of these tests name no store
    return {"Cookie": cookie, "X-Waitroom-CSRF": told["csrf"]}


# The way in.


async def test_the_token_and_a_name_open_a_session(site):
    """The cookie is no script's and no other site's, and lasts twelve hours."""
    reply = await log_in(site)
    assert (reply.status, reply.headers["Location"]) == (303, "/dashboard")
    cookie, *attributes = reply.headers["Set-Cookie"].split("; ")
    assert attributes == [f"Max-Age={LIFETIME_S}", "Path=/", "HttpOnly", "SameSite=Strict"]
    page = await site.ops.get("/dashboard", headers={"Cookie": cookie})
    assert "dashboard.js" in await page.text()
    page = await site.ops.get("/dashboard/", headers={"Cookie": cookie})
    assert "dashboard.js" in await page.text()
    assert "dashboard.js" not in await (await site.ops.get("/dashboard")).text()
    for scheme in ("https", "HTTPS", "https, http"):
        secure = await log_in(site, headers={"X-Forwarded-Proto": scheme})
        assert secure.headers["Set-Cookie"].endswith("; Secure")


async def test_no_rooms_cookie_is_the_dashboards():
    """Whatever a room is called, its cookie has another name."""
    assert not COOKIE.startswith(COOKIE_PREFIX)


@pytest.mark.parametrize(
    ("name", "token", "status"),
    [
        ("me", "wrong", 401), ("me", "", 401), ("me", ADMIN_TOKEN + "x", 401),
        ("me", "é\udcff", 401), ("", ADMIN_TOKEN, 422), (" \x00\n\u2028", ADMIN_TOKEN, 422),
    ],
)  # fmt: skip
async def test_nobody_without_the_token_or_a_name(site, name, token, status):
    """No cookie is set, and the page says what is wrong."""
    form = f"name={name}&token={token}".encode(errors="surrogateescape")
    kind = {"Content-Type": "application/x-www-form-urlencoded"}
    reply = await site.ops.post("/dashboard/login", data=form, headers=kind)
    assert (reply.status, "Set-Cookie" in reply.headers) == (status, False)
    text = await reply.text()
    assert re.search(r'role="alert">[A-Z]\w+ ', text)
    assert 'maxlength="64" value="' + ("me" if name == "me" else "") + '"' in text


async def test_a_reload_after_a_refused_login_leads_to_the_form(site):
    """And what was typed as a name is text there."""
    reply = await log_in(site, name='"><b>Ann', token="wrong")
    assert 'value="&quot;&gt;&lt;b&gt;Ann"' in await reply.text()
    again = await site.ops.get("/dashboard/login", allow_redirects=False)
    assert (again.status, again.headers["Location"]) == (303, "/dashboard")


async def test_a_form_from_another_site_logs_nobody_in(site):
    """Though it has the right token."""
    elsewhere = {"Sec-Fetch-Site": "cross-site"}
    assert (await log_in(site, headers=elsewhere)).status == 403
    assert (await log_in(site, headers={"Origin": "http://elsewhere"})).status == 403
    assert (await log_in(site, headers={"Origin": "null"})).status == 403


@pytest.mark.parametrize("guessed_at", ["the log-in", "/admin/"])
async def test_after_ten_wrong_tokens_none_is_looked_at(site, guessed_at):
    """At the log-in and as a bearer, wherever they were guessed: the right one is refused too, and
    says when to come again. Sessions go on, and a minute later the right one opens again."""
    here = await session(site)
    operators = site.ops.app[OPERATORS]
    for _ in range(MAX_FAILURES):
        if guessed_at == "/admin/":
            wrong = await site.ops.get(path(site), headers={"Authorization": "Bearer wrong"})
        else:
            wrong = await log_in(site, token="wrong")
        assert wrong.status == 401
    judged = []
    operators.is_token = lambda given: judged.append(given) or True
    for refused in (await log_in(site), await site.ops.get(path(site), headers=BEARER)):
        assert (refused.status, 1 <= int(refused.headers["Retry-After"]) <= 60) == (429, True)
    assert judged == []
    del operators.is_token
    assert (await site.ops.get(path(site), headers=here)).status == 200
    operators.guesses.now_s = lambda: time.time() + 61
    assert (await log_in(site)).status == 303
    assert (await site.ops.get(path(site), headers=BEARER)).status == 200


async def test_no_bearer_is_no_guess(site):
    """A page that was left open after the session's end asks on and on."""
    for _ in range(2 * MAX_FAILURES):
        assert (await site.ops.get(path(site))).status == 401
    assert (await log_in(site)).status == 303


async def test_without_an_admin_token_the_page_says_how_to_set_one(site, aiohttp_client):
    """Nobody logs in, not even with an empty token or a session of when there was one."""
    whole = Settings(secret_keys=KEYS, rooms={site.room.name: site.room.file_settings})
    ops = await aiohttp_client(
        create_ops_app(Services(rooms=WaitingRooms([site.room]), metrics=site.metrics), whole, []),
        cookie_jar=Jar(),
    )
    page = await ops.get("/dashboard")
    assert (page.status, "WAITROOM_ADMIN_TOKEN" in await page.text()) == (403, True)
    assert (await ops.post("/dashboard/login", data={"name": "me", "token": ""})).status == 403
    empty = f"{COOKIE}={Operators(KEYS, '').log_in('me')}"
    for cookie in (empty, cookie_of(await log_in(site))):
        assert (await ops.get("/dashboard/session", headers={"Cookie": cookie})).status == 401


# What is no session.


def stale() -> str:
    return Operators(KEYS, ADMIN_TOKEN, now_s=lambda: time.time() - LIFETIME_S - 1).log_in("me")


@pytest.mark.parametrize(
    "value",
    [
        "", "x", "." * 3, "W10.x", "é", "\\udcff", "a" * 5000,
        stale(),
        Operators(KEYS, "another-admin-token").log_in("me"),
        Operators(["z" * 32], ADMIN_TOKEN).log_in("me"),
        Operators(KEYS, ADMIN_TOKEN)._cookies.dumps(["me", "x"]),
        Operators(KEYS, ADMIN_TOKEN)._cookies.dumps({"name": "me"}),
        Operators(KEYS, ADMIN_TOKEN)._cookies.dumps(["me", 5, "soon"]),
    ],
    ids=["empty", "letter", "dots", "unsigned", "no-ascii", "escape", "long", "over", "other-token",
         "other-key", "too-few", "no-list", "no-numbers"],
)  # fmt: skip
async def test_what_is_no_session_opens_nothing(site, value):
    """Forged, over, of another admin token, another key or another version: as without a cookie."""
    headers = {"Cookie": f"{COOKIE}={value}"}
    assert (await site.ops.get(path(site), headers=headers)).status == 401
    assert (await site.ops.get("/dashboard/session", headers=headers)).status == 401
    assert (await site.ops.get("/dashboard/events", headers=headers)).status == 401
    page = await site.ops.get("/dashboard", headers=headers)
    assert (page.status, "dashboard.js" in await page.text()) == (200, False)


async def test_keys_rotate_under_a_session():
    """What an older key of the list signed holds; what a removed one signed does not."""
    old, new = "o" * 32, "n" * 32
    value = Operators([old], ADMIN_TOKEN).log_in("me")
    both = Operators([old, new], ADMIN_TOKEN)
    operator = both.read(value)
    assert operator is not None
    assert both.is_csrf_token(operator, Operators([old], ADMIN_TOKEN).csrf_token(operator))
    assert Operators([new], ADMIN_TOKEN).read(value) is None


async def test_logging_out_ends_the_session(site):
    """The cookie goes, and a copy of it is worth nothing here any more; not by a word from
    elsewhere."""
    here = await session(site)
    out = "/dashboard/logout"
    cookie = {"Cookie": here["Cookie"]}
    assert (await site.ops.post(out, headers=cookie, allow_redirects=False)).status == 403
    assert (await site.ops.get(path(site), headers=here)).status == 200
    reply = await site.ops.post(out, headers=here, allow_redirects=False)
    assert (reply.status, cookie_of(reply)) == (303, f"{COOKIE}=")
    assert (await site.ops.get(path(site), headers=here)).status == 401
    assert (await site.ops.post(out, allow_redirects=False)).status == 303


# What a session may do.


async def test_a_session_is_as_good_as_the_token(site):
    """It reads and changes, and the log has the name that was given at the way in."""
    here = await session(site, "Ada – nights")
    assert (await site.ops.get("/admin/rooms", headers=here)).status == 200
    own_page = {**here, "Sec-Fetch-Site": "same-origin", "X-Waitroom-Operator": "somebody else"}
    reply = await site.ops.patch(path(site), json={"message": "soon"}, headers=own_page)
    assert (reply.status, (await reply.json())["settings"]["message"]) == (200, "soon")
    log = (await (await site.ops.get(path(site, "/log"), headers=here)).json())["log"]
    assert [act["by"] for act in log] == ["Ada – nights"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200), ({"Sec-Fetch-Site": "same-origin"}, 200),
        ({"Sec-Fetch-Site": "same-origin", "Origin": "https://behind.a.proxy"}, 200),
        ({"Origin": "http://HOST"}, 200), ({"X-Waitroom-CSRF": ""}, 403),
        ({"X-Waitroom-CSRF": "x"}, 403), ({"X-Waitroom-CSRF": "é"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403), ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Origin": "http://elsewhere"}, 403), ({"Origin": "null"}, 403),
        ({"Origin": "http://[bad"}, 403), ({"Authorization": "Bearer wrong"}, 401),
    ],
)  # fmt: skip
async def test_a_change_must_come_from_the_page(site, headers, status):
    """With the cookie alone, or from another origin, nothing is changed; a wrong bearer token is
    not made good by a session."""
    here = await session(site)
    host = f"{site.ops.host}:{site.ops.port}"
    sent = {**here, **{name: value.replace("HOST", host) for name, value in headers.items()}}
    for method, where in (("PATCH", ""), ("POST", "/reset"), ("POST", "/pause")):
        reply = await site.ops.request(
            method, path(site, where), json={"message": "x"}, headers=sent
        )
        assert reply.status == status
    snapshot = await site.room.refresh()
    assert (snapshot.overrides != {}) == (status == 200)


async def test_anothers_csrf_token_is_none(site):
    """It belongs to one session."""
    mine, anothers = await session(site), await session(site)
    mixed = {**mine, "X-Waitroom-CSRF": anothers["X-Waitroom-CSRF"]}
    assert (await site.ops.post(path(site, "/pause"), headers=mixed)).status == 403


async def test_another_site_reads_nothing(site):
    """A page elsewhere gets neither a stream nor an admin document, and no CORS header."""
    here = await session(site) | {"Sec-Fetch-Site": "cross-site", "Origin": "http://elsewhere"}
    for where in ("/dashboard/events", path(site)):
        reply = await site.ops.get(where, headers=here)
        assert reply.status in {401, 403}
        assert not [name for name in reply.headers if name.startswith("Access-Control")]


# The words of an operator.


@pytest.mark.parametrize(
    ("file", "act", "changed", "mode"),
    [
        ({}, "pause", {"queue_all": True}, "paused"),
        ({}, "drain", {"max_waiting": 0}, "draining"),
        ({}, "resume", {}, "running"),
        ({"queue_all": True}, "pause", {}, "paused"),
        ({"queue_all": True, "max_waiting": 5}, "resume", {"queue_all": False}, "running"),
        ({"queue_all": True, "max_waiting": 5}, "drain", {"queue_all": False, "max_waiting": 0},
         "draining"),
        ({"queueing_method": "passthrough"}, "pause", {"queue_all": True}, "open"),
    ],
)  # fmt: skip
async def test_words_are_settings(replica, file, act, changed, mode):
    """What the file says already is not said again; resume takes back what the others changed."""
    site = await replica(**file)
    reply = await site.ops.post(path(site, f"/{act}"), headers=BEARER)
    room = await reply.json()
    assert (reply.status, room["changed"], room["mode"]) == (200, changed, mode)
    room = await admin(site, "/resume", "POST")
    assert (room["settings"]["queue_all"], "max_waiting" in room["changed"]) == (False, False)


async def test_a_drained_line_empties(replica):
    """Nobody new joins it while somebody waits; whoever waits is let in; then a free slot is
    anybody's."""
    site = await replica(total_active_users=1)
    inside, waiting = [await site.check() for _ in range(2)]
    await site.ops.post(path(site, "/drain"), headers=BEARER)
    assert (await site.check()).headers["X-Waitroom-State"] == "full"
    await site.ops.patch(path(site), json={"total_active_users": 2}, headers=BEARER)
    assert (await site.check(cookie_of(waiting))).status == 204
    assert (await site.check(cookie_of(inside))).status == 204
    await site.ops.patch(path(site), json={"total_active_users": 3}, headers=BEARER)
    assert (await site.check()).status == 204


async def test_a_visitor_is_found_wherever_they_are(site):
    """Inside, in line with a position, called, released, or unknown; an impossible id is a 422."""
    for _ in range(5):
        await site.check()
    inside = (await admin(site, "/sessions"))["sessions"][0]["visitor"]
    first, second = (row["visitor"] for row in (await admin(site, "/waiting"))["waiting"])
    found = [await admin(site, f"/visitors/{visitor}") for visitor in (inside, second, "a" * 22)]
    assert [each["state"] for each in found] == ["inside", "waiting", "unknown"]
    assert (found[0]["started_at_ms"], found[1]["position"]) == (site.turn.now_ms, 2)
    await site.ops.post(path(site, f"/visitors/{inside}/release"), headers=BEARER)
    assert (await admin(site, f"/visitors/{inside}"))["state"] == "revoked"
    await site.ops.patch(path(site), json={"total_active_users": 9}, headers=BEARER)
    called = await admin(site, f"/visitors/{first}")
    assert (called["state"], called["started_at_ms"]) == ("called", None)
    assert (await site.ops.get(path(site, "/visitors/x"), headers=BEARER)).status == 422


# The files.


async def test_everything_is_sent_with_strict_headers(site):
    """Pages, files, redirects and refusals of the way in allow no script but our own, no frame and
    no cache."""
    here = await session(site)
    replies = [
        await site.ops.get("/dashboard"),
        await site.ops.get("/dashboard", headers=here),
        await site.ops.get("/dashboard/session", headers=here),
        await site.ops.get("/dashboard/static/dashboard.js"),
        await log_in(site),
        await log_in(site, token="wrong"),
    ]
    for reply in replies:
        policy = reply.headers["Content-Security-Policy"]
        assert "default-src 'none'; script-src 'self'; style-src 'self'" in policy
        assert "frame-ancestors 'none'; base-uri 'none'" in policy
        assert "unsafe" not in policy
        assert reply.headers["X-Content-Type-Options"] == "nosniff"
        assert reply.headers["Referrer-Policy"] == "same-origin"
        assert reply.headers["Cache-Control"] == "no-store"


async def test_pages_hold_no_script_and_put_nothing_into_markup(site):
    """No inline script or style, no handler; the scripts write text only."""
    pages = [file.read_text() for file in FOLDER.glob("*.html")]
    assert len(pages) >= 12
    for text in pages:
        assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?! type=\"module\" src=)", text)
    for file in FOLDER.glob("*.js"):
        assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(",
                             file.read_text()), file  # fmt: skip


@pytest.mark.parametrize(
    ("name", "status"),
    [("dashboard.css", 200), ("logo.svg", 200), ("room.js", 200), ("targets.js", 200),
     ("index.html", 404), ("__init__.py", 404), ("..%2fadmin.py", 404), ("%00", 404), ("", 404)],
)  # fmt: skip
async def test_only_its_own_files_are_served(site, name, status):
    """By name; the pages have addresses of their own."""
    assert (await site.ops.get(f"/dashboard/static/{name}")).status == status


# The stream.


async def read(stream, *kinds):
    """The first event of each kind, by kind."""
    found = {}
    while set(kinds) - set(found):
        event = (await stream.content.readuntil(b"\n\n")).decode()
        kind = re.match(r"event: (\w+)\ndata: (.*)\n\n\Z", event)
        if kind:
            found.setdefault(kind[1], json.loads(kind[2]))
    return found


async def test_the_stream_tells_of_every_room(site):
    """`now` has the numbers, `study` what costs more; a change is told at once."""
    for _ in range(5):
        await site.check()
    await site.room.refresh()
    here = await session(site)
    stream = await site.ops.get("/dashboard/events", headers=here)
    assert stream.content_type == "text/event-stream"
    assert stream.headers["Cache-Control"] == "no-store"
    found = await read(stream, "now", "study")
    (room,) = found["now"]["rooms"]
    assert (room["room"], room["waiting"], room["active"]) == (site.room.name, 2, 3)
    assert (room["state"], room["changed"], room["away"]) == ("at_cap", {}, False)
    assert room["file"] == room["settings"]
    study = found["study"]
    assert (study["room"], len(study["line"]), study["log"]) == (site.room.name, 2, [])
    assert study["minutes"]["waiting"] == []
    await site.ops.patch(path(site), json={"message": "soon", "claim_window": 9}, headers=here)
    found = await read(stream, "study")
    assert found["study"]["log"][0]["by"] == "Night shift"
    (room,) = (await read(stream, "now"))["now"]["rooms"]
    assert room["settings"]["message"] == "soon"
    assert (room["file"]["message"], room["file"]["claim_window"]) == (None, 30)
    stream.close()


async def test_the_stream_says_who_paused_and_why(site):
    """`now` has who stopped the room as it is, when and why. `study` has each action in words."""
    for name, act in (("Ann", "pause?why=no%20stock"), ("Ben", "resume"), ("Cid", "drain")):
        headers = {**BEARER, "X-Waitroom-Operator": name}
        assert (await site.ops.post(path(site, f"/{act}"), headers=headers)).status == 200
        room, study = await look(site)
        if name == "Ben":
            assert room["stopped"] is None
        else:
            at, why = study["log"][0]["at"], "no stock" if name == "Ann" else ""
            assert room["stopped"] == {"by": name, "at": at, "why": why}
    assert [act["text"] for act in study["log"]] == ["drained", "resumed", "paused: no stock"]


async def test_the_stream_tells_of_lines_classes_and_events(replica):
    """Each line's length and wait, and whose line somebody at the head stands in; the event that is
    on, with its times and what it sets, and the next one."""
    events = [
        {"name": "sale", "opens_at": "2027-01-15 07:00", "closes_at": "2027-01-15 09:00",
         "total_active_users": 2, "message": "On."},
        {"name": "next", "prequeue_from": "2027-01-15 10:00", "opens_at": "2027-01-15 11:00"},
    ]  # fmt: skip
    lines, classes = [{"name": "fast"}, {"name": "ordinary"}], {"vip": {"line": "fast"}}
    site = await replica(lines=lines, classes=classes, class_header=True, events=events)
    await site.room.refresh()
    for name in ("", "", "", "vip", ""):
        await site.check(headers={"X-Waitroom-Class": name})
    await site.room.refresh()
    now, study = await look(site)
    assert [now[name] for name in ("phase", "classes", "waiting")] == ["open", ["vip"], 3]
    assert [(line["line"], line["waiting"]) for line in now["lines"]] == [
        ("fast", 1), ("ordinary", 2),
    ]  # fmt: skip
    hour = 3_600_000
    assert now["event"] == {
        "name": "sale", "prequeue_from": None, "opens_at": site.turn.now_ms - hour,
        "closes_at": site.turn.now_ms + hour, "replaces": ["total_active_users", "message"],
    }  # fmt: skip
    assert (now["coming"]["name"], now["coming"]["prequeue_from"]) == (
        "next", site.turn.now_ms + 2 * hour,
    )  # fmt: skip
    assert [each["line"] for each in study["line"]] == ["fast", "ordinary", "ordinary"]
    assert [each["class"] for each in study["line"]] == ["vip", "", ""]


async def test_the_stream_tells_no_lot(replica):
    """In a pre-queue the head of the line is nobody's; how many there are is told."""
    event = {"name": "sale", "prequeue_from": "2027-01-15 08:00", "opens_at": "2027-01-15 08:00:20"}
    site = await replica(events=[event])
    site.room.draws = Draws(site.room.name, KEYS, site.room.draws.store)
    for _ in range(3):
        await site.room.refresh()
        await site.check()
    await site.room.refresh()
    now, study = await look(site)
    assert (now["phase"], now["event"]["name"], now["waiting"]) == ("prequeue", "sale", 3)
    assert study["line"] == []
    site.turn.forward(20)
    await site.room.refresh()
    now, study = await look(site)
    assert (now["phase"], len(study["line"])) == ("open", 2)


async def look(site, updates=1):
    """What a new viewer is told of the room, at once and after the first study."""
    live = Live(WaitingRooms([site.room]))
    with live.count_viewer(make_mocked_request("GET", "/")):
        for _ in range(updates):
            await live.wait_for_update()
        text = live.take_unsent_events({}).decode()
    now, study = (json.loads(data) for data in re.findall(r"data: (.*)", text))
    return now["rooms"][0], study


async def test_curves_rates_and_waits(site):
    """Minutes come from the store's samples; rates are of the last minute that is known; waits of
    those let in."""
    site.turn.now_ms = site.turn.now_ms // 60_000 * 60_000
    inside = [await site.enters() for _ in range(3)]
    waiting = await site.check()
    await site.room.refresh()
    for _ in range(2):
        site.turn.forward(60)
        for cookie in inside:
            await site.check(cookie)
        await site.check(cookie_of(waiting))
        await site.room.refresh()
    await site.ops.patch(path(site), json={"total_active_users": 5}, headers=BEARER)
    await site.check(cookie_of(waiting))
    await site.check()
    site.turn.forward(60)
    await site.room.refresh()
    now, study = await look(site, updates=2)
    assert study["minutes"]["waiting"] == [1, 1, 0]
    assert study["minutes"]["cap"] == [3, 3, 5]
    assert study["minutes"]["admitted"] == [0, 0, 2]
    rates = {"joined": 0, "admitted": 2, "abandoned": 0, "ended": 0}
    assert now["a_minute"] == pytest.approx(rates)
    # One waited for two minutes; those let in at once did not wait at all.
    assert 60 < study["waits"]["most"] < 200
    assert study["waits"]["minutes"] == 3
    assert study["minutes"]["wait_most"] == [None, None, study["waits"]["most"]]


async def test_viewers_share_the_work(site):
    """One task of each kind, however many watch; none when nobody does."""
    await site.room.refresh()
    here = await session(site)
    live = site.ops.app[LIVE]
    streams, made = [], []
    for _ in range(3):
        streams.append(await site.ops.get("/dashboard/events", headers=here))
        await read(streams[-1], "now", "study")
        made.append(live._tasks)
    tasks = made[0]
    assert (len(live), len(tasks)) == (3, 3)
    assert all(each is tasks for each in made)
    for stream in streams:
        stream.close()
    await asyncio.wait(tasks)
    assert (len(live), all(task.cancelled() for task in tasks)) == (0, True)


async def test_the_stream_ends_when_the_replica_stops(site):
    """Also while it still answers others; and nobody begins a new one there."""
    await site.room.refresh()
    here = await session(site)
    stream = await open_stream(site, here)
    await read(stream, "now")
    site.ops.app[keys.STOPPING].append(True)
    await stream.content.read()
    refused = await site.ops.get("/dashboard/events", headers=here)
    assert (refused.status, refused.headers["Retry-After"]) == (503, "2")


async def test_the_stream_ends_with_the_application(site):
    """A test's server, or one that was told nothing, does not wait for it."""
    stream = await open_stream(site)
    await read(stream, "now")
    await site.ops.app.shutdown()
    await stream.content.read()


async def test_the_stream_ends_with_the_session(site):
    """It says so, that the page can show the way in."""
    stream = await open_stream(site)
    await read(stream, "now")
    site.ops.app[OPERATORS]._now_s = lambda: time.time() + LIFETIME_S
    rest = await stream.content.read()
    assert rest.endswith(b"event: end\ndata: {}\n\n")


async def test_a_store_that_is_away_is_told(site):
    """The stream goes on, with what was known last."""
    await site.check()
    await site.room.refresh()
    stream = await open_stream(site)
    assert (await read(stream, "now"))["now"]["rooms"][0]["away"] is False
    site.turn.forward(10)  # nobody refreshes here
    for _ in range(2):
        (room,) = (await read(stream, "now"))["now"]["rooms"]
    assert (room["away"], room["active"]) == (True, 1)
    stream.close()


# Nonsense.


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("application/x-www-form-urlencoded", b"\xff=%ff&token=%00"),
        ("application/x-www-form-urlencoded", b"&".join(b"a%d=1" % i for i in range(5000))),
        ("application/x-www-form-urlencoded; charset=nonsense", b"name=a&token=b"),
        ("multipart/form-data", b"x"),
        ("multipart/form-data; boundary=x", b"--x\r\n\r\n--"),
        ("application/json", b"{}"),
        ("nonsense", b""),
    ],
)
async def test_nothing_that_is_sent_is_our_error(site, kind, body):
    """A form that is none is a wrong token; what is too large is refused as such."""
    headers = {"Content-Type": kind, "Cookie": f'{COOKIE}="\\"; =;;{COOKIE}'}
    reply = await site.ops.post("/dashboard/login", data=body, headers=headers)
    assert reply.status == 401
    reply = await site.ops.post("/dashboard/login", data=b"x" * 70_000, headers=headers)
    assert reply.status in {401, 413}
    for method in ("PUT", "DELETE", "PATCH", "HEAD"):
        for where in ("", "/session", "/events", "/login", "/static/dashboard.js", "/nothing"):
            reply = await site.ops.request(method, f"/dashboard{where}", headers=headers)
            assert reply.status < 500
