"""The database of jobs and targets. Every method raises DatabaseError if the database is
unavailable or refuses a statement."""

from sqlalchemy import delete, select
from sqlalchemy.ext.asyncio import AsyncEngine

from sidecar.jobs.store.attempts import AttemptRepository
from sidecar.jobs.store.due_jobs import DueJobRepository
from sidecar.jobs.store.jobs import JobRepository, JobSearch
from sidecar.jobs.store.tables import JOBS, targets
from sidecar.storage.sql import database as sql
from sidecar.storage.sql.transactions import Transactions

#: How long a statement waits for a job that another transaction has locked, in seconds.
LOCK_TIMEOUT_S = 3


class JobStore:
    """The repositories of one database."""

    def __init__(self, engine: AsyncEngine) -> None:
        self.engine = engine
        self.transactions = Transactions(engine)
        self.jobs = JobRepository(self.transactions)
        self.search = JobSearch(self.transactions)
        self.attempts = AttemptRepository(self.transactions)
        self.due_jobs = DueJobRepository(self.transactions)
        self.targets = TargetRepository(self.transactions)

    async def check(self) -> None:
        """Raise DatabaseError unless the tables have the revision that this version needs."""
        await sql.check_revision(self.engine, JOBS, self.migrate)

    async def migrate(self) -> tuple[str | None, str]:
        """Migrate the tables, and return their revisions before and after."""
        return await sql.migrate(self.engine, JOBS)

    async def close(self) -> None:
        await sql.close(self.engine)


class TargetRepository:
    """The settings of targets that were changed or created at run time, as JSON."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions
        self._upsert = transactions.upsert(targets)

    async def all(self) -> dict[str, str]:
        """Return the settings of all targets that were changed or created, by name."""
        rows = await self._transactions.read(select(targets.c.name, targets.c.settings))
        return {row.name: row.settings for row in rows}

    async def put(self, name: str, settings: str, at_ms: int) -> None:
        row = {"name": name, "settings": settings, "changed_ms": at_ms}
        await self._transactions.change(self._upsert, row)

    async def delete(self, name: str) -> bool:
        """Delete a target's settings. Return False if it has none."""
        return await self._transactions.change(delete(targets).where(targets.c.name == name))
