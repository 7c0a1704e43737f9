"""Look-ups of stays and reports, in each kind of database."""

import csv
import io
import json
from dataclasses import replace

import pytest
from sqlalchemy import event, text

from sidecar.app.routes import Services
from sidecar.history import lookups
from sidecar.history.model import Period, StreamEvent, read_period
from sidecar.history.report import make_report
from sidecar.http.problems import ProblemError
from sidecar.kit.errors import InputError
from sidecar.storage.sql import database as sql
from sidecar.visitors.visitor_number import visitor_number
from tests.support.visitors import go_in, queue

HOUR = 3_600_000


@pytest.fixture
async def busy(record, database, turn):
    """Record a room: one visitor was inside and left, one was admitted after 12 s, one gave up, two
    wait."""
    it = await record(database.url)
    inside = await go_in(it.room.store)
    turn.forward(1)
    it.waits, it.left, it.third, it.fourth = await queue(it.room.store, 4)
    turn.forward(2)
    for ticket in (it.waits, it.left, it.third, it.fourth):
        await it.room.store.beat(ticket)
    await it.room.store.leave(it.left.visitor)
    await it.room.store.leave(inside.visitor)
    turn.forward(10)
    for ticket in (it.waits, it.third, it.fourth):
        await it.room.store.beat(ticket)
    await it.record()
    it.period = Period(turn() - HOUR, turn() + 1)
    return it


async def test_one_visitors_stay_and_place_over_time(busy):
    """A visitor moves up when one ahead gives up, and when one is called."""
    told = await lookups.find_visitor(busy.history, busy.room.name, busy.third.visitor)
    assert (told.stay.state, told.stay.end_reason) == ("waiting", None)
    assert (told.stay.first_position, told.stay.queue_order) == (3, busy.third.order)
    assert [place.position for place in told.places] == [3, 2, 1]
    assert [event.kind for event in told.events] == ["joined"]
    told = await lookups.find_visitor(busy.history, busy.room.name, busy.waits.visitor)
    assert told.stay.state == "inside"
    assert [event.kind for event in told.events] == ["joined", "called", "admitted"]
    assert await lookups.find_visitor(busy.history, busy.room.name, "a" * 22) is None


async def test_a_visitor_is_looked_up_by_number(record, database):
    """A number finds its own ids only: _ is no wildcard, and case matters."""
    it = await record(database.url, total_active_users=0)
    one, twin = "a_b-YzA" + "1" * 15, "a_b-YzB" + "2" * 15
    others = [start + "A" + "3" * 15 for start in ("axb-Yz", "A_B-yZ", "a_b-Y_", "a_b-Z0")]
    for visitor in (one, *others):
        await it.room.store.enter(visitor)
    await it.record()
    for visitor in (one, *others):
        found = await lookups.find_visitor(it.history, it.room.name, visitor_number(visitor))
        assert found.visitor == visitor
    assert await it.history.find_by_number("another room", visitor_number(one)) == []
    with pytest.raises(ProblemError) as raised:
        await lookups.find_visitor(it.history, it.room.name, "0000-0000")
    assert raised.value.kind.status == 404
    await it.room.store.enter(twin)
    await it.record()
    with pytest.raises(ProblemError) as raised:
        await lookups.find_visitor(it.history, it.room.name, visitor_number(one))
    assert (raised.value.kind.status, raised.value.members["visitors"]) == (409, [one, twin])


async def test_a_number_is_looked_up_by_the_index(record, sqlite):
    """On SQLite a look-up by number uses the index."""
    it = await record(sqlite.url, total_active_users=0)
    [ticket] = await queue(it.room.store, 1)
    await it.record()
    asked = []
    event.listen(
        it.history._engine.sync_engine, "before_cursor_execute", lambda *call: asked.append(call)
    )
    await it.history.find_by_number(it.room.name, visitor_number(ticket.visitor))
    _, _, statement, values, *_ = next(call for call in asked if "waitroom_entries" in call[2])
    async with sql.begin(it.history._engine) as connection:
        explained = await connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", values)
        plan = " ".join(row[-1] for row in explained)
    assert "room=? AND visitor>? AND visitor<?" in plan


async def test_the_place_over_time_has_a_bound(busy, monkeypatch):
    """With too many visitors ahead only the positions over time are left out."""
    monkeypatch.setattr(lookups, "AHEAD_LIMIT", 1)
    told = await lookups.find_visitor(busy.history, busy.room.name, busy.third.visitor)
    assert (told.places, told.stay.first_position) == ([], 3)
    monkeypatch.setattr(lookups, "AHEAD_LIMIT", 2)
    told = await lookups.find_visitor(busy.history, busy.room.name, busy.third.visitor)
    assert len(told.places) == 3


async def test_ids_that_differ_in_case_are_two_visitors(record, database, turn):
    """Ids that differ in case are two visitors, on MariaDB too."""
    it = await record(database.url, total_active_users=0)
    for visitor in ("a" * 22, "A" * 22):
        await it.room.store.enter(visitor)
    await it.record()
    assert len([e async for e in it.history.read_stays(it.room.name, Period(0, 2 * turn()))]) == 2
    entry = await it.history.find_stay(it.room.name, "A" * 22)
    assert (entry.visitor, entry.first_position) == ("A" * 22, 2)


async def test_a_period_is_reported(busy):
    """A report counts five stays, one at once, and no inversion."""
    told = await make_report(busy.history, busy.room.name, busy.period)
    counts = told.stays, told.admitted_at_once, told.admitted_after_wait, told.waiting
    assert counts == (5, 1, 1, 2)
    assert (told.abandoned, told.abandonment, told.inversions) == (1, 0.25, 0)
    assert (told.wait_p50, told.gave_up_after_p50) == (12, 2)
    later = Period(busy.period.to_ms, busy.period.to_ms + HOUR)
    assert (await make_report(busy.history, busy.room.name, later)).stays == 0
    assert await make_report(busy.history, busy.room.name, busy.period, limit=4) is None


async def test_stays_are_listed_a_page_at_a_time(busy):
    """Stays are listed by when they began, page by page."""

    async def page(**options):
        found = busy.history.read_stays(busy.room.name, busy.period, **options)
        return [stay.visitor async for stay in found]

    whole = await page()
    assert len(whole) == 5
    assert await page(limit=2) + await page(limit=2, offset=2) + await page(offset=4) == whole
    assert set(whole[1:]) == {t.visitor for t in (busy.waits, busy.left, busy.third, busy.fourth)}


@pytest.mark.full
async def test_a_look_up_takes_one_partition(record, servers):
    """On MariaDB a look-up reads the partition of its room only."""
    from tests.support.databases import Mariadb

    it = await record(servers(Mariadb).url, total_active_users=0)
    [ticket] = await queue(it.room.store, 1)
    await it.record()
    where = f"room = '{it.room.name}' AND visitor = '{ticket.visitor}'"
    async with sql.begin(it.history._engine) as connection:
        for table in ("waitroom_entries", "waitroom_events"):
            explain = text(f"EXPLAIN PARTITIONS SELECT * FROM {table} WHERE {where}")
            row = (await connection.execute(explain)).mappings().one()
            assert row["partitions"].startswith("p")
            assert "," not in row["partitions"]
            assert row["key"] in {"PRIMARY", "ix_waitroom_events_visitor"}


# What depends on no database ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "end", "period"),
    [
        (None, None, Period(1_800_000_000_000 - 24 * HOUR, 1_800_000_000_000)),
        ("2h", "30m", Period(1_800_000_000_000 - 2 * HOUR, 1_800_000_000_000 - HOUR // 2)),
        ("1970-01-02", "now", Period(24 * HOUR, 1_800_000_000_000)),
        ("1970-01-02T00:00:00+01:00", "1970-01-02T00:00Z", Period(23 * HOUR, 24 * HOUR)),
    ],
)
def test_periods_are_read(start, end, period):
    """Periods are read from times with and without a zone, and from how long ago."""
    assert read_period(start, end, now_ms=1_800_000_000_000) == period


@pytest.mark.parametrize(
    ("start", "end", "named"),
    [
        ("soon", None, "from: write a time"),
        (None, "2026-13-01", "to: write a time"),
        ("1h", "2h", "from: must be before to"),
        ("9" * 400 + "d", None, "from: write a time"),
    ],
)
def test_a_wrong_period_is_named(start, end, named):
    """A wrong period is named, with what is allowed."""
    with pytest.raises(InputError, match=named):
        read_period(start, end, now_ms=1_800_000_000_000)


def test_csv_has_a_header_and_no_formulas():
    """CSV has a header, and formulas are quoted."""
    written = lookups.format_csv(
        [{"by": "=1+1", "n": -3, "none": None}, {"by": "x,y", "n": 1, "none": 2}]
    )
    rows = list(csv.DictReader(io.StringIO(written)))
    assert rows == [{"by": "'=1+1", "n": "-3", "none": ""}, {"by": "x,y", "n": "1", "none": "2"}]
    assert lookups.format_csv([]) == ""


# Through the ops listener -------------------------------------------------------------------------


async def test_the_ops_listener_answers(record, sqlite, turn, aiohttp_client):
    """The endpoints answer JSON and CSV, name wrong parameters, and are a 404 without a history."""
    from sidecar.app.routes import create_ops_app
    from sidecar.rooms.service import WaitingRooms
    from sidecar.settings.model import Settings

    token = {"Authorization": "Bearer admin-token-for-tests"}
    it = await record(sqlite.url, total_active_users=0)
    [ticket] = await queue(it.room.store, 1)
    await it.room.store.configure({"message": "soon"}, by="night shift")
    await it.record()
    turn.forward(1)
    settings = Settings(
        secret_keys=["k" * 32],
        admin_token="admin-token-for-tests",
        rooms={it.room.name: it.room.file_settings},
    )
    bare_services = Services(rooms=WaitingRooms([it.room]), metrics=it.metrics)
    services = replace(bare_services, history=it.history)
    ops = await aiohttp_client(create_ops_app(services, settings, []))
    bare = await aiohttp_client(create_ops_app(bare_services, settings, []))

    async def get(path, client=ops, headers=token):
        reply = await client.get(f"/admin/rooms/{it.room.name}/{path}", headers=headers)
        return reply.status, reply.content_type, await reply.text()

    status, _, body = await get(f"visitors/{ticket.visitor}/history")
    assert (status, json.loads(body)["stay"]["state"]) == (200, "waiting")
    number = visitor_number(ticket.visitor)
    assert json.loads((await get(f"visitors/{number}/history"))[2])["visitor"] == ticket.visitor
    assert (await get("visitors/0000-0000/history"))[0] == 404
    gone = "b" * 22
    await it.history.write(
        it.room.name, [StreamEvent(turn(), 0, "admitted", gone, "at_once", turn())]
    )
    for visitor, state in ((ticket.visitor, "waiting"), (gone, "recorded")):
        for asked in (visitor, visitor_number(visitor)):
            reply = await ops.get("/admin/search", params={"q": asked}, headers=token)
            (hit,) = (await reply.json())["hits"]
            assert (hit["id"], hit["of"], hit["state"]) == (visitor, it.room.name, state)
    status, kind, body = await get("stays?format=csv")
    assert (status, kind, body.count("\n")) == (200, "text/csv", 2)
    assert (
        json.loads((await get("stays?from=2h&limit=1"))[2])["stays"][0]["visitor"] == ticket.visitor
    )
    assert json.loads((await get("report"))[2])["stays"] == 1
    assert json.loads((await get("estimates?step=60"))[2])["steps"] == []
    assert (await get("estimates?format=csv"))[1] == "text/csv"
    assert (await get("estimates?step=1"))[0] == 422
    status, _, body = await get("changes?from=1970-01-01&to=2100-01-01")
    change = json.loads(body)["changes"][0]
    assert (change["by"], change["changes"]) == ("night shift", None)  # an earlier value is unknown
    assert (await get("changes?after=12"))[0] == 422
    assert (await get(f"visitors/{'a' * 22}/history"))[0] == 404
    assert (await get("report?from=never"))[0] == 422
    assert (await get("report?format=xml"))[0] == 422
    assert (await get("report", headers={}))[0] == 401
    status, _, body = await get("report", client=bare)
    assert (status, "set history" in body) == (404, True)
    assert (await get("report?from=never", client=bare))[0] == 404
    assert (await get("stays?format=xml", client=bare))[0] == 404
