"""Takes, finds, renews and releases leases of named resources. The Lua scripts in leases/lua decide
who holds a resource and who is called next."""

import asyncio
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from aiohttp import web

from sidecar.kit.clock import StoreClock
from sidecar.kit.errors import InputError
from sidecar.kit.names import Named
from sidecar.kit.waiters import Waiters
from sidecar.leases.holder_names import make_stored_name
from sidecar.leases.metrics import LeaseMetrics
from sidecar.leases.model import HolderState, LeaseOutcome
from sidecar.leases.settings import LeaseSettings
from sidecar.leases.store import LeaseStore

#: The outcomes of a release, the most important first. A release for several owners reports the
#: most important of its outcomes.
_RELEASE_PRECEDENCE = (LeaseOutcome.GRANTED, LeaseOutcome.STALE, LeaseOutcome.GONE)


@dataclass(frozen=True, slots=True)
class TemplateLeases:
    """The leases of one template. The methods raise StoreError if Redis is unavailable, and
    InputError for a resource that the settings do not allow. `owner` is the name of the token that
    the holder sent, or "" for a browser."""

    name: str
    settings: LeaseSettings
    store: LeaseStore
    clock: StoreClock
    metrics: LeaseMetrics
    #: Wakes the requests of waiting holders, by "RESOURCE HOLDER", with the holder's name in Redis.
    waiters: Waiters = field(default_factory=Waiters)

    async def take(
        self, resource: str, holder: str, *, owner: str = "", order: int | None = None
    ) -> HolderState:
        """Take a lease, or a place in the queue, and return the state. A holder who has either
        keeps it. `order` is the order of the place that the holder had before Redis was emptied."""
        name = self._check_and_name(resource, holder, owner)
        return self._count("take", await self.store.ask(resource, name, order=order))

    async def poll(self, resource: str, holder: str, *, owner: str = "") -> HolderState:
        """Return the state of a holder. For a waiting holder, this call is the heartbeat, which
        takes the lease if the holder was called."""
        name = self._check_and_name(resource, holder, owner)
        return self._count("look", await self.store.ask(resource, name, may_join=False))

    def listen(
        self, resource: str, holder: str, event: asyncio.Event, *, owner: str = ""
    ) -> AbstractContextManager[None]:
        """Set `event` when a waiting holder is called, while the returned context is open."""
        return self.waiters.listen(f"{resource} {make_stored_name(holder, owner)}", event)

    async def renew(
        self, resource: str, holder: str, fence: int, *, owner: str = ""
    ) -> HolderState:
        """Renew the lease with this fencing number for another term."""
        name = self._check_and_name(resource, holder, owner)
        return self._count("renew", await self.store.renew(resource, name, fence))

    async def release(
        self, resource: str, holder: str, fence: int | None = None, *, owners: Sequence[str] = ("",)
    ) -> HolderState:
        """Release the lease with this fencing number or, if it is None, any lease or place of the
        holder. With several owners, do so for each owner's holder of this name."""
        names = [self._check_and_name(resource, holder, owner) for owner in owners]
        states = await asyncio.gather(*(self.store.release(resource, n, fence) for n in names))
        state = min(states, key=lambda state: _RELEASE_PRECEDENCE.index(state.outcome))
        return self._count("release", state)

    def check(self, resource: str) -> None:
        """Raise InputError for a resource that the settings do not allow."""
        if not self.settings.allows(resource):
            raise InputError(
                [f"resource: {self.name} does not allow {resource[:40]!r} (the setting resources)"]
            )

    def _check_and_name(self, resource: str, holder: str, owner: str) -> str:
        """Check the resource, and return the holder's name in Redis."""
        self.check(resource)
        return make_stored_name(holder, owner)

    def _count(self, operation: str, state: HolderState) -> HolderState:
        """Count an operation by its outcome, and return the state."""
        self.metrics.leases.labels(self.name, operation, state.outcome.name.lower()).inc()
        return state


class Leases(Named[TemplateLeases]):
    kind = "lease"


LEASES = web.AppKey("leases", Leases)
