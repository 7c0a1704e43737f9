"""The operator's calls."""

import re

import pytest

from sidecar.lottery.service import Draws
from sidecar.rooms.endpoints.operator import _NON_COUNTER_FIELDS
from sidecar.storage.redis.lua_source import LUA_ROOT
from sidecar.visitors.visitor_number import visitor_number
from tests.rooms.operator_calls import TOKEN, ask, told
from tests.support.replica import ADMIN_TOKEN, KEYS, cookie_of

#: The test's clock stands at 2027-01-15 08:00 UTC.
SALE = {"name": "sale", "prequeue_from": "2027-01-15 08:00", "opens_at": "2027-01-15 09:00"}
LINES = [{"name": "fast"}, {"name": "ordinary"}]
CLASSES = {"vip": {"line": "fast"}, "early": {"head_start": "5m"}}


@pytest.fixture
async def site(replica):
    return await replica(total_active_users=3)


def path(site, more=""):
    return f"/admin/rooms/{site.room.name}{more}"


async def people(site):
    return [row["visitor"] for row in (await told(site, "/waiting"))["waiting"]]


async def check_all(site, count):
    return [await site.check() for _ in range(count)]


async def test_rooms_are_listed_and_shown(site):
    """The response has figures and settings."""
    await site.check()
    rooms = (await (await site.ops.get("/admin/rooms", headers=TOKEN)).json())["rooms"]
    room = await told(site)
    assert [shown["room"] for shown in rooms] == [site.room.name]
    assert (room["active"], room["waiting"]) == (1, 0)
    assert room["settings"]["total_active_users"] == 3
    assert room["counters"]["admitted"] == 1
    assert (room["recovery_stage"], room["recovers_until"]) == (0, None)


async def test_a_setting_changes_at_once(site):
    """A raised cap calls waiting visitors, and null resets a setting to the configured value."""
    await check_all(site, 5)
    change = {"total_active_users": 4, "message": "soon"}
    room = await ask(site, "PATCH", body=change)
    assert room["changed"] == change
    assert (room["active"], room["provisional"], room["waiting"]) == (4, 1, 1)
    room = await ask(site, "PATCH", body={"total_active_users": None})
    assert room["settings"]["total_active_users"] == 3


async def test_a_change_names_all_that_is_wrong(site):
    """The response names unknown settings and values that are not allowed."""
    change = {
        "mesage": None, "colour": "red", "total_active_users": -1, "session_duration": "soon",
        "heartbeat_timeout": 20, "claim_window": 30, "message": "right",
    }  # fmt: skip
    document = await ask(site, "PATCH", body=change, status=422)
    assert document["detail"] == "Nothing was changed."
    assert sorted(line.partition(":")[0] for line in document["errors"]) == [
        "claim_window", "colour", "mesage", "session_duration", "total_active_users",
    ]  # fmt: skip
    assert "mesage: unknown setting; did you mean message?" in document["errors"]
    assert (await told(site))["changed"] == {}


NEEDED = ("A token is needed", "Send Authorization: Bearer <token>.")
WRONG = ("The token is wrong", "It is not this replica's admin_token.")


@pytest.mark.parametrize(
    ("header", "problem"),
    [
        (None, NEEDED), ("", NEEDED), ("Bearer", NEEDED), ("Bearer ", NEEDED), ("Basic x", NEEDED),
        ("Bearer wrong", WRONG), ("Bearer é", WRONG),
    ],
)  # fmt: skip
async def test_nobody_without_the_token(site, header, problem):
    """The response is a 401 problem that says what is wrong, for known and unknown addresses."""
    headers = {} if header is None else {"Authorization": header}
    for where in ("/admin/rooms", path(site), "/admin/nothing"):
        reply = await site.ops.get(where, headers=headers)
        document = await reply.json()
        assert (reply.status, reply.content_type) == (401, "application/problem+json")
        assert (document["title"], document["detail"]) == problem
    assert (await site.ops.post(path(site, "/reset"), headers=headers)).status == 401
    document = await (await site.ops.get("/v1/limits", headers=headers)).json()
    assert document["title"] == problem[0]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"total_active_users": -1}, "total_active_users"),
        ({"total_active_users": "many"}, "total_active_users"),
        ({"total_active_users": 1.5}, "total_active_users"),
        ({"total_active_users": True}, "total_active_users"),
        ({"total_active_users": 10**12}, "total_active_users"), ({"nonsense": 1}, "nonsense"),
        ({"queueing_method": "lifo"}, "queueing_method"),
        ({"session_duration": "soon"}, "session_duration"),
        ({"session_duration": "NaN"}, "session_duration"),
        ({"queueing_status_code": 500}, "queueing_status_code"),
        ({"claim_window": "5m"}, "claim_window"), ({"message": "x" * 501}, "message"),
        ({"total_active_users": 9, "poll_limit": 0}, "poll_limit"), ({}, "no setting"),
        ([1], "JSON object"),
    ],
)  # fmt: skip
async def test_a_wrong_change_is_named_and_changes_nothing(site, change, named):
    """The response is a 422 with the setting's name, and the valid settings are not applied
    either."""
    reply = await site.ops.patch(path(site), json=change, headers=TOKEN)
    problem = await reply.json()
    assert (reply.status, reply.content_type) == (422, "application/problem+json")
    assert any(named in error for error in problem["errors"])
    assert ((await site.room.refresh()).overrides, site.room.settings.total_active_users) == ({}, 3)


@pytest.mark.parametrize("body", [b"{", b"\xff\xfe", b"[" * 50_000, b""])
async def test_a_body_that_is_no_json(site, body):
    """The response is a 400, never a 500."""
    assert (await site.ops.patch(path(site), data=body, headers=TOKEN)).status == 400


async def test_resetting_empties_the_line_only(site):
    """Sessions stay, and old tickets are void."""
    replies = await check_all(site, 5)
    assert (await ask(site, "POST", "/reset"))["removed"] == 2
    assert (await site.check(cookie_of(replies[0]))).status == 204
    assert (await (await site.status(cookie_of(replies[4]))).json())["state"] == "not_queued"


async def test_releasing_a_visitor(site):
    """A session is released once by its id. An unknown id gets a 404, an invalid one a 422."""
    await site.check()
    visitor = (await told(site, "/sessions"))["sessions"][0]["visitor"]
    for named, status in ((visitor, 200), (visitor, 404), ("x", 422)):
        await ask(site, "POST", f"/visitors/{named}/release", status=status)


async def test_a_visitor_is_named_by_number(site):
    """A number may be typed in several ways, wherever an id is expected. An unknown number gets a
    404."""
    await check_all(site, 3 + 2)
    head, tail = await people(site)
    typed = visitor_number(tail).replace("-", "").lower().replace("1", "l").replace("0", "o")
    where = f"/visitors/{typed}"
    found = await told(site, where)
    assert (found["visitor"], found["number"]) == (tail, visitor_number(tail))
    moved = await ask(site, "POST", where + "/move", {"position": 1})
    assert (moved["visitor"], moved["position"]) == (tail, 1)
    assert (await ask(site, "POST", where + "/release"))["visitor"] == tail
    assert await people(site) == [head]
    for method, what in (("GET", ""), ("POST", "/release")):
        problem = await ask(site, method, "/visitors/ooooo00l" + what, status=404)
        assert problem["code"] == "unknown_visitor"
        assert problem["detail"] == "no visitor here has the number 0000-0001"


async def test_a_number_of_two_visitors_names_neither(site):
    """The response is a 409 with both ids, and nobody is released."""
    await check_all(site, 3)
    twins = ["abcdefA" + "1" * 15, "abcdefB" + "2" * 15]
    for visitor in twins:
        await site.room.store.enter(visitor)
    number = visitor_number(twins[0])
    problem = await ask(site, "POST", f"/visitors/{number}/release", status=409)
    assert (problem["code"], problem["visitors"]) == ("ambiguous_number", twins)
    assert await people(site) == twins
    await ask(site, "POST", f"/visitors/{twins[1]}/release")


async def test_an_id_is_not_looked_for(site, monkeypatch):
    """Only a number makes the replica scan all visitors."""

    async def numbered(_):
        raise AssertionError

    monkeypatch.setattr(type(site.room.store.lists), "ids_by_number", numbered)
    assert (await told(site, f"/visitors/{'a' * 22}"))["state"] == "unknown"


async def test_the_line_is_paged(site):
    """Pages begin at the head and have positions. A wrong page is refused."""
    await check_all(site, 8)
    page = await told(site, "/waiting?after=1&limit=2")
    assert [row["position"] for row in page["waiting"]] == [2, 3]
    assert len((await told(site, "/waiting?after=-1&limit=x", status=422))["errors"]) == 2


async def test_somebody_in_line_is_moved_and_hears_of_it(site):
    """The next heartbeat gives the moved visitor a ticket with the new order."""
    await check_all(site, 3)
    first, second, third = map(cookie_of, await check_all(site, 3))
    rows = (await told(site, "/waiting"))["waiting"]
    assert await move(site, rows[2]["visitor"], position=1) == (200, 1)
    heard = await site.status(third)
    assert (await heard.json())["position"] == 1
    assert site.room.tokens.read(cookie_of(heard).partition("=")[2]).order < rows[0]["order"]
    assert (await (await site.status(first)).json())["position"] == 2
    assert (await (await site.status(second)).json())["position"] == 3


async def test_who_did_what_is_kept(site):
    """The log has changes, moves, releases and resets, latest first, with the name that the caller
    sends."""
    await check_all(site, 5)
    head, tail = await people(site)
    await ask(site, "PATCH", body={"message": "soon"}, by="night shift")
    await ask(site, "POST", f"/visitors/{tail}/move", {"position": 1}, by="night shift")
    await ask(site, "POST", f"/visitors/{head}/release")
    await ask(site, "POST", "/reset")
    log = (await told(site, "/log"))["log"]
    assert [(act["by"], act["what"], act["visitor"], act["detail"]) for act in log] == [
        ("api", "reset", "", "1"),
        ("api", "release", head, ""),
        ("night shift", "move", tail, "2 to 1"),
        ("night shift", "change", "", '{"message": "soon"}'),
    ]


async def test_a_change_may_say_why(site):
    """The log has the reason, apart and in words. It is no setting."""
    await ask(site, "POST", "/pause?why=no%20stock", by="anna")
    await ask(site, "PATCH", "?why=sale%20over", {"total_active_users": 1}, by="ben")
    room = await ask(site, "POST", "/resume", by="ben")
    assert room["changed"] == {"total_active_users": 1}
    log = (await told(site, "/log"))["log"]
    assert [(act["by"], act["text"], act["why"]) for act in log] == [
        ("ben", "resumed", ""),
        ("ben", "total_active_users: 3 → 1: sale over", "sale over"),
        ("anna", "paused: no stock", "no stock"),
    ]
    for more in ("?why=two%0Alines", f"?why={'x' * 201}"):
        problem = await ask(site, "POST", f"/pause{more}", status=422)
        assert problem["errors"][0].startswith("why: ")
    assert (await told(site))["mode"] == "running"


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({}, "position"), ({"to": 1}, "position"), ({"position": 0}, "position"),
        ({"position": 1.5}, "position"), ({"position": True}, "position"),
        ({"position": 10**9}, "position"), ({"position": "1"}, "position"),
        ({"position": "tail"}, "position"), ({"position": None}, "position"),
        ({"position": 1, "class": None}, "position"), ({"class": 1}, "class"),
        ({"class": ["vip"]}, "class"), ({"position": 1, "because": "x"}, "because"),
        ({"position": 1, "why": None}, "why"), ({"position": 1, "why": "x" * 201}, "why"),
        ({"position": 1, "why": "two\nlines"}, "why"), ({"position": 1, "why": "\x1b[2J"}, "why"),
        ({"position": 1, "why": "half \ud800"}, "why"),
    ],
)  # fmt: skip
async def test_a_move_says_one_place_and_perhaps_why(site, body, named):
    """Any other body is refused and changes nothing."""
    problem = await ask(site, "POST", f"/visitors/{'a' * 22}/move", body, status=422)
    assert problem["errors"][0].partition(":")[0] == named


async def test_a_setting_of_a_later_version_takes_no_other_along(site):
    """A replica of an older version ignores the unknown setting and applies the others."""
    await site.room.store.configure({"total_active_users": 1, "of_a_later_version": True}, by="x")
    assert (await told(site))["settings"]["total_active_users"] == 1


async def test_a_setting_that_the_file_does_not_allow_takes_no_other_along(site):
    """After a change of the file the valid run-time settings still apply, and can be reset."""
    await site.room.store.configure({"heartbeat_timeout": 20, "queue_all": True}, by="x")
    room = await told(site)
    assert (room["settings"]["queue_all"], room["settings"]["claim_window"]) == (True, 30)
    assert (await ask(site, "POST", "/resume"))["settings"]["queue_all"] is False
    assert (await ask(site, "PATCH", body={"heartbeat_timeout": None}))["changed"] == {}


# Who is next --------------------------------------------------------------------------------------


async def move(site, visitor, **body):
    """Move a visitor. Return the status, and the position or the problem."""
    where = path(site, f"/visitors/{visitor}/move")
    reply = await site.ops.post(where, json=body, headers=TOKEN)
    document = await reply.json()
    if reply.status == 200:
        assert (document["room"], document["visitor"]) == (site.room.name, visitor)
        return 200, document["position"]
    return reply.status, f"{document['title']}: {document['detail']}"


async def test_somebody_is_moved_and_put_back(site):
    """Visitors are moved to the head, to a position, and once back to the place before all moves.
    The log has both positions and the reason."""
    await check_all(site, 3 + 4)
    before = await people(site)
    last = before[3]
    assert await move(site, last, position="head", why="Ticket 4711 – paid twice") == (200, 1)
    assert await move(site, last, position=2.0) == (200, 2)
    assert await people(site) == [before[0], last, *before[1:3]]
    assert await move(site, last, position="back", why="a mistake") == (200, 4)
    assert await people(site) == before
    again = await move(site, last, position="back")
    assert again == (409, "Nobody moved this visitor: So there is no place to go back to.")
    log = (await told(site, "/log"))["log"]
    assert [(act["what"], act["visitor"], act["detail"]) for act in log] == [
        ("back", last, "2 to 4: a mistake"),
        ("move", last, "1 to 2"),
        ("move", last, "4 to 1: Ticket 4711 – paid twice"),
    ]


SHOP = "shop-token-for-tests"
ACCESS = {"tokens": {"shop": SHOP, "press": "press-token-for-tests"}, "scopes": {"shop": "classes"}}


async def choose_class(site, visitor, body, token=SHOP):
    """Choose a visitor's class as a program. Return the status and the document."""
    where = f"/v1/rooms/{site.room.name}/visitors/{visitor}/class"
    headers = {"Authorization": f"Bearer {token}", "X-Waitroom-Operator": "alice"}
    reply = await site.ops.put(where, json=body, headers=headers)
    return reply.status, await reply.json()


async def test_a_trusted_program_chooses_the_class_of_who_waits(replica):
    """By its token's scope, without a grant. The log names the token, whatever the request says."""
    site = await replica(total_active_users=1, lines=LINES, classes=CLASSES, access=ACCESS)
    await check_all(site, 1 + 3)
    last = (await people(site))[-1]
    for _ in range(2):  # a retry changes nothing
        status, document = await choose_class(site, last, {"class": "vip", "why": "customer 17"})
        assert (status, document["visitor"], document["position"]) == (200, last, 1)
    assert (await choose_class(site, last, {"class": None}))[1]["position"] == 3
    log = (await told(site, "/log"))["log"]
    assert {act["by"] for act in log} == {"token shop"}
    assert "class vip: customer 17" in log[-1]["detail"]


async def test_a_class_is_no_other_programs_to_choose(replica):
    """A token without a line in `scopes` has all scopes but this."""
    site = await replica(total_active_users=1, lines=LINES, classes=CLASSES, access=ACCESS)
    await check_all(site, 1 + 1)
    [visitor] = await people(site)
    status, document = await choose_class(site, visitor, {"class": "vip"}, "press-token-for-tests")
    assert (status, document["code"]) == (403, "scope_missing")
    assert (await choose_class(site, visitor, {"class": "vip"}, ADMIN_TOKEN))[0] == 200


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"class": "gold"}, 404, "unknown_class"),
        ({}, 422, "invalid_request"),
        ({"class": 7}, 422, "invalid_request"),
        ({"class": "vip", "position": 1}, 422, "invalid_request"),
        ({"class": "vip", "why": "two\nlines"}, 422, "invalid_request"),
    ],
)
async def test_a_class_that_cannot_be_chosen(replica, body, status, code):
    site = await replica(total_active_users=1, lines=LINES, classes=CLASSES, access=ACCESS)
    await check_all(site, 1 + 1)
    [visitor] = await people(site)
    answer, document = await choose_class(site, visitor, body)
    assert (answer, document["code"]) == (status, code), document
    answer, document = await choose_class(site, "A" * 22, {"class": "vip"})
    assert (answer, document["code"]) == (404, "unknown_visitor")


async def test_somebody_is_given_another_class(replica):
    """The visitor gets the sub-queue or head start of the class. For an unknown class the response
    names the room's classes."""
    site = await replica(total_active_users=1, lines=LINES, classes=CLASSES)
    await check_all(site, 1 + 3)
    before = await people(site)
    last = before[2]
    assert await move(site, last, **{"class": "early"}) == (200, 1)
    assert await move(site, last, **{"class": "vip", "why": "press"}) == (200, 1)
    rows = (await told(site, "/waiting"))["waiting"]
    assert [row["line"] for row in rows] == ["fast", "ordinary", "ordinary"]
    assert await move(site, last, **{"class": None}) == (200, 3)
    assert await people(site) == before
    unknown = (404, f"Unknown class: The classes of {site.room.name}: vip, early.")
    for name in ("gold", "", "\ud800"):
        assert await move(site, last, **{"class": name}) == unknown
    status, said = await move(site, "a" * 22, **{"class": "vip"})
    assert (status, said) == (404, f"Unknown visitor: {'a' * 22} is not waiting")
    log = (await told(site, "/log"))["log"]
    assert [(act["what"], act["detail"]) for act in log] == [
        ("grade", "1 to 3: no class"),
        ("grade", "1 to 1: class vip: press"),
        ("grade", "3 to 1: class early"),
    ]


async def test_each_line_is_told(replica):
    """Sub-queues have a length and a wait, and each visitor has a position in the sub-queue."""
    site = await replica(lines=LINES, classes=CLASSES, class_header=True)
    await site.check()
    for name in ("", "vip", "", "vip", ""):
        await site.check(headers={"X-Waitroom-Class": name})
    room = await told(site)
    assert [(line["line"], line["waiting"]) for line in room["lines"]] == [
        ("fast", 2), ("ordinary", 3),
    ]  # fmt: skip
    first, second = (line["wait_seconds"] for line in room["lines"])
    assert 0 < first < second == room["wait_seconds"]
    assert "credit_1" not in room["counters"]
    rows = (await told(site, "/waiting"))["waiting"]
    assert [row["line"] for row in rows] == ["fast"] * 2 + ["ordinary"] * 3
    last = rows[4]["visitor"]
    found = await told(site, f"/visitors/{last}")
    assert [found[name] for name in ("position", "line", "line_position")] == [5, "ordinary", 3]
    assert await move(site, last, position="head") == (200, 1)
    found = await told(site, f"/visitors/{last}")
    assert [found[name] for name in ("position", "line", "line_position")] == [3, "ordinary", 1]


async def test_a_room_without_lines_or_events_says_so(site):
    """The room has no sub-queues and no event, and is open."""
    await check_all(site, 4)
    room = await told(site)
    names = ("phase", "event", "coming", "lines")
    assert [room[name] for name in names] == ["open", None, None, []]
    (row,) = (await told(site, "/waiting"))["waiting"]
    found = await told(site, f"/visitors/{row['visitor']}")
    assert (row["line"], found["line"], found["line_position"]) == (None, None, None)


async def test_nobody_learns_a_lot_in_a_pre_queue(replica):
    """Before the opening operators see neither the queue nor places, and move nobody. A drawn place
    has no class."""
    soon = {**SALE, "opens_at": "2027-01-15 08:00:20"}
    site = await replica(events=[soon], lines=LINES, classes=CLASSES)
    site.room.draws = Draws(site.room.name, KEYS, site.room.draws.store)
    await site.room.refresh()
    joined = await check_all(site, 3)
    ids = {site.room.tokens.read(cookie_of(one).partition("=")[2]).visitor for one in joined}
    room = await told(site)
    assert [room[name] for name in ("phase", "event", "waiting")] == ["prequeue", "sale", 3]
    assert (await told(site, "/waiting", status=409))["title"] == "Nothing is drawn yet"
    one = min(ids)
    found = await told(site, f"/visitors/{one}")
    assert (found["state"], found["position"], found["line"]) == ("waiting", None, None)
    for body in ({"position": 1}, {"position": "back"}, {"class": "vip"}):
        assert (await move(site, one, **body))[0] == 409

    site.turn.forward(20)
    room = await told(site)
    assert [room[name] for name in ("phase", "event")] == ["open", "sale"]
    assert [line["waiting"] for line in room["lines"]] == [0, 0]
    rows = (await told(site, "/waiting"))["waiting"]
    assert {row["visitor"] for row in rows} < ids
    assert [(row["position"], row["line"]) for row in rows] == [(1, None), (2, None)]
    assert await move(site, rows[1]["visitor"], position=1) == (200, 1)
    status, said = await move(site, rows[0]["visitor"], **{"class": "vip"})
    assert (status, said) == (
        409, "A drawn place has no class: It can be moved, after the opening."
    )  # fmt: skip


async def test_a_draw_that_is_on_is_changed_by_nobody(replica):
    """The response is a 422. The opening can be moved until it was, the event can be removed, and
    other settings can be changed."""
    site = await replica(events=[SALE])

    async def patch(**changes):
        reply = await site.ops.patch(path(site), json=changes, headers=TOKEN)
        return reply.status, (await reply.json()).get("errors", [""])[0]

    status, said = await patch(events=[{**SALE, "name": "sales"}], message="Soon.")
    assert (status, said.split(":")[:2]) == (422, ["events", " sales"])
    assert (await site.room.refresh()).overrides == {}
    assert (await patch(events=[{**SALE, "opens_at": "2027-01-15 08:10"}]))[0] == 200
    site.turn.forward(15 * 60)
    assert (await patch(message="Soon."))[0] == 200
    for later in ([SALE], None):  # the file's is later too
        status, said = await patch(events=later)
        assert (status, "its secret is published" in said) == (422, True)
    assert (await patch(events=[]))[0] == 200


async def test_a_closed_room_names_the_next_event(replica):
    """Before its first event the room is closed."""
    room = await told(await replica(events=[{**SALE, "prequeue_from": "2027-01-15 08:30"}]))
    assert [room[name] for name in ("phase", "event", "coming")] == ["closed", None, "sale"]


def test_what_scripts_remember_for_themselves_is_no_counter():
    """No name in rooms/lua/parts/numbers.lua is among the counters that operators see."""
    text = (LUA_ROOT / "rooms" / "lua" / "parts" / "numbers.lua").read_text()
    lists = re.findall(r"^local (?:EAGER|LAZY)_NUMBERS = {(.*?)}", text, re.DOTALL | re.MULTILINE)
    names = {name for found in lists for name in re.findall(r"'(\w+)'", found)}
    assert len(names) > 15
    assert {name for name in names if not name.startswith("credit_")} == _NON_COUNTER_FIELDS


async def change(site, by="ada", **settings):
    """Change settings. Return the revision."""
    return (await ask(site, "PATCH", body=settings, by=by))["change"]


async def undo(site, revision, by="ada"):
    named = {**TOKEN, "X-Waitroom-Operator": by}
    reply = await site.ops.post(path(site, "/undo"), json={"revision": revision}, headers=named)
    return reply.status, await reply.json()


async def test_a_change_is_undone(site):
    """The values before are back, and other settings stay. The log has the values before and after
    both changes."""
    await change(site, total_active_users=5)
    revision = await change(site, total_active_users=9, message="soon", lines=[])
    await change(site, new_users_per_minute=60)
    status, room = await undo(site, revision, by="bo")
    assert (status, room["changed"]) == (200, {"total_active_users": 5, "new_users_per_minute": 60})
    log = (await told(site, "/log"))["log"]
    assert [(act["by"], act["what"], act["changes"]) for act in log[:3]] == [
        ("bo", "undo", {"total_active_users": {"from": 9, "to": 5},
                        "message": {"from": "soon", "to": None},
                        "lines": {"from": [], "to": None}}),
        ("ada", "change", {"new_users_per_minute": {"from": None, "to": 60}}),
        ("ada", "change", {"total_active_users": {"from": 5, "to": 9},
                           "message": {"from": None, "to": "soon"},
                           "lines": {"from": None, "to": []}}),
    ]  # fmt: skip
    assert log[0]["revision"] == room["change"]


async def test_an_undo_never_overwrites_another_operator(site):
    """The problem names the operator who changed the setting since. A change cannot be undone
    twice."""
    revision = await change(site, total_active_users=5, message="soon")
    await change(site, by="bo", total_active_users=6)
    status, problem = await undo(site, revision)
    assert (status, problem["code"]) == (409, "changed_since")
    assert problem["detail"].startswith("bo changed total_active_users at 2027-01-15T08:")
    assert (await told(site))["changed"] == {"total_active_users": 6, "message": "soon"}
    revision = await change(site, message="later")
    assert (await undo(site, revision, by="cleo"))[0] == 200
    status, problem = await undo(site, revision)
    assert (status, problem["detail"].partition(" at ")[0]) == (409, "cleo changed message")
    status, problem = await undo(site, 4711)
    assert (status, problem["code"]) == (404, "unknown_change")


async def test_a_pause_is_undone_and_checked_as_any_change(site):
    """An undo must keep the rules between settings."""
    status, room = await undo(site, (await ask(site, "POST", "/pause"))["change"])
    assert (status, room["mode"], room["changed"]) == (200, "running", {})
    revision = await change(site, heartbeat_timeout=300)
    await change(site, claim_window=200)
    status, problem = await undo(site, revision)
    assert (status, problem["errors"][0].partition(":")[0]) == (422, "claim_window")


async def test_a_long_value_is_not_kept_in_the_log(site):
    """Two hundred style sheets would fill Redis, so a long change is not kept and cannot be
    undone."""
    revision = await change(site, custom_css="body { color: red }\n" * 500)
    log = (await told(site, "/log"))["log"]
    assert (log[0]["changes"], log[0]["revision"]) == (None, None)
    assert (await undo(site, revision))[0] == 404


async def forecast(site, **settings):
    return await ask(site, "POST", "/forecast", settings)


async def test_a_change_is_forecast(replica):
    """The forecast uses the room's estimate for a raised cap, a lowered cap and a rate, and changes
    nothing."""
    site = await replica(total_active_users=10, session_duration=600)
    await check_all(site, 10 + 120)
    before = await told(site)
    found = await forecast(site, total_active_users=60)
    assert (found["waiting"], found["active"], found["now"]["cap"]) == (120, 10, 10)
    more = found["then"]["called_in_a_minute"] - found["now"]["called_in_a_minute"]
    assert 50 <= more <= 60
    assert found["then"]["last_called_seconds"] < found["now"]["last_called_seconds"]
    assert found["then"]["first_called_seconds"] == 0
    found = await forecast(site, total_active_users=5)
    assert found["then"]["called_in_a_minute"] == 0
    assert found["then"]["first_called_seconds"] > found["now"]["first_called_seconds"]
    found = await forecast(site, total_active_users=1000, new_users_per_minute=60)
    assert 60 <= found["then"]["called_in_a_minute"] <= 64
    assert 110 <= found["then"]["last_called_seconds"] <= 120
    for closed in ({"queue_all": True}, {"total_active_users": 0}):
        then = (await forecast(site, **closed))["then"]
        assert (then["called_in_a_minute"], then["first_called_seconds"]) == (0, None)
    assert {**(await told(site)), "counters": None} == {**before, "counters": None}
    await ask(site, "POST", "/forecast", {"x": 1}, status=422)


async def test_a_reset_setting_is_forecast_with_its_configured_value(replica):
    """In a room without waiting visitors nobody is called."""
    site = await replica(total_active_users=2, new_users_per_minute=30)
    await change(site, new_users_per_minute=600, total_active_users=50)
    assert (await forecast(site, total_active_users=None))["then"]["cap"] == 2
    empty = (await forecast(site, total_active_users=9))["then"]
    assert (empty["called_in_a_minute"], empty["last_called_seconds"]) == (0, None)


async def test_a_row_says_class_and_when_its_visitor_joined(replica):
    """Both are read from the order, also after moves and changes of the class. A random order has
    no time of joining."""
    classes = {"early": {"head_start": "5m"}, "vip": {"line": "fast"}}
    site = await replica(total_active_users=1, lines=LINES, classes=classes, class_header=True)
    joined = site.turn.now_ms
    for name in ("", "", "early", "vip", ""):
        await site.check(headers={"X-Waitroom-Class": name})

    async def rows():
        found = (await told(site, "/waiting"))["waiting"]
        assert all(abs(row["joined_at_ms"] - joined) <= 1 for row in found)
        return [row["class"] for row in found], [row["visitor"] for row in found]

    found, ids = await rows()
    assert found == ["vip", "early", "", ""]
    assert (await told(site, "/waiting"))["waiting"][0]["number"] == visitor_number(ids[0])
    assert await move(site, ids[3], position="head") == (200, 1)
    assert await move(site, ids[1], position=3) == (200, 3)
    assert await rows() == (["vip", "", "", "early"], [ids[0], ids[3], ids[2], ids[1]])
    await move(site, ids[2], **{"class": "vip"})
    classes_now = dict(zip(*reversed(await rows()), strict=True))
    assert classes_now == {ids[0]: "vip", ids[1]: "early", ids[2]: "vip", ids[3]: ""}
    seen = await told(site, f"/visitors/{ids[2]}")
    assert (seen["class"], abs(seen["joined_at_ms"] - joined) <= 1) == ("vip", True)
    await change(site, queueing_method="random")
    assert {row["joined_at_ms"] for row in (await told(site, "/waiting"))["waiting"]} == {None}
