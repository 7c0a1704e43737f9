"""The jobs' database, by subject. Every method raises DatabaseError when the database does not
answer, or refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sidecar.jobs.store.attempts import AttemptRepository
from sidecar.jobs.store.backlog import BacklogRepository
from sidecar.jobs.store.callbacks import CallbackRepository
from sidecar.jobs.store.history import HistoryRepository
from sidecar.jobs.store.jobs import JobRepository
from sidecar.jobs.store.retention import RetentionRepository
from sidecar.jobs.store.tables import JOBS
from sidecar.jobs.store.targets import TargetRepository
from sidecar.kit.sql import database as sql
from sidecar.kit.sql.transactions import Transactions

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine


class JobStore:
    def __init__(self, engine: AsyncEngine) -> None:
        self.engine = engine
        self.transactions = Transactions(engine)
        self.jobs = JobRepository(self.transactions)
        self.attempts = AttemptRepository(self.transactions)
        self.backlog = BacklogRepository(self.transactions)
        self.retention = RetentionRepository(self.transactions)
        self.callbacks = CallbackRepository(self.transactions)
        self.targets = TargetRepository(self.transactions)
        self.history = HistoryRepository(self.transactions)

    async def check(self) -> None:
        """Raises DatabaseError unless the tables are what this version reads and writes."""
        await sql.check(self.engine, JOBS, self.migrate)

    async def migrate(self) -> tuple[str | None, str]:
        """The revisions of the tables before and after."""
        return await sql.migrate(self.engine, JOBS)

    async def close(self) -> None:
        await self.engine.dispose()
