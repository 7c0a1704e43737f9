"""Stores the history in SQL: stays, events and operators' actions.

Every method raises DatabaseError if the database is unavailable or refuses a statement.
"""

import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import fields, replace
from typing import Any

from sqlalchemy import Row, Table, and_, delete, func, insert, or_, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from sidecar.history.model import Period, Promise, Stay, StreamEvent
from sidecar.history.stays import apply_event
from sidecar.history.store.tables import (
    HISTORY,
    changes,
    entries,
    entries_archive,
    events,
    events_archive,
)
from sidecar.storage.sql import database as sql
from sidecar.storage.sql.transactions import Transactions
from sidecar.visitors.estimate import estimate
from sidecar.visitors.model import QueueOutcome, Standing
from sidecar.visitors.visitor_number import get_id_prefix, visitor_number

#: How many rows a streamed query fetches at a time.
_STREAM_ROWS = 2000
#: The steps of a search for the visitors ahead of a visitor: how long before that visitor (ms) they
#: may have joined, and the share of them that is enough to end the search. Some of them cannot be
#: found, because visitors who left and returned count as having joined later.
_SEARCH_STEPS = ((3_600_000, 1.0), (86_400_000, 0.9), (1 << 62, 0.0))
_STAY_FIELDS, _EVENT_FIELDS = (
    [field.name for field in fields(kind)] for kind in (Stay, StreamEvent)
)
_COLUMNS = [entries.c[name] for name in _STAY_FIELDS]
_RESET = "reset"

#: Statements for PostgreSQL. They get all rows as one JSON document, because its driver would send
#: the rows one by one, which takes ten times as long.
_FROM_ROWS = "FROM json_populate_recordset(NULL::{0}, CAST(:rows AS json))"
_INSERT_ROWS = text("INSERT INTO waitroom_events SELECT * " + _FROM_ROWS.format("waitroom_events"))
_UPSERT_ROWS = text(
    "INSERT INTO waitroom_entries ({0}) SELECT {0} {1} ON CONFLICT (room, visitor) "
    "DO UPDATE SET {2}".format(
        ", ".join(["room", *_STAY_FIELDS]),
        _FROM_ROWS.format("waitroom_entries"),
        ", ".join(f"{name} = EXCLUDED.{name}" for name in _STAY_FIELDS if name != "visitor"),
    )
)


class History:
    """The history of all rooms."""

    def __init__(self, engine: AsyncEngine, *, partitions: int) -> None:
        self._engine = engine
        self._partitions = partitions
        self._sql = Transactions(engine)
        self._is_postgresql = engine.dialect.name == "postgresql"
        self._insert = _INSERT_ROWS if self._is_postgresql else insert(events)
        self._upsert = _UPSERT_ROWS if self._is_postgresql else self._sql.upsert(entries)

    async def check(self) -> None:
        """Raise DatabaseError unless the tables have the schema of this version of Waitroom."""
        await sql.check_revision(self._engine, HISTORY, self.migrate)

    async def migrate(self) -> tuple[str | None, str]:
        """Migrate the tables. Return the revisions before and after."""
        return await sql.migrate(self._engine, HISTORY, partitions=self._partitions)

    async def close(self) -> None:
        await sql.close(self._engine)

    # Writing ----------------------------------------------------------------------------------

    async def write(self, room: str, batch: Sequence[StreamEvent]) -> int:
        """Write events of one room in their order, and the stays that these events change, in one
        transaction. Skip events that are already in the database. Return the number of new ones."""
        async with sql.begin(self._engine) as connection:
            ids = select(events.c.ms, events.c.seq).where(
                events.c.room == room, events.c.ms.between(batch[0].ms, batch[-1].ms)
            )
            written_ids = {(ms, seq) for ms, seq in await connection.execute(ids)}
            new_events = [event for event in batch if (event.ms, event.seq) not in written_ids]
            if not new_events:
                return 0
            rows = [_make_event_row(room, event) for event in new_events]
            await self._write_rows(connection, self._insert, rows)
            acts = (event for event in new_events if event.kind in {"operator", "site"})
            actions = [_make_action_row(room, event) for event in acts]
            if actions:
                await connection.execute(insert(changes), actions)
            part: list[StreamEvent] = []
            for event in new_events:
                part.append(event)
                if _is_reset(event) or event is new_events[-1]:
                    await self._change_stays(connection, room, part)
                    part = []
        return len(new_events)

    async def _change_stays(
        self, connection: AsyncConnection, room: str, part: list[StreamEvent]
    ) -> None:
        """Apply events to stays. If the last event is a reset, end all stays in the queue. If
        `apply_event` returns None for a stay, delete it with its events."""
        visitors = list({event.visitor for event in part if event.visitor})
        stays: dict[str, Stay | None] = {**await _load_stays(connection, room, visitors)}
        for event in part:
            if event.visitor:
                stays[event.visitor] = apply_event(stays.get(event.visitor), event)
        rows = [
            {"room": room, **{name: getattr(stay, name) for name in _STAY_FIELDS}}
            for stay in stays.values()
            if stay
        ]
        if rows:
            await self._write_rows(connection, self._upsert, rows)
        if unrecorded := [visitor for visitor, stay in stays.items() if stay is None]:
            for table in (entries, events):
                is_unrecorded = and_(table.c.room == room, table.c.visitor.in_(unrecorded))
                await connection.execute(delete(table).where(is_unrecorded))
        if _is_reset(part[-1]):
            is_waiting = and_(entries.c.called_ms.is_(None), entries.c.admitted_ms.is_(None))
            await connection.execute(
                update(entries)
                .where(entries.c.room == room, entries.c.ended_ms.is_(None), is_waiting)
                .values(ended_ms=part[-1].at_ms, end_reason=_RESET, changed_ms=part[-1].at_ms)
            )

    async def _write_rows(
        self, connection: AsyncConnection, statement: Any, rows: list[dict[str, Any]]
    ) -> None:
        values = {"rows": json.dumps(rows)} if self._is_postgresql else rows
        await connection.execute(statement, values)

    # Cleaning up ------------------------------------------------------------------------------

    async def find_inactive_visitors(self, room: str, *, before_ms: int, limit: int) -> list[str]:
        """Return visitors whose stay has not ended and had no event since `before_ms`."""
        query = (
            select(entries.c.visitor)
            .where(*_inactive_conditions(room, before_ms))
            .order_by(entries.c.changed_ms)
            .limit(limit)
        )
        return [visitor for (visitor,) in await self._sql.read(query)]

    async def close_inactive_stays(
        self, room: str, *, absent: list[str], present: list[str], now_ms: int, before_ms: int
    ) -> int:
        """Close the stays of `absent` visitors. Set the time of the last change of the stays of
        `present` visitors to now, so that they are not found again for a while. Skip stays with an
        event since `before_ms`. Return how many stays were closed."""
        is_inactive = _inactive_conditions(room, before_ms)
        async with sql.begin(self._engine) as connection:
            if present:
                is_present = entries.c.visitor.in_(present)
                await connection.execute(
                    update(entries).where(*is_inactive, is_present).values(changed_ms=now_ms)
                )
            if not absent:
                return 0
            result = await connection.execute(
                update(entries)
                .where(*is_inactive, entries.c.visitor.in_(absent))
                .values(ended_ms=now_ms, end_reason="stuck", changed_ms=now_ms)
            )
            return int(result.rowcount)

    async def retire(self, room: str, *, before_ms: int, limit: int, archive: bool) -> int:
        """Delete old stays and events, oldest first and at most `limit` of each, or move them to
        the archive. Return their number. Concurrent calls do not archive a row twice."""
        old_entries = (
            select(entries.c.visitor)
            .where(entries.c.room == room, entries.c.ended_ms < before_ms)
            .order_by(entries.c.ended_ms)
            .limit(limit)
        )
        old_events = (
            select(events.c.ms, events.c.seq)
            .where(events.c.room == room, events.c.ms < before_ms)
            .order_by(events.c.ms, events.c.seq)
            .limit(limit)
        )
        async with sql.begin(self._engine) as connection:
            visitors = list((await connection.execute(old_entries)).scalars())
            ids = [(ms, seq) for ms, seq in await connection.execute(old_events)]
            if visitors:
                # Check the end again, because the visitor may have returned meanwhile.
                is_old = entries.c.ended_ms < before_ms
                conditions = (entries.c.room == room, entries.c.visitor.in_(visitors), is_old)
                if archive:  # the archive may have an earlier stay of the same visitor
                    c = entries_archive.c
                    is_earlier = c.room == room, c.visitor.in_(visitors)
                    await connection.execute(delete(entries_archive).where(*is_earlier))
                copy_to = entries_archive if archive else None
                await _remove_rows(connection, entries, conditions, copy_to)
            if ids:
                # These are the oldest events, so delete all events up to the last of them.
                ms, seq = ids[-1]
                is_old = or_(events.c.ms < ms, and_(events.c.ms == ms, events.c.seq <= seq))
                event_conditions = (events.c.room == room, is_old)
                copy_to = events_archive if archive else None
                await _remove_rows(connection, events, event_conditions, copy_to)
        return len(visitors) + len(ids)

    # Looking up -------------------------------------------------------------------------------

    async def find_stay(self, room: str, visitor: str) -> Stay | None:
        """Return a visitor's stay, or None if no stay is recorded."""
        async with sql.begin(self._engine) as connection:
            return (await _load_stays(connection, room, [visitor])).get(visitor)

    async def find_by_number(self, room: str, number: str) -> list[str]:
        """Return the ids of the visitors who have this visitor number."""
        return [visitor for _, visitor in await self.find_in_rooms([room], number)]

    async def find_in_rooms(self, rooms: Sequence[str], number: str) -> list[tuple[str, str]]:
        """Return (room, id) of the visitors of these rooms who have this visitor number."""
        prefix, visitor = get_id_prefix(number), entries.c.visitor
        if self._is_postgresql:  # the order of its strings depends on the collation
            has_prefix = visitor.startswith(prefix, autoescape=True)
        else:  # a range uses the index; every character of an id sorts before ~
            has_prefix = and_(visitor >= prefix, visitor < prefix + "~")
        query = select(entries.c.room, visitor).where(entries.c.room.in_(rooms), has_prefix)
        rows = await self._sql.read(query.order_by(entries.c.room, visitor))
        return [(room, id_) for room, id_ in rows if visitor_number(id_) == number]

    async def find_events(self, room: str, visitor: str, *, limit: int) -> list[StreamEvent]:
        """Return the latest events of one visitor, oldest first."""
        query = (
            select(*(events.c[name] for name in _EVENT_FIELDS))
            .where(events.c.room == room, events.c.visitor == visitor)
            .order_by(events.c.ms.desc(), events.c.seq.desc())
            .limit(limit)
        )
        rows = reversed(await self._sql.read(query))
        return [replace(StreamEvent(*row), more=json.loads(row.more)) for row in rows]

    async def find_waits_ahead(
        self, room: str, stay: Stay, *, limit: int
    ) -> list[tuple[int, int | None]] | None:
        """Return when the visitors ahead (of a lower order) waited while the stay's visitor waited:
        (from_ms, to_ms) for each. to_ms is None for a visitor who still waits. Return None if there
        are more than `limit`. Search those who joined long before only if the stay's first position
        shows that some are missing."""
        if stay.queued_ms is None or stay.queue_order is None:
            return []
        gone_ms = func.coalesce(entries.c.called_ms, entries.c.ended_ms)
        query = select(entries.c.queued_ms, gone_ms).where(
            entries.c.room == room,
            entries.c.visitor != stay.visitor,
            entries.c.queue_order < stay.queue_order,
            entries.c.queued_ms.is_not(None),
            or_(gone_ms.is_(None), gone_ms >= stay.queued_ms),
            # The condition above implies this one, for which there is an index.
            or_(entries.c.ended_ms.is_(None), entries.c.ended_ms >= stay.queued_ms),
        )
        until_ms = stay.called_ms or stay.ended_ms
        if until_ms is not None:
            query = query.where(entries.c.joined_ms <= until_ms, entries.c.queued_ms <= until_ms)
        joined_ms = stay.joined_ms or stay.queued_ms
        is_exact = stay.first_position and stay.returns == 0 and stay.moved_ms is None
        ahead = (stay.first_position or 0) - 1 if is_exact else None
        async with sql.begin(self._engine) as connection:
            for back_ms, share in _SEARCH_STEPS[1:] if ahead is None else _SEARCH_STEPS:
                recent_query = query.where(entries.c.joined_ms >= joined_ms - back_ms)
                rows = (await connection.execute(recent_query.limit(limit + 1))).all()
                if len(rows) > limit:
                    return None
                if ahead is None or len(rows) >= share * ahead:
                    break
        return [(queued, gone) for queued, gone in rows]

    async def read_stays(
        self, room: str, period: Period, *, limit: int | None = None, offset: int = 0
    ) -> AsyncIterator[Stay]:
        """Yield the stays that began in a period, oldest first."""
        began_ms = entries.c.joined_ms
        query = (
            select(*_COLUMNS)
            .where(entries.c.room == room, began_ms >= period.from_ms, began_ms < period.to_ms)
            .order_by(began_ms, entries.c.visitor)
            .offset(offset)
        )
        if limit is not None:
            query = query.limit(limit)
        async with sql.begin(self._engine, is_long=True) as connection:
            rows = await connection.stream(query.execution_options(yield_per=_STREAM_ROWS))
            async for row in rows:
                yield Stay(*row)

    async def find_promises(
        self, room: str, period: Period, *, limit: int | None = None
    ) -> list[Promise]:
        """Return the wait estimates that the room made in a period, oldest first, for visitors who
        were admitted later and whom no operator moved."""
        c = entries.c
        is_of_stay = and_(c.room == events.c.room, c.visitor == events.c.visitor)
        query = (
            select(events.c.at_ms, events.c.more, c.admitted_ms)
            .join(entries, is_of_stay)
            .where(events.c.room == room, events.c.kind == "promised", c.moved_ms.is_(None))
            .where(events.c.ms >= period.from_ms, events.c.ms < period.to_ms)
            .where(c.queued_ms <= events.c.at_ms, c.admitted_ms >= events.c.at_ms)
            .order_by(events.c.ms, events.c.seq)
            .limit(limit)
        )
        promises = []
        async with sql.begin(self._engine, is_long=True) as connection:
            rows = await connection.stream(query.execution_options(yield_per=_STREAM_ROWS))
            async for at_ms, more, admitted_ms in rows:
                told = json.loads(more)
                standing = Standing(
                    QueueOutcome.WAITING,
                    at_ms,
                    wait_ms=int(told["wait"]),
                    calls=int(told["calls"]),
                    spread=int(told["error"]) / 1000,
                )
                if wait := estimate(standing):
                    promises.append(Promise(at_ms, wait, (admitted_ms - at_ms) / 1000))
        return promises

    async def read_changes(
        self, room: str, period: Period, *, limit: int, before: tuple[int, int] | None = None
    ) -> list[Row[Any]]:
        """Return operators' actions, latest first: all, or those before the (ms, seq) `before`."""
        ms, seq = before or (period.to_ms, 0)
        query = (
            select(changes)
            .where(changes.c.room == room, changes.c.ms >= period.from_ms)
            .where(changes.c.ms < period.to_ms)
            .where(or_(changes.c.ms < ms, and_(changes.c.ms == ms, changes.c.seq < seq)))
            .order_by(changes.c.ms.desc(), changes.c.seq.desc())
            .limit(limit)
        )
        return await self._sql.read(query)


def _inactive_conditions(room: str, before_ms: int) -> tuple[Any, ...]:
    """Return conditions for stays that have not ended and had no event since `before_ms`."""
    c = entries.c
    return (c.room == room, c.ended_ms.is_(None), c.changed_ms < before_ms)


async def _load_stays(connection: AsyncConnection, room: str, ids: list[str]) -> dict[str, Stay]:
    conditions = entries.c.room == room, entries.c.visitor.in_(ids)
    rows = await connection.execute(select(*_COLUMNS).where(*conditions))
    return {row.visitor: Stay(*row) for row in rows}


async def _remove_rows(
    connection: AsyncConnection, table: Table, conditions: Any, copy_to: Table | None
) -> None:
    if copy_to is not None:
        rows = select(table).where(*conditions).with_for_update()
        names = [column.name for column in table.columns]
        await connection.execute(copy_to.insert().from_select(names, rows))
    await connection.execute(delete(table).where(*conditions))


def _is_reset(event: StreamEvent) -> bool:
    return event.kind == "operator" and event.why == _RESET


def _make_event_row(room: str, event: StreamEvent) -> dict[str, Any]:
    values = {name: getattr(event, name) for name in _EVENT_FIELDS}
    return {"room": room, **values, "more": json.dumps(event.more, separators=(",", ":"))}


def _make_action_row(room: str, event: StreamEvent) -> dict[str, Any]:
    values = {name: getattr(event, name) for name in ("ms", "seq", "at_ms", "visitor")}
    operator, detail = (event.more.get(name, "") for name in ("by", "detail"))
    return {"room": room, **values, "operator": operator, "action": event.why, "detail": detail}
