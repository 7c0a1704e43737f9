"""Holds the targets of one process: servers that jobs call. Changes made at run time, which each
replica and worker reads from the database, override the configured settings."""

import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import structlog

from sidecar.jobs.model import ENDED_STATES, AttemptEnd, State, to_ms
from sidecar.jobs.permits import Permits
from sidecar.jobs.settings import TargetSettings, read_target
from sidecar.jobs.store.target_queue import TargetStore
from sidecar.kit.clock import StoreClock
from sidecar.kit.errors import InputError
from sidecar.kit.names import Named
from sidecar.visitors.grants import Grants

if TYPE_CHECKING:  # SQL is an extra
    from sidecar.jobs.store.job_store import JobStore

#: The settings that only an admin may change: where calls go, and their secrets.
ADMIN_SETTINGS = (
    *("url", "private", "headers", "callback_urls"),
    *("callback_secret", "previous_callback_secret"),
)

log = structlog.get_logger()


class AdminNeededError(Exception):
    """Only an admin may make the change that the error text names."""


@dataclass(slots=True)
class Target:
    """A target: its current settings, and the services that use them."""

    name: str
    settings: TargetSettings
    store: TargetStore
    grants: Grants
    permits: Permits
    clock: StoreClock
    #: Whether the settings come from the settings file unchanged.
    is_from_file: bool = True

    def make_ending(
        self, id_: str, fence: int, state: State, error: str = "", status: int | None = None
    ) -> AttemptEnd:
        """Return the ending of an attempt that ends now and has no result."""
        now_ms = self.clock.now_ms()
        expires_ms = now_ms + to_ms(self.settings.result_ttl) if state in ENDED_STATES else None
        return AttemptEnd(id_, fence, state, now_ms, expires_ms, error, status)

    def make_abort_ending(self, id_: str, fence: int) -> AttemptEnd:
        return self.make_ending(id_, fence, State.CANCELLED, "cut off by its caller")


class TargetRegistry(Named[Target]):
    """All targets. `configured` has the settings from the file, by name. `make` creates a target
    from its name and settings. `announce` notifies other processes of a target's new settings."""

    kind = "target"

    def __init__(
        self,
        configured: Mapping[str, TargetSettings],
        store: "JobStore",
        make: Callable[[str, TargetSettings], Target],
        announce: Callable[[str], Awaitable[None]],
    ) -> None:
        super().__init__(make(name, settings) for name, settings in configured.items())
        self._configured = dict(configured)
        self._store = store
        self._make = make
        self._announce = announce
        #: The settings changed at run time, by target name, as JSON from the database.
        self._overrides: dict[str, str] = {}

    def __iter__(self) -> Iterator[Target]:
        return iter(list(self._items.values()))  # a copy, because targets may change meanwhile

    async def refresh(self) -> list[str]:
        """Read run-time changes. Return the names of targets changed since the last refresh. Logs
        and ignores invalid settings, such as those of a later version. Raises DatabaseError."""
        overrides = await self._store.targets.all()
        changed = sorted({name for name, _ in self._overrides.items() ^ overrides.items()})
        for name in changed:
            try:
                self._apply_overrides(name, overrides.get(name))
            except InputError as error:
                log.error("target_unusable", target=name, problems=error.problems)
        self._overrides = overrides
        return changed

    def _apply_overrides(self, name: str, overrides: str | None) -> None:
        """Apply a target's JSON overrides, if any, to its configuration. Raises InputError."""
        settings = self._configured.get(name)
        if overrides is not None:
            changes = json.loads(overrides)
            if settings and settings.changes_server(changes):
                # The headers in the settings file are secret, and must not go to another server.
                changes.setdefault("headers", {})
            settings = settings.with_changes(changes) if settings else read_target(changes)
        if settings is None:
            self._items.pop(name, None)
            return
        target = self.find(name)
        if target is None:
            target = self._items[name] = self._make(name, settings)
        target.settings, target.is_from_file = settings, overrides is None
        source = "file" if overrides is None else "run time"
        log.info("target_changed", target=name, source=source)

    async def change(
        self, name: str, changes: dict[str, Any], *, is_admin: bool = True
    ) -> tuple[Target, dict[str, tuple[Any, Any]]]:
        """Change settings of a target, or create a target. The target's other settings still come
        from the configuration. Return the target, and the values of each changed setting before and
        after, with secrets as ***. Raises InputError, AdminNeededError, DatabaseError."""
        await self.refresh()
        target = self.find(name)
        settings = target.settings.with_changes(changes) if target else read_target(changes)
        if not is_admin and (needed := _describe_admin_change(target, settings)):
            raise AdminNeededError(needed)
        before = target.settings.without_secrets() if target else None
        at_ms = target.clock.now_ms() if target else 0
        names = json.loads(self._overrides.get(name, "{}")).keys() | changes.keys()
        values = settings.model_dump(mode="json", include=set(names))
        await self._store.targets.put(name, json.dumps(values), at_ms)
        await self._refresh_and_announce(name)
        after = settings.without_secrets()
        return self.get(name), {
            key: (getattr(before, key, None), getattr(after, key)) for key in sorted(changes)
        }

    async def restore(self, name: str) -> Target | None:
        """Reset a target to its configured settings and return it. Remove a target that is not
        configured, and return None. Raises UnknownNameError, DatabaseError."""
        self.get(name)
        await self._store.targets.delete(name)
        await self._refresh_and_announce(name)
        return self.find(name)

    async def _refresh_and_announce(self, name: str) -> None:
        await self.refresh()
        await self._announce(name)


def _describe_admin_change(target: Target | None, settings: TargetSettings) -> str:
    """Describe a change that only an admin may make, or return "" if an operator may make it."""
    if target is None:
        return "A new target"
    names = [n for n in ADMIN_SETTINGS if getattr(target.settings, n) != getattr(settings, n)]
    return f"A change of {' and '.join(names)}" if names else ""
