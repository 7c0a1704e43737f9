"""Leases on named resources: who holds what, and who is next.

The scripts do all that must be exact (leases/lua).
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from sidecar.kit.clock import StoreClock
from sidecar.kit.errors import ConfigError
from sidecar.kit.names import Named
from sidecar.leases.metrics import LeaseMetrics
from sidecar.leases.model import Hold, LeaseOutcome
from sidecar.leases.settings import LeaseSettings, name_in_store
from sidecar.leases.store import LeaseStore

#: Of several releases, the one that says most.
_TELLING = (LeaseOutcome.GRANTED, LeaseOutcome.STALE, LeaseOutcome.GONE)


@dataclass(frozen=True, slots=True)
class Template:
    """The leases of one template as this replica sees them.

    Every method raises StoreError when the store does not answer, and ConfigError for a resource
    that the settings do not allow.
    """

    name: str
    settings: LeaseSettings
    store: LeaseStore
    clock: StoreClock
    metrics: LeaseMetrics

    async def take(
        self, resource: str, holder: str, *, owner: str = "", order: int | None = None
    ) -> Hold:
        """The lease, or a place in the queue; who has either keeps it. `owner`: the token that the
        holder came with, or empty for a browser. `order`: of a place that a store which was emptied
        since has forgotten."""
        name = self._name(resource, holder, owner)
        hold = await self.store.ask(resource, name, may_join=True, order=order)
        return self._counted("take", hold)

    async def look(self, resource: str, holder: str, *, owner: str = "") -> Hold:
        """Where somebody stands. Asking is the heartbeat of who waits, and takes the lease when it
        is their turn."""
        name = self._name(resource, holder, owner)
        return self._counted("look", await self.store.ask(resource, name, may_join=False))

    async def renew(self, resource: str, holder: str, fence: int, *, owner: str = "") -> Hold:
        name = self._name(resource, holder, owner)
        return self._counted("renew", await self.store.renew(resource, name, fence))

    async def release(
        self, resource: str, holder: str, fence: int | None = None, *, owners: Sequence[str] = ("",)
    ) -> Hold:
        """Gives up the lease, or without a fencing number whatever this holder has. Of several
        owners' holders who are called so: what was given up, if anything was."""
        names = [self._name(resource, holder, owner) for owner in owners]
        releases = (self.store.release(resource, name, fence) for name in names)
        holds = await asyncio.gather(*releases)
        hold = min(holds, key=lambda hold: _TELLING.index(hold.outcome))
        return self._counted("release", hold)

    def check(self, resource: str) -> None:
        """Raises ConfigError for a resource that the settings do not allow."""
        if not self.settings.has(resource):
            raise ConfigError(
                [f"resource: {self.name} has none called {resource[:40]!r} (the setting resources)"]
            )

    def _name(self, resource: str, holder: str, owner: str) -> str:
        self.check(resource)
        return name_in_store(holder, owner)

    def _counted(self, act: str, hold: Hold) -> Hold:
        self.metrics.leases.labels(self.name, act, hold.outcome.name.lower()).inc()
        return hold


class Leases(Named[Template]):
    kind = "lease"
