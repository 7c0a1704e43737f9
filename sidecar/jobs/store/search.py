"""Jobs in SQL, searched: a page at a time, newest first, and counted.

Owner, target and time are in indexes. What is not, the last answer's status and the beginning of an
id, is looked for among so many jobs at a time: no question reads all of a large table.
"""

from typing import Any

from sqlalchemy import ColumnElement, false, func, or_, select

from sidecar.jobs.model import ID_LENGTH, JobPage, JobQuery
from sidecar.jobs.store.tables import FIND, WORD, job_of, jobs
from sidecar.storage.sql.transactions import Transactions

#: Jobs that are looked through for one page of a narrow query.
WINDOW = 5000
#: Jobs are counted up to here.
MOST_COUNTED = 10_000

_NEWEST = (jobs.c.created_ms.desc(), jobs.c.id.desc())
_AT = (jobs.c.created_ms, jobs.c.id)


class JobSearch:
    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def page(self, query: JobQuery) -> JobPage:
        """Without their bodies."""
        end = await self._end(query)
        wanted = [*_base(query), *_rest(query), *_until(end)]
        # The ids alone are in the index: MariaDB would read all rows of earlier pages.
        ids = select(jobs.c.id).where(*wanted).order_by(*_NEWEST).limit(query.limit).subquery()
        rows = await self._transactions.read(
            FIND.join(ids, ids.c.id == jobs.c.id).order_by(*_NEWEST)
        )
        found = [job_of(row) for row in rows]
        if len(found) == query.limit:
            return JobPage(found, (found[-1].created_ms, found[-1].id))
        return JobPage(found, end)

    async def count(self, query: JobQuery) -> tuple[int, tuple[int, str] | None]:
        """How many there are, MOST_COUNTED at most, and of a narrow query within its WINDOW; and
        behind which the others are, if there are others."""
        wanted = [*_base(query), *_rest(query)]
        end = await self._end(query)
        if not query.is_narrow:
            end = await self._nth(wanted, MOST_COUNTED)
        [row] = await self._transactions.read(
            select(func.count()).select_from(jobs).where(*wanted, *_until(end))
        )
        return int(row[0]), end

    async def _end(self, query: JobQuery) -> tuple[int, str] | None:
        """The last job that a narrow query looks at; None: it looks at all."""
        return await self._nth(_base(query), WINDOW) if query.is_narrow else None

    async def _nth(self, wanted: list[ColumnElement[bool]], n: int) -> tuple[int, str] | None:
        found = select(*_AT).where(*wanted).order_by(*_NEWEST).offset(n - 1).limit(1)
        rows = await self._transactions.read(found)
        return (rows[0].created_ms, rows[0].id) if rows else None


def _base(query: JobQuery) -> list[ColumnElement[bool]]:
    """What indexes have."""
    given: dict[str, Any] = {"owner": query.owner, "target": query.target}
    if len(query.id) == ID_LENGTH:
        given["id"] = query.id
    wanted = {name: value for name, value in given.items() if value is not None}
    ms, last = query.after or (0, "-")
    words = (*wanted.values(), *query.states, last, query.id or "-")
    if not all(WORD.match(value) for value in words):
        return [false()]
    found: list[ColumnElement[bool]] = [jobs.c[name] == value for name, value in wanted.items()]
    if query.from_ms is not None:
        found.append(jobs.c.created_ms >= query.from_ms)
    if query.to_ms is not None:
        found.append(jobs.c.created_ms < query.to_ms)
    if query.after is not None:
        found += [jobs.c.created_ms <= ms, or_(jobs.c.created_ms < ms, jobs.c.id < last)]
    return found


def _rest(query: JobQuery) -> list[ColumnElement[bool]]:
    found: list[ColumnElement[bool]] = []
    if query.states:
        found.append(jobs.c.state.in_(sorted(query.states)))
    if query.statuses is not None:
        found.append(jobs.c.status.between(*query.statuses))
    if 0 < len(query.id) < ID_LENGTH:
        # Not LIKE, for which SQLite takes A for a.
        found.append(func.substr(jobs.c.id, 1, len(query.id)) == query.id)
    return found


def _until(end: tuple[int, str] | None) -> list[ColumnElement[bool]]:
    if end is None:
        return []
    ms, last = end
    return [jobs.c.created_ms >= ms, or_(jobs.c.created_ms > ms, jobs.c.id >= last)]
