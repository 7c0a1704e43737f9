"""The targets of jobs as one process knows them: those of the file, and over them those that were
changed at run time, which every replica and runner reads from the database each second."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import structlog

from sidecar.base.errors import ConfigError, UnknownNameError
from sidecar.base.targets import TargetSettings, read_target

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from sidecar.base.clock import StoreClock
    from sidecar.base.grants import Grants
    from sidecar.base.permits import Permits
    from sidecar.store.jobs import JobStore
    from sidecar.store.line import Line
    from sidecar.store.targets import TargetStore

log = structlog.get_logger()


@dataclass(slots=True)
class Target:
    """One target. `settings` are replaced when somebody changes them."""

    name: str
    settings: TargetSettings
    store: TargetStore
    grants: Grants
    permits: Permits
    clock: StoreClock
    #: Whether it is as the file has it.
    is_of_file: bool = True


class Targets:
    """All targets. `make` makes what belongs to a name: its store, grants and permits."""

    def __init__(
        self,
        of_file: Mapping[str, TargetSettings],
        jobs: JobStore,
        make: Callable[[str, TargetSettings], Target],
    ) -> None:
        self._of_file = dict(of_file)
        self._jobs = jobs
        self._make = make
        self._texts: dict[str, str] = {}
        self._targets = {name: make(name, settings) for name, settings in of_file.items()}

    def __iter__(self) -> Iterator[Target]:
        return iter(list(self._targets.values()))

    def find(self, name: str) -> Target | None:
        return self._targets.get(name)

    def get(self, name: str) -> Target:
        """Raises UnknownNameError."""
        target = self._targets.get(name)
        if target is None:
            raise UnknownNameError("target", name)
        return target

    async def refresh(self) -> None:
        """Reads what was changed at run time. What cannot be used, such as a setting that a later
        version wrote, changes nothing. Raises DatabaseError."""
        texts = await self._jobs.targets()
        for name in self._texts.keys() - texts.keys():
            self._lay(name, None)
        for name, text in texts.items():
            if self._texts.get(name) == text:
                continue
            try:
                self._lay(name, read_target(json.loads(text)))
            except ConfigError as error:
                log.error("target_unusable", target=name, problems=error.problems)
        self._texts = texts

    def _lay(self, name: str, settings: TargetSettings | None) -> None:
        """`settings`: of run time; None: as the file has it."""
        used = self._of_file.get(name) if settings is None else settings
        target = self._targets.get(name)
        if used is None:
            self._targets.pop(name, None)
            return
        if target is None:
            target = self._targets[name] = self._make(name, used)
        target.settings, target.is_of_file = used, settings is None
        log.info("target_changed", target=name, source="file" if settings is None else "run time")

    async def change(self, name: str, overrides: dict[str, Any], *, at_ms: int) -> Target:
        """Changes some settings of a target, or makes one. Raises ConfigError, DatabaseError."""
        await self.refresh()
        target = self._targets.get(name)
        settings = read_target(overrides) if target is None else target.settings.changed(overrides)
        values = settings.model_dump(mode="json", exclude_unset=True)
        await self._jobs.put_target(name, json.dumps(values), at_ms)
        await self.refresh()
        return self.get(name)

    async def restore(self, name: str) -> Target | None:
        """Back to what the file says; None: it says nothing, and the target is gone. Raises
        UnknownNameError, DatabaseError."""
        self.get(name)
        await self._jobs.delete_target(name)
        await self.refresh()
        return self._targets.get(name)


def wait_s(settings: TargetSettings, line: Line, position: int) -> float:
    """How long the job in this place has to wait, seconds: by the slots and how long a call takes
    (measured, or expected), and by the rate; and until an open breaker lets calls through."""
    mean_s = line.mean_s or settings.expected_seconds
    free = max(0, settings.concurrency - line.active)
    by_slots = max(0, position - free) * mean_s / settings.concurrency
    by_rate = 0.0
    if settings.rate is not None:
        left = max(0, settings.rate - line.calls_in_window)
        by_rate = max(0, position - left) * settings.window / settings.rate
    held_ms = max(line.open_until_ms or 0, line.held_until_ms or 0) - line.now_ms
    return max(by_slots, by_rate) + max(0, held_ms) / 1000


def rate_per_s(settings: TargetSettings, line: Line) -> float:
    """How many calls a second the target bears, as far as is known."""
    by_slots = settings.concurrency / (line.mean_s or settings.expected_seconds)
    return by_slots if settings.rate is None else min(by_slots, settings.rate / settings.window)
