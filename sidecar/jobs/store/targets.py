"""Targets that were changed or made at run time, in SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import delete, select

from sidecar.jobs.store.tables import targets

if TYPE_CHECKING:
    from sidecar.kit.sql.transactions import Transactions


class TargetRepository:
    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions
        self._upsert = transactions.upsert(targets)

    async def all(self) -> dict[str, str]:
        """Their settings by name, as they were put."""
        rows = await self._transactions.read(select(targets.c.name, targets.c.settings))
        return {row.name: row.settings for row in rows}

    async def put(self, name: str, settings: str, at_ms: int) -> None:
        row = {"name": name, "settings": settings, "changed_ms": at_ms}
        await self._transactions.change(self._upsert, row)

    async def delete(self, name: str) -> bool:
        """Whether there was one."""
        return await self._transactions.change(delete(targets).where(targets.c.name == name))
