"""What the dashboard shows, made once a second for all who watch, while anybody does."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Iterator
from typing import Any

import structlog
from aiohttp import web

from sidecar.dashboard.alerts import Alerts
from sidecar.dashboard.others import Others
from sidecar.http.json_text import event_text
from sidecar.http.long_poll import LongPolls, is_set
from sidecar.kit.errors import StoreError
from sidecar.kit.shorten import shorten_values
from sidecar.rooms.endpoints.visitors import waiting_visitors
from sidecar.rooms.openings import RoomEvent
from sidecar.rooms.service import Room, Rooms
from sidecar.rooms.statistics import (
    ABANDONED,
    ENDED,
    HOUR_MS,
    MINUTE_MS,
    difference,
    lines_of,
    steps,
    wait_percentiles,
)
from sidecar.visitors.model import Phase

TICK_S = 1.0
#: Between two looks at what costs the store more than a number: curves, log, head of the queue.
COLLECT_S = 5.0
HEAD = 10
#: The settings that the page has controls for.
SHOWN = (
    "total_active_users",
    "new_users_per_minute",
    "message",
    "max_waiting",
    "queue_all",
    "suspended",
)
LOG_SHOWN = 60
#: Of a snapshot, as they are.
COUNTED = (
    *("waiting", "active", "provisional", "replicas"),
    *("recovery_stage", "recovers_until_ms", "shield_until_ms"),
)
#: Of a room, for a display on a wall.
FIGURES = (
    *("room", "now_ms", "mode", "phase", "away", "event", "coming"),
    *("waiting", "active", "provisional", "wait_seconds", "a_minute"),
)
#: Of each minute of the last hour, for the charts.
COLUMNS = (
    *("from_ms", "ends_ms", "waiting", "active", "cap", "joined", "admitted", "abandoned"),
    *("wait_half", "wait_most"),
)
#: Over how long a figure "a minute" is measured, where it is known for that long.
RATE_MS = 60_000
RATE_LEAST_MS = 5_000
#: Samples of an hour: one at each end of its minutes.
HOUR = 61
#: A snapshot that is older says that the store does not answer: it is asked every second.
OLD_MS = 3_000

log = structlog.get_logger()


class Live(LongPolls):
    """`watched` starts and ends the work; `text` is what a viewer has not seen yet."""

    def __init__(
        self, rooms: Rooms, alerts: Alerts | None = None, others: Others | None = None
    ) -> None:
        super().__init__(self._tick, self._collect)
        self._rooms = rooms
        self._alerts = alerts
        self._others = others
        self._updated = asyncio.Event()
        self._is_due = asyncio.Event()
        self._now = b""
        #: What each room's last collection found, as it is sent.
        self._collected: dict[str, bytes] = {}
        #: Of each room: the latest sample, and what is sent of the hour before it.
        self._hours: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}
        self._points: dict[str, deque[tuple[int, dict[str, float]]]] = {}
        self._revisions: dict[str, int] = {}

    @contextlib.contextmanager
    def watched(self, request: web.Request) -> Iterator[None]:
        """Somebody watches within the block."""
        if not len(self):  # what was there for others is old
            self._collected.clear()
            self._points.clear()
            self._look()
        with self.opened(request):
            yield

    async def updated(self) -> None:
        """Returns when there is something new, a second later at most."""
        await self._updated.wait()

    def text(self, seen: dict[str, bytes]) -> bytes:
        """The events for a viewer who has seen those in `seen`, which is brought up to date. One
        who reads slowly misses what is in between, and nothing else."""
        fresh = [made for room, made in self._collected.items() if seen.get(room) is not made]
        seen.update(self._collected)
        return b"".join([self._now, *fresh])

    def figures(self, name: str) -> bytes:
        """The event for a viewer who may see one room's figures alone: no settings, nobody's id."""
        room = next(room for room in self._rooms if room.name == name)
        known = self._describe(room)
        shown = {key: known.get(key) for key in FIGURES}
        return event_text("now", {**shown, "cap": room.settings.total_active_users})

    def refresh(self) -> None:
        """Something was done to a room: look again at once."""
        self._is_due.set()

    def close(self) -> None:
        """Sends the viewers away."""
        super().close()
        self._publish()

    def _publish(self) -> None:
        """Wakes all that wait."""
        self._updated.set()
        self._updated.clear()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self._look()
            self._publish()

    def _look(self) -> None:
        """Costs the store nothing: the refresher asks it every second anyway."""
        try:
            document = {
                "rooms": [self._describe(room) for room in self._rooms],
                "alerts": self._alerts.firing if self._alerts else [],
            }
            self._now = event_text("now", document)
        except Exception:  # the next second may do better, and the viewers stay
            log.exception("dashboard")
        revisions = {r.name: r.snapshot.revision for r in self._rooms if r.snapshot}
        if revisions != self._revisions:
            self._revisions = revisions
            self.refresh()

    async def _collect(self) -> None:
        while True:
            self._is_due.clear()
            rooms = (self._collect_room(room) for room in self._rooms)
            await asyncio.gather(*rooms, self._collect_others())
            self._look()
            self._publish()
            await is_set(self._is_due, COLLECT_S)

    async def _collect_others(self) -> None:
        """All that is no room; no room is called ""."""
        if self._others is None:
            return
        try:
            made = event_text("others", await self._others.collect())
        except Exception:
            log.exception("dashboard")
            return
        if self._collected.get("") != made:
            self._collected[""] = made

    async def _collect_room(self, room: Room) -> None:
        lists = room.store.lists
        if room.store.is_away:
            return
        try:
            samples, acts = await lists.minutes(HOUR), await lists.log()
            head = await self._head(room)
            self._remember(room, samples)
            document = {
                "room": room.name,
                **self._last_hour(room, samples),
                "events": [_event_of(event) for event in room.settings.events],
                "line": head,
                "log": acts[:LOG_SHOWN],
            }
        except StoreError as error:
            log.debug("dashboard", room=room.name, error=str(error))
            return
        except Exception:
            log.exception("dashboard", room=room.name)
            return
        made = event_text("study", document)
        if self._collected.get(room.name) != made:
            self._collected[room.name] = made

    def _last_hour(self, room: Room, samples: list[dict[str, Any]]) -> dict[str, Any]:
        """Made anew when there is a new sample, once a minute."""
        latest = samples[0] if samples else {}
        if room.name not in self._hours or self._hours[room.name][0] != latest:
            self._hours[room.name] = latest, _hour(samples)
        return self._hours[room.name][1]

    async def _head(self, room: Room) -> list[dict[str, Any]]:
        """The head of the queue. In a pre-queue nobody is to know a lot."""
        if room.settings.moments(room.clock.now_ms()).phase is Phase.PREQUEUE:
            return []
        rows = await waiting_visitors(room, start=0, limit=HEAD)
        return [row.model_dump(by_alias=True) for row in rows]

    def _describe(self, room: Room) -> dict[str, Any]:
        snapshot, settings, now_ms = room.snapshot, room.settings, room.clock.now_ms()
        moments = settings.moments(now_ms)
        known: dict[str, Any] = {}
        if snapshot is not None:
            known = {
                **{name: getattr(snapshot, name) for name in COUNTED},
                "wait_seconds": None if snapshot.wait_ms is None else snapshot.wait_ms // 1000,
                "lines": lines_of(settings, snapshot),
                "as_of_ms": snapshot.now_ms,
                "changed": shorten_values(snapshot.overrides),
                "a_minute": self._rates(room),
            }
        return {
            "room": room.name,
            "now_ms": now_ms,
            "mode": settings.mode,
            "phase": moments.phase,
            "event": _event_of(moments.event),
            "coming": _event_of(moments.coming),
            "classes": list(settings.classes),
            "away": room.store.is_away or snapshot is None or now_ms - snapshot.now_ms > OLD_MS,
            "on_store_failure": settings.on_store_failure,
            "settings": {name: getattr(settings, name) for name in SHOWN},
            # Of what was changed too.
            "file": shorten_values(
                room.file_settings.model_dump(include={*SHOWN, *known.get("changed", ())})
            ),
            **known,
        }

    def _rates(self, room: Room) -> dict[str, float] | None:
        """How many joined, came in and gave up a minute; None while it is not known."""
        snapshot = room.snapshot
        if snapshot is None:
            return None
        now_ms, counters = snapshot.now_ms, snapshot.counters
        points = self._points.setdefault(room.name, deque())
        if not points or points[-1][0] < now_ms:
            points.append((now_ms, counters))
        while len(points) > 1 and points[1][0] <= now_ms - RATE_MS:
            points.popleft()
        since_ms, before = points[0]
        if now_ms - since_ms < RATE_LEAST_MS:
            return None
        happened = difference(counters, before)
        scale = 60_000 / (now_ms - since_ms)
        return {
            "joined": scale * happened.get("joined", 0),
            "admitted": scale * happened.get("admitted", 0),
            "abandoned": scale * sum(happened.get(name, 0) for name in ABANDONED),
            "ended": scale * sum(happened.get(name, 0) for name in ENDED),
        }

    def _remember(self, room: Room, samples: list[dict[str, Any]]) -> None:
        """Puts what the store knows of the last two minutes before what was seen from here."""
        points = self._points.setdefault(room.name, deque())
        if room.snapshot is None or (points and points[0][0] <= room.snapshot.now_ms - RATE_MS):
            return
        oldest_ms = points[0][0] if points else room.snapshot.now_ms
        for sample in samples[:2]:
            # A sample is made at the beginning of its minute.
            at_ms = sample["minute"] * 60_000
            if oldest_ms - 2 * RATE_MS < at_ms < oldest_ms:
                points.appendleft((at_ms, sample["totals"]))


def _event_of(event: RoomEvent | None) -> dict[str, Any] | None:
    """Its times (ms), and which of the room's settings it replaces while it is open."""
    if event is None:
        return None
    times = event.model_dump(include={"name", "prequeue_from", "opens_at", "closes_at"})
    return {**times, "replaces": list(event.overrides)}


def _hour(samples: list[dict[str, Any]]) -> dict[str, Any]:
    """By minute, as columns; and how long visitors had waited who were let in meanwhile, in
    seconds: the median and nine of ten, with the minutes that this is about."""
    if not samples:
        return {"minutes": {name: [] for name in COLUMNS}, "waits": {"half": None, "most": None}}
    until_ms = samples[0]["minute"] * MINUTE_MS
    since_ms = until_ms - HOUR_MS
    found = steps(samples, since_ms, until_ms)
    oldest = [each for each in samples if each["minute"] * MINUTE_MS >= since_ms][-1]
    waits = wait_percentiles(samples[0]["totals"], oldest["totals"], (0.5, 0.9))
    return {
        "minutes": {name: [getattr(step, name) for step in found] for name in COLUMNS},
        "waits": {
            "half": waits[0.5],
            "most": waits[0.9],
            "minutes": samples[0]["minute"] - oldest["minute"],
        },
    }


LIVE = web.AppKey("live", Live)
