"""Reloads the settings file while a replica runs, and names the settings that need a restart.

A reload applies the changed settings of existing rooms and of the log, either all of them or none:
it checks all of them first, and then applies them without letting another task run.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import structlog
from pydantic import BaseModel

from sidecar.app.log import start_logging
from sidecar.kit.errors import InputError
from sidecar.kit.shorten import MAX_CHARACTERS
from sidecar.rooms.event_changes import find_event_change_problems
from sidecar.rooms.service import WaitingRoom, WaitingRooms
from sidecar.rooms.settings import RoomSettings
from sidecar.settings.model import Settings

_LOG_SETTINGS = {"log_level", "log_format"}

log = structlog.get_logger()


@dataclass
class Reloader:
    #: The settings in force: those at the start, with the changes that reloads have applied.
    settings: Settings
    rooms: WaitingRooms
    #: Reads the settings file. Raises InputError with every problem.
    load: Callable[[], Settings]
    #: Sends a line to systemd, which `systemctl status` shows.
    tell: Callable[[str], None]

    async def run(self, is_due: asyncio.Event) -> None:
        """Reload whenever the event is set. If it is set during a reload, reload again, because the
        file may have changed after it was read."""
        while True:
            await is_due.wait()
            is_due.clear()
            await self.reload()

    async def reload(self) -> None:
        """Read the settings file and apply its changes, or none of them if there is a problem."""
        try:
            # Load in a thread, so that visitors' requests go on meanwhile.
            new = await asyncio.to_thread(self.load)
            applied_names, other_names = self._apply(new)
        except InputError as error:
            problems = error.problems
            log.error("reload_refused", problems=problems, hint="the old settings stay in force")
            self._tell("Reload refused, the old settings stay: " + "; ".join(problems))
            return
        # A change made at run time takes precedence over the new value in the file.
        overridden_names = [
            name
            for room in self.rooms
            for setting in (room.snapshot.overrides if room.snapshot else ())
            if (name := f"rooms.{room.name}.{setting}") in applied_names
        ]
        names = {"taken": applied_names, "changed_at_run_time": overridden_names}
        log.info("reloaded", **names, needs_restart=other_names)
        for warning in new.warnings:
            log.warning("settings_warning", hint=warning)
        restart = f"; these need a restart: {', '.join(other_names)}" if other_names else ""
        self._tell(f"Reloaded: {len(applied_names)} changed setting(s) taken{restart}")

    def _tell(self, text: str) -> None:
        self.tell("STATUS=" + " ".join(text.split())[:MAX_CHARACTERS])

    def _apply(self, new: Settings) -> tuple[list[str], list[str]]:
        """Apply the changed settings that need no restart. Return their names, and the names of the
        changed settings that need one. Raises InputError before anything is applied."""
        old = self.settings
        files = {name: new.rooms.get(name, file) for name, file in old.rooms.items()}
        rooms = [room for room in self.rooms if files[room.name] != room.file_settings]
        problems = [line for room in rooms for line in _find_problems(room, files[room.name])]
        if problems:
            raise InputError(problems)
        # From here on nothing is awaited, so every request sees either all old or all new settings.
        for room in rooms:
            room.configure(files[room.name])
        if any(getattr(new, name) != getattr(old, name) for name in _LOG_SETTINGS):
            start_logging(new.log_level, new.log_format)
        logs = {name: getattr(new, name) for name in _LOG_SETTINGS}
        self.settings = old.model_copy(update={"rooms": files, **logs})
        return [*find_changes(old, self.settings)], [*find_changes(self.settings, new)]


def _find_problems(room: WaitingRoom, file: RoomSettings) -> Iterator[str]:
    """Yield why a room cannot take these settings while it runs. The changes made at run time stay
    in force, so they must be allowed together with the file's settings."""
    overrides = room.snapshot.overrides if room.snapshot else {}
    _, old_problems = room.file_settings.with_valid_overrides(overrides)
    settings, problems = file.with_valid_overrides(overrides)
    for problem in problems:
        if problem not in old_problems:  # overrides with old problems are ignored already
            yield f"rooms.{room.name}.{problem}, as changed at run time"
    before, now_ms = room.settings.events, room.clock.now_ms()
    for problem in find_event_change_problems(before, settings.events, now_ms):
        yield f"rooms.{room.name}.{problem}"


def find_changes(old: Settings, new: Settings) -> Iterator[str]:
    """Yield the names of the settings that differ, such as rooms.shop.total_active_users. If only
    `old` or `new` has a table, yield the table's name."""
    for name in type(old).model_fields:
        before, after = getattr(old, name), getattr(new, name)
        if before == after:
            continue
        if not isinstance(before, Mapping):
            yield name
            continue
        for key in sorted(before.keys() | after.keys()):
            table, other = before.get(key), after.get(key)
            if isinstance(table, BaseModel) and isinstance(other, BaseModel):
                fields = type(table).model_fields
                differ = (f for f in fields if getattr(table, f) != getattr(other, f))
                yield from (f"{name}.{key}.{field}" for field in differ)
            elif table != other:
                yield f"{name}.{key}"
