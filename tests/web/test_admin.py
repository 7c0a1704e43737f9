"""The operator's calls."""

from __future__ import annotations

import pytest

from tests.web.conftest import ADMIN_TOKEN, cookie_of

TOKEN = {"Authorization": f"Bearer {ADMIN_TOKEN}"}


@pytest.fixture
async def site(replica):
    return await replica(total_active_users=3)


def path(site, more=""):
    return f"/admin/rooms/{site.room.name}{more}"


@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer wrong", "Basic x", "Bearer é"])
async def test_nobody_without_the_token(site, header):
    """401 as a problem, for known and unknown addresses alike."""
    headers = {} if header is None else {"Authorization": header}
    for where in ("/admin/rooms", path(site), "/admin/nothing"):
        reply = await site.ops.get(where, headers=headers)
        assert (reply.status, reply.content_type) == (401, "application/problem+json")
    reply = await site.ops.post(path(site, "/reset"), headers=headers)
    assert reply.status == 401


async def test_rooms_are_listed_and_shown(site):
    """With their numbers and settings."""
    await site.check()
    rooms = (await (await site.ops.get("/admin/rooms", headers=TOKEN)).json())["rooms"]
    room = await (await site.ops.get(path(site), headers=TOKEN)).json()
    assert [shown["room"] for shown in rooms] == [site.room.name]
    assert (room["active"], room["waiting"]) == (1, 0)
    assert room["settings"]["total_active_users"] == 3
    assert room["counters"]["admitted"] == 1
    assert (room["recovery_stage"], room["recovers_until"]) == (0, None)


async def test_a_setting_changes_at_once(site):
    """A raised cap calls those who wait; null goes back to the file's value."""
    for _ in range(5):
        await site.check()
    change = {"total_active_users": 4, "message": "soon"}
    reply = await site.ops.patch(path(site), json=change, headers=TOKEN)
    room = await reply.json()
    assert (reply.status, room["changed"]) == (200, change)
    assert (room["active"], room["provisional"], room["waiting"]) == (4, 1, 1)
    reply = await site.ops.patch(path(site), json={"total_active_users": None}, headers=TOKEN)
    assert (await reply.json())["settings"]["total_active_users"] == 3


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"total_active_users": -1}, "total_active_users"),
        ({"total_active_users": "many"}, "total_active_users"),
        ({"total_active_users": 1.5}, "total_active_users"),
        ({"total_active_users": True}, "total_active_users"),
        ({"total_active_users": 10**12}, "total_active_users"),
        ({"nonsense": 1}, "nonsense"),
        ({"queueing_method": "lifo"}, "queueing_method"),
        ({"session_duration": "soon"}, "session_duration"),
        ({"session_duration": "NaN"}, "session_duration"),
        ({"queueing_status_code": 500}, "queueing_status_code"),
        ({"claim_window": "5m"}, "claim_window"),
        ({"message": "x" * 501}, "message"),
        ({"total_active_users": 9, "poll_limit": 0}, "poll_limit"),
        ({}, "no setting"),
        ([1], "JSON object"),
    ],
)
async def test_a_wrong_change_is_named_and_changes_nothing(site, change, named):
    """422 with the field's name; not even the right half of it is applied."""
    reply = await site.ops.patch(path(site), json=change, headers=TOKEN)
    problem = await reply.json()
    assert (reply.status, reply.content_type) == (422, "application/problem+json")
    assert any(named in error for error in problem["errors"])
    snapshot = await site.room.refresh()
    assert (snapshot.overrides, site.room.settings.total_active_users) == ({}, 3)


@pytest.mark.parametrize("body", [b"{", b"\xff\xfe", b"[" * 50_000, b""])
async def test_a_body_that_is_no_json(site, body):
    """422, never 500."""
    reply = await site.ops.patch(path(site), data=body, headers=TOKEN)
    assert reply.status == 422


async def test_resetting_empties_the_line_only(site):
    """Who is inside stays; old tickets are worth nothing."""
    replies = [await site.check() for _ in range(5)]
    reply = await site.ops.post(path(site, "/reset"), headers=TOKEN)
    assert (await reply.json())["removed"] == 2
    assert (await site.check(cookie_of(replies[0]))).status == 204
    document = await (await site.status(cookie_of(replies[4]))).json()
    assert document["state"] == "not_queued"


async def test_releasing_a_visitor(site):
    """A session by its id, once; an unknown id is a 404, an impossible one a 422."""
    await site.check()
    listed = await (await site.ops.get(path(site, "/sessions"), headers=TOKEN)).json()
    visitor = listed["sessions"][0]["visitor"]
    where = path(site, f"/visitors/{visitor}/release")
    assert [(await site.ops.post(where, headers=TOKEN)).status for _ in range(2)] == [200, 404]
    reply = await site.ops.post(path(site, "/visitors/x/release"), headers=TOKEN)
    assert reply.status == 422


async def test_the_line_is_paged(site):
    """From the head on, with positions; a wrong page is named."""
    for _ in range(8):
        await site.check()
    reply = await site.ops.get(path(site, "/waiting?offset=1&limit=2"), headers=TOKEN)
    assert [row["position"] for row in (await reply.json())["waiting"]] == [2, 3]
    reply = await site.ops.get(path(site, "/waiting?offset=-1&limit=x"), headers=TOKEN)
    assert (reply.status, len((await reply.json())["errors"])) == (422, 2)


async def test_health_and_metrics(site):
    """Ready while the store answers; the numbers of the room are there."""
    assert (await site.ops.get("/healthz")).status == 200
    assert (await site.ops.get("/readyz")).status == 200
    await site.check()
    text = await (await site.ops.get("/metrics")).text()
    name = site.room.name
    assert f'waitroom_requests_total{{door="check",room="{name}",state="admitted"}} 1.0' in text


async def test_somebody_in_line_is_moved_and_hears_of_it(site):
    """To the head; their next heartbeat gives them a ticket for the new place, which comes back
    there after the store was emptied."""
    inside = [await site.check() for _ in range(3)]
    first, second, third = [cookie_of(await site.check()) for _ in range(3)]
    rows = (await (await site.ops.get(path(site, "/waiting"), headers=TOKEN)).json())["waiting"]
    visitor = rows[2]["visitor"]
    where = path(site, f"/visitors/{visitor}/move")
    reply = await site.ops.post(where, json={"position": 1}, headers=TOKEN)
    assert (reply.status, (await reply.json())["position"]) == (200, 1)
    heard = await site.status(third)
    assert (await heard.json())["position"] == 1
    ticket = site.room.tokens.read(cookie_of(heard).partition("=")[2])
    assert ticket.order < rows[0]["order"]
    assert (await (await site.status(first)).json())["position"] == 2
    assert (await (await site.status(second)).json())["position"] == 3
    assert len(inside) == 3


async def test_who_did_what_is_kept(site):
    """Changes, moves, releases and resets, latest first, by the name that the caller gives."""
    for _ in range(5):
        await site.check()
    rows = (await (await site.ops.get(path(site, "/waiting"), headers=TOKEN)).json())["waiting"]
    head, tail = (row["visitor"] for row in rows)
    named = {**TOKEN, "X-Waitroom-Operator": "night shift"}
    await site.ops.patch(path(site), json={"message": "soon"}, headers=named)
    await site.ops.post(path(site, f"/visitors/{tail}/move"), json={"position": 1}, headers=named)
    await site.ops.post(path(site, f"/visitors/{head}/release"), headers=TOKEN)
    await site.ops.post(path(site, "/reset"), headers=TOKEN)
    log = (await (await site.ops.get(path(site, "/log"), headers=TOKEN)).json())["log"]
    assert [(act["by"], act["what"], act["visitor"], act["detail"]) for act in log] == [
        ("api", "reset", "", "1"),
        ("api", "release", head, ""),
        ("night shift", "move", tail, "2 to 1"),
        ("night shift", "change", "", '{"message": "soon"}'),
    ]


@pytest.mark.parametrize(
    "body", [{}, {"position": 0}, {"position": 1.5}, {"position": True}, {"to": 1}]
)
async def test_a_position_is_a_whole_number(site, body):
    """Anything else is named and changes nothing."""
    where = path(site, f"/visitors/{'a' * 22}/move")
    reply = await site.ops.post(where, json=body, headers=TOKEN)
    assert (reply.status, "position" in (await reply.json())["errors"][0]) == (422, True)


async def test_nobody_is_moved_who_is_not_in_line(site):
    """404 for somebody inside and for somebody unknown."""
    await site.check()
    rows = (await (await site.ops.get(path(site, "/sessions"), headers=TOKEN)).json())["sessions"]
    for visitor in (rows[0]["visitor"], "a" * 22):
        where = path(site, f"/visitors/{visitor}/move")
        reply = await site.ops.post(where, json={"position": 1}, headers=TOKEN)
        assert reply.status == 404


async def test_a_setting_of_a_later_version_takes_no_other_along(site):
    """A replica that went back a version keeps to the cap that was changed meanwhile."""
    await site.room.store.configure({"total_active_users": 1, "of_a_later_version": True}, by="x")
    room = await (await site.ops.get(path(site), headers=TOKEN)).json()
    assert room["settings"]["total_active_users"] == 1


async def test_a_setting_that_the_file_does_not_allow_takes_no_other_along(site):
    """The file was changed under it: what is paused is shown as paused, and can be resumed."""
    await site.room.store.configure({"heartbeat_timeout": 20, "queue_all": True}, by="x")
    room = await (await site.ops.get(path(site), headers=TOKEN)).json()
    assert (room["settings"]["queue_all"], room["settings"]["claim_window"]) == (True, 30)
    reply = await site.ops.post(path(site, "/resume"), headers=TOKEN)
    assert (reply.status, (await reply.json())["settings"]["queue_all"]) == (200, False)
    reply = await site.ops.patch(path(site), json={"heartbeat_timeout": None}, headers=TOKEN)
    assert (reply.status, (await reply.json())["changed"]) == (200, {})
