"""Leases on named resources. The scripts of leases/lua decide who holds what, and who is next."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from aiohttp import web

from sidecar.kit.clock import StoreClock
from sidecar.kit.errors import ConfigError
from sidecar.kit.names import Named
from sidecar.leases.metrics import LeaseMetrics
from sidecar.leases.model import Hold, LeaseOutcome
from sidecar.leases.settings import LeaseSettings, name_in_store
from sidecar.leases.store import LeaseStore

#: The outcomes of a release; of several releases the first of these is reported.
_BY_WEIGHT = (LeaseOutcome.GRANTED, LeaseOutcome.STALE, LeaseOutcome.GONE)


@dataclass(frozen=True, slots=True)
class Template:
    """The leases of one template as this replica sees them.

    Every method raises StoreError if Redis is unavailable, and ConfigError for a resource that the
    settings do not allow. `owner`: the token that the holder sent, or "" for a browser.
    """

    name: str
    settings: LeaseSettings
    store: LeaseStore
    clock: StoreClock
    metrics: LeaseMetrics

    async def take(
        self, resource: str, holder: str, *, owner: str = "", order: int | None = None
    ) -> Hold:
        """Take the lease, or a place in the queue; a holder who has either keeps it. `order`: the
        order of a place from before Redis was emptied."""
        name = self._name(resource, holder, owner)
        hold = await self.store.ask(resource, name, may_join=True, order=order)
        return self._counted("take", hold)

    async def look(self, resource: str, holder: str, *, owner: str = "") -> Hold:
        """Find a holder's lease or place. This is a waiting holder's heartbeat, and takes the lease
        when it is their turn."""
        name = self._name(resource, holder, owner)
        return self._counted("look", await self.store.ask(resource, name, may_join=False))

    async def renew(self, resource: str, holder: str, fence: int, *, owner: str = "") -> Hold:
        name = self._name(resource, holder, owner)
        return self._counted("renew", await self.store.renew(resource, name, fence))

    async def release(
        self, resource: str, holder: str, fence: int | None = None, *, owners: Sequence[str] = ("",)
    ) -> Hold:
        """Release the lease with this fencing number; without one, whatever the holder has. Of
        several owners' holders with this name, every one is released."""
        names = [self._name(resource, holder, owner) for owner in owners]
        releases = (self.store.release(resource, name, fence) for name in names)
        holds = await asyncio.gather(*releases)
        hold = min(holds, key=lambda hold: _BY_WEIGHT.index(hold.outcome))
        return self._counted("release", hold)

    def check(self, resource: str) -> None:
        """Raise ConfigError for a resource that the settings do not allow."""
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


#: The lease templates of a replica's application.
LEASES = web.AppKey("leases", Leases)
