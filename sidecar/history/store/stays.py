"""The history in SQL: writing, tidying and looking up stays, events and changes.

Every method raises DatabaseError if the database is unavailable or refuses.
"""

import json
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import fields
from typing import Any

from sqlalchemy import Table, and_, delete, func, insert, or_, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from sidecar.history.model import Change, Entry, Event, Period
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
from sidecar.visitors.visitor_number import id_prefix, visitor_number

Fold = Callable[[Entry | None, Event], Entry | None]

#: Visitors in one IN (…).
_AT_ONCE = 500
#: Rows that a look-up of many fetches at a time.
_PAGE = 2000
#: How far back to look for visitors ahead, ms, and the share of them that is enough to stop there:
#: some who came back since count as having joined later.
_BACK = ((3_600_000, 1.0), (86_400_000, 0.9), (1 << 62, 0.0))
_FIELDS, _EVENT_FIELDS, _CHANGE_FIELDS = (
    tuple(field.name for field in fields(kind)) for kind in (Entry, Event, Change)
)
_COLUMNS = [entries.c[name] for name in _FIELDS]
_RESET = "reset"

#: PostgreSQL's driver sends rows one by one; one document with all rows is ten times as fast.
_FROM_ROWS = "FROM json_populate_recordset(NULL::{0}, CAST(:rows AS json))"
_INSERT_ROWS = text("INSERT INTO waitroom_events SELECT * " + _FROM_ROWS.format("waitroom_events"))
_UPSERT_ROWS = text(
    "INSERT INTO waitroom_entries ({0}) SELECT {0} {1} ON CONFLICT (room, visitor) "
    "DO UPDATE SET {2}".format(
        ", ".join(["room", *_FIELDS]),
        _FROM_ROWS.format("waitroom_entries"),
        ", ".join(f"{name} = EXCLUDED.{name}" for name in _FIELDS if name != "visitor"),
    )
)


class History:
    """The history of all rooms."""

    def __init__(self, engine: AsyncEngine, *, partitions: int) -> None:
        self._engine = engine
        self._partitions = partitions
        self._sql = Transactions(engine)
        self._has_documents = engine.dialect.name == "postgresql"
        self._insert = _INSERT_ROWS if self._has_documents else insert(events)
        self._upsert = _UPSERT_ROWS if self._has_documents else self._sql.upsert(entries)

    async def check(self) -> None:
        """Raise DatabaseError unless the tables are of this version."""
        await sql.check(self._engine, HISTORY, self.migrate)

    async def migrate(self) -> tuple[str | None, str]:
        """Migrate the tables. Return their revisions before and after."""
        return await sql.migrate(self._engine, HISTORY, partitions=self._partitions)

    async def close(self) -> None:
        await self._engine.dispose()

    # Writing ----------------------------------------------------------------------------------

    async def write(self, room: str, batch: Sequence[Event], fold: Fold) -> int:
        """Write events of one room, in their order, and the stays that `fold` makes of them, in one
        transaction. If `fold` returns None, the visitor's stay and events are deleted. Events that
        are there already are skipped. Return how many were new."""
        async with sql.begin(self._engine) as connection:
            ids = select(events.c.ms, events.c.seq).where(
                events.c.room == room, events.c.ms.between(batch[0].ms, batch[-1].ms)
            )
            written = {(ms, seq) for ms, seq in await connection.execute(ids)}
            new = [event for event in batch if (event.ms, event.seq) not in written]
            if not new:
                return 0
            await self._put(connection, self._insert, [_event_row(room, e) for e in new])
            acts = [event for event in new if event.kind == "operator"]
            if acts:
                await connection.execute(insert(changes), [_change_row(room, e) for e in acts])
            for run in _runs(new):
                await self._fold(connection, room, run, fold)
        return len(new)

    async def _fold(
        self, connection: AsyncConnection, room: str, run: list[Event], fold: Fold
    ) -> None:
        """Update stays by events up to a reset of the queue, which ends every waiting stay."""
        stays: dict[str, Entry | None] = {
            **await _load(connection, room, list({e.visitor for e in run if e.visitor}))
        }
        for event in run:
            if event.visitor:
                stays[event.visitor] = fold(stays.get(event.visitor), event)
        rows = [{"room": room, **_values(entry, _FIELDS)} for entry in stays.values() if entry]
        if rows:
            await self._put(connection, self._upsert, rows)
        if gone := [visitor for visitor, entry in stays.items() if entry is None]:
            for table in (entries, events):
                theirs = and_(table.c.room == room, table.c.visitor.in_(gone))
                await connection.execute(delete(table).where(theirs))
        if _is_reset(run[-1]):
            waits = and_(entries.c.called_ms.is_(None), entries.c.admitted_ms.is_(None))
            await connection.execute(
                update(entries)
                .where(entries.c.room == room, entries.c.ended_ms.is_(None), waits)
                .values(ended_ms=run[-1].at_ms, end_reason=_RESET, changed_ms=run[-1].at_ms)
            )

    async def _put(
        self, connection: AsyncConnection, statement: Any, rows: list[dict[str, Any]]
    ) -> None:
        values = {"rows": json.dumps(rows)} if self._has_documents else rows
        await connection.execute(statement, values)

    # Tidying ----------------------------------------------------------------------------------

    async def silent(self, room: str, *, before_ms: int, limit: int) -> list[str]:
        """Return visitors whose stay has not ended and had no event since `before_ms`."""
        found = (
            select(entries.c.visitor)
            .where(*_silent(room, before_ms))
            .order_by(entries.c.changed_ms)
            .limit(limit)
        )
        return [visitor for (visitor,) in await self._sql.read(found)]

    async def settle(
        self, room: str, *, stuck: Sequence[str], here: Sequence[str], now_ms: int, before_ms: int
    ) -> int:
        """Close the stays of `stuck` and mark those of `here` as seen now, unless they had an event
        since `before_ms`. Return how many were closed."""
        silent = _silent(room, before_ms)
        async with sql.begin(self._engine) as connection:
            if here:
                seen = update(entries).where(*silent, entries.c.visitor.in_(here))
                await connection.execute(seen.values(changed_ms=now_ms))
            if not stuck:
                return 0
            closed = await connection.execute(
                update(entries)
                .where(*silent, entries.c.visitor.in_(stuck))
                .values(ended_ms=now_ms, end_reason="stuck", changed_ms=now_ms)
            )
            return int(closed.rowcount)

    async def retire(self, room: str, *, before_ms: int, limit: int, keep: bool) -> int:
        """Delete old stays and events, at most `limit` of each, oldest first; `keep`: move them to
        the archive. Return how many. Rows that two replicas move at the same time move once."""
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
                still = entries.c.ended_ms < before_ms  # unless the visitor came back meanwhile
                which = (entries.c.room == room, entries.c.visitor.in_(visitors), still)
                if keep:  # an earlier stay of the same visitor may be there
                    again = entries_archive.c.visitor.in_(visitors)
                    await connection.execute(
                        delete(entries_archive).where(entries_archive.c.room == room, again)
                    )
                await _take_out(connection, entries, entries_archive, which, keep=keep)
            if ids:
                # These are the oldest events: all up to the last of them.
                ms, seq = ids[-1]
                until = or_(events.c.ms < ms, and_(events.c.ms == ms, events.c.seq <= seq))
                await _take_out(
                    connection, events, events_archive, (events.c.room == room, until), keep=keep
                )
        return len(visitors) + len(ids)

    # Looking up -------------------------------------------------------------------------------

    async def entry(self, room: str, visitor: str) -> Entry | None:
        async with sql.begin(self._engine) as connection:
            return (await _load(connection, room, [visitor])).get(visitor)

    async def numbered(self, room: str, number: str) -> list[str]:
        """Return the ids that have this visitor number."""
        prefix, visitor = id_prefix(number), entries.c.visitor
        if self._has_documents:  # PostgreSQL: the order of text depends on its collation
            begins = visitor.startswith(prefix, autoescape=True)
        else:  # every character of an id sorts below ~, so the index serves
            begins = and_(visitor >= prefix, visitor < prefix + "~")
        found = select(visitor).where(entries.c.room == room, begins).order_by(visitor)
        rows = await self._sql.read(found)
        return [id_ for (id_,) in rows if visitor_number(id_) == number]

    async def events_of(self, room: str, visitor: str, *, limit: int) -> list[Event]:
        """Return the latest events of one visitor, oldest first."""
        found = (
            select(*(events.c[name] for name in _EVENT_FIELDS))
            .where(events.c.room == room, events.c.visitor == visitor)
            .order_by(events.c.ms.desc(), events.c.seq.desc())
            .limit(limit)
        )
        rows = await self._sql.read(found)
        return [
            Event(ms, seq, kind, visitor, why, at_ms, json.loads(more))
            for ms, seq, kind, visitor, why, at_ms, more in reversed(rows)
        ]

    async def ahead_of(
        self, room: str, entry: Entry, *, most: int
    ) -> list[tuple[int, int | None]] | None:
        """Return since when and until when (None: still) visitors of a lower order waited at the
        same time; None if there are more than `most`. Visitors who joined long before are looked
        for only if the stay's first position shows that some are missing."""
        if entry.queued_ms is None or entry.queue_order is None:
            return []
        gone_ms = func.coalesce(entries.c.called_ms, entries.c.ended_ms)
        found = select(entries.c.queued_ms, gone_ms).where(
            entries.c.room == room,
            entries.c.visitor != entry.visitor,
            entries.c.queue_order < entry.queue_order,
            entries.c.queued_ms.is_not(None),
            or_(gone_ms.is_(None), gone_ms >= entry.queued_ms),
            # Implied by the condition above, and indexed, as is joined_ms.
            or_(entries.c.ended_ms.is_(None), entries.c.ended_ms >= entry.queued_ms),
        )
        until_ms = entry.called_ms or entry.ended_ms
        if until_ms is not None:
            found = found.where(entries.c.joined_ms <= until_ms, entries.c.queued_ms <= until_ms)
        joined_ms = entry.joined_ms or entry.queued_ms
        is_known = entry.returns == 0 and entry.moved_ms is None
        ahead = entry.first_position - 1 if entry.first_position and is_known else None
        async with sql.begin(self._engine) as connection:
            for back_ms, share in _BACK[1:] if ahead is None else _BACK:
                recent = found.where(entries.c.joined_ms >= joined_ms - back_ms)
                rows = (await connection.execute(recent.limit(most + 1))).all()
                if len(rows) > most:
                    return None
                if ahead is None or len(rows) >= share * ahead:
                    break
        return [(queued, gone) for queued, gone in rows]

    async def entries(
        self, room: str, period: Period, *, limit: int | None = None, offset: int = 0
    ) -> AsyncIterator[Entry]:
        """Return the stays that began in a period, oldest first."""
        began_ms = entries.c.joined_ms
        found = (
            select(*_COLUMNS)
            .where(entries.c.room == room, began_ms >= period.from_ms, began_ms < period.to_ms)
            .order_by(began_ms, entries.c.visitor)
            .offset(offset)
        )
        if limit is not None:
            found = found.limit(limit)
        async with sql.begin(self._engine, is_long=True) as connection:
            rows = await connection.stream(found.execution_options(yield_per=_PAGE))
            async for row in rows:
                yield Entry(*row)

    async def changes(
        self, room: str, period: Period, *, limit: int, before: tuple[int, int] | None = None
    ) -> list[Change]:
        """Return operators' actions, latest first. `before`: ms and seq of the last one on the page
        before."""
        ms, seq = before or (period.to_ms, 0)
        found = (
            select(*(changes.c[name] for name in _CHANGE_FIELDS))
            .where(changes.c.room == room, changes.c.ms >= period.from_ms)
            .where(changes.c.ms < period.to_ms)
            .where(or_(changes.c.ms < ms, and_(changes.c.ms == ms, changes.c.seq < seq)))
            .order_by(changes.c.ms.desc(), changes.c.seq.desc())
            .limit(limit)
        )
        return [Change(*row) for row in await self._sql.read(found)]


def _silent(room: str, before_ms: int) -> tuple[Any, ...]:
    """Return the conditions of stays that have not ended, and had no event since `before_ms`."""
    c = entries.c
    return (c.room == room, c.ended_ms.is_(None), c.changed_ms < before_ms)


async def _load(connection: AsyncConnection, room: str, visitors: list[str]) -> dict[str, Entry]:
    stays: dict[str, Entry] = {}
    for start in range(0, len(visitors), _AT_ONCE):
        part = visitors[start : start + _AT_ONCE]
        rows = await connection.execute(
            select(*_COLUMNS).where(entries.c.room == room, entries.c.visitor.in_(part))
        )
        stays.update((row.visitor, Entry(*row)) for row in rows)
    return stays


async def _take_out(
    connection: AsyncConnection, table: Table, archive: Table, which: Any, *, keep: bool
) -> None:
    if keep:
        columns = [column.name for column in table.columns]
        await connection.execute(
            archive.insert().from_select(columns, select(table).where(*which).with_for_update())
        )
    await connection.execute(delete(table).where(*which))


def _runs(batch: Sequence[Event]) -> list[list[Event]]:
    """Split the events after each reset of the queue."""
    runs: list[list[Event]] = [[]]
    for event in batch:
        runs[-1].append(event)
        if _is_reset(event):
            runs.append([])
    return [run for run in runs if run]


def _is_reset(event: Event) -> bool:
    return event.kind == "operator" and event.why == _RESET


def _event_row(room: str, event: Event) -> dict[str, Any]:
    more = json.dumps(event.more, separators=(",", ":"))
    return {"room": room, **_values(event, _EVENT_FIELDS), "more": more}


def _change_row(room: str, event: Event) -> dict[str, Any]:
    return {
        "room": room,
        "ms": event.ms,
        "seq": event.seq,
        "at_ms": event.at_ms,
        "operator": event.more.get("by", ""),
        "action": event.why,
        "visitor": event.visitor,
        "detail": event.more.get("detail", ""),
    }


def _values(row: Entry | Event, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: getattr(row, name) for name in names}
