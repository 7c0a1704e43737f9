"""The targets of one process: the configured settings, and over them the changes made at run time,
which every replica and worker reads from the database."""

import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import structlog

from sidecar.jobs.model import ENDED, Ending, State, ms
from sidecar.jobs.permits import Permits
from sidecar.jobs.settings import TargetSettings, read_target
from sidecar.jobs.store.target_queue import TargetStore
from sidecar.kit.clock import StoreClock
from sidecar.kit.errors import ConfigError
from sidecar.kit.names import Named
from sidecar.visitors.grants import Grants

if TYPE_CHECKING:  # SQL is an extra
    from sidecar.jobs.store.job_store import JobStore

log = structlog.get_logger()

#: Where calls go and with what secrets: an admin's to change.
ADMIN_SETTINGS = ("url", "private", "headers", "callback_urls", "callback_secret")


@dataclass(slots=True)
class Target:
    """One target. Its `settings` are replaced when they are changed."""

    name: str
    settings: TargetSettings
    store: TargetStore
    grants: Grants
    permits: Permits
    clock: StoreClock
    #: Whether its settings are as configured.
    is_of_file: bool = True

    def ending(
        self, id_: str, fence: int, state: State, error: str = "", status: int | None = None
    ) -> Ending:
        """Return the ending of an attempt that ends now without a result."""
        now_ms = self.clock.now_ms()
        expires_ms = now_ms + ms(self.settings.result_ttl) if state in ENDED else None
        return Ending(id_, fence, state, now_ms, expires_ms, error, status)

    def aborted(self, id_: str, fence: int) -> Ending:
        return self.ending(id_, fence, State.CANCELLED, "cut off by its caller")


class AdminNeededError(Exception):
    """An operator may not make the change, which the text names: only an admin may."""


def _for_admins(target: Target | None, after: TargetSettings) -> str:
    if target is None:
        return "A new target"
    before = target.settings
    names = [name for name in ADMIN_SETTINGS if getattr(before, name) != getattr(after, name)]
    return f"A change of {' and '.join(names)}" if names else ""


class TargetRegistry(Named[Target]):
    """All targets. `make` creates a target from its name and settings. `announce` tells other
    processes that the settings of a target were changed."""

    kind = "target"

    def __init__(
        self,
        of_file: Mapping[str, TargetSettings],
        store: "JobStore",
        make: Callable[[str, TargetSettings], Target],
        announce: Callable[[str], Awaitable[None]] | None = None,
    ) -> None:
        super().__init__(make(name, settings) for name, settings in of_file.items())
        self._of_file = dict(of_file)
        self._store = store
        self._make = make
        self._announce = announce
        #: What was changed at run time, as it is in the database.
        self._texts: dict[str, str] = {}

    def __iter__(self) -> Iterator[Target]:
        return iter(list(self._items.values()))  # they may change meanwhile

    async def refresh(self) -> list[str]:
        """Read the changes made at run time, and return the names of the targets that they change.
        Settings that cannot be used, such as those of a later version, are logged and left out.
        Raises DatabaseError."""
        texts = await self._store.targets.all()
        changed = sorted({name for name, _ in self._texts.items() ^ texts.items()})
        for name in changed:
            try:
                self._update(name, texts.get(name))
            except ConfigError as error:
                log.error("target_unusable", target=name, problems=error.problems)
        self._texts = texts
        return changed

    def _update(self, name: str, text: str | None) -> None:
        """Apply the changes made at run time, as JSON; None: there are none. Raises ConfigError."""
        settings = self._of_file.get(name)
        if text is not None:
            changes = json.loads(text)
            if settings and settings.goes_elsewhere(changes):
                changes.setdefault("headers", {})  # the file's may have come later
            settings = settings.changed(changes) if settings else read_target(changes)
        if settings is None:
            self._items.pop(name, None)
            return
        target = self.find(name)
        if target is None:
            target = self._items[name] = self._make(name, settings)
        target.settings, target.is_of_file = settings, text is None
        log.info("target_changed", target=name, source="file" if text is None else "run time")

    async def change(
        self, name: str, changes: dict[str, Any], *, is_admin: bool = True
    ) -> tuple[Target, dict[str, tuple[Any, Any]]]:
        """Change some settings of a target, or create one; the other settings keep following the
        configuration. Return for each changed one its values before and after, secrets as ***.
        Raises ConfigError, AdminNeededError, DatabaseError."""
        await self.refresh()
        target = self.find(name)
        settings = target.settings.changed(changes) if target else read_target(changes)
        if not is_admin and (needed := _for_admins(target, settings)):
            raise AdminNeededError(needed)
        before = target.settings.without_secrets() if target else None
        at_ms = target.clock.now_ms() if target else 0
        names = json.loads(self._texts.get(name, "{}")).keys() | changes.keys()
        values = settings.model_dump(mode="json", include=set(names))
        await self._store.targets.put(name, json.dumps(values), at_ms)
        await self._was_changed(name)
        after = settings.without_secrets()
        return self.get(name), {
            each: (getattr(before, each, None), getattr(after, each)) for each in sorted(changes)
        }

    async def restore(self, name: str) -> Target | None:
        """Reset a target to its configured settings. Return None if it is not configured, and
        removed. Raises UnknownNameError, DatabaseError."""
        self.get(name)
        await self._store.targets.delete(name)
        await self._was_changed(name)
        return self.find(name)

    async def _was_changed(self, name: str) -> None:
        await self.refresh()
        if self._announce is not None:
            await self._announce(name)
