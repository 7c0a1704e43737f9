"""The dashboard's live data, made once a second for all viewers, while there is any."""

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
from sidecar.http.long_poll import LongPolls
from sidecar.kit.errors import StoreError
from sidecar.kit.shorten import shorten_values
from sidecar.kit.tasks import wait_for
from sidecar.rooms.endpoints.visitors import list_waiting_visitors
from sidecar.rooms.openings import RoomEvent
from sidecar.rooms.service import WaitingRoom, WaitingRooms
from sidecar.rooms.statistics import (
    ABANDONED,
    ENDED,
    HOUR_MS,
    MINUTE_MS,
    compute_growth,
    compute_steps,
    compute_wait_percentiles,
    describe_sub_queues,
)
from sidecar.visitors.model import Phase

TICK_S = 1.0
#: Seconds between two reads of curves, log and head of the queue, which cost the store most.
COLLECT_S = 5.0
HEAD = 10
#: The settings with controls on the page.
SHOWN = (
    "total_active_users",
    "new_users_per_minute",
    "message",
    "max_waiting",
    "queue_all",
    "suspended",
)
LOG_SHOWN = 60
#: The fields of a snapshot that are sent unchanged.
COUNTED = (
    *("waiting", "active", "provisional", "replicas"),
    *("recovery_stage", "recovers_until_ms", "shield_until_ms"),
)
#: The fields of a room for a wall display.
FIGURES = (
    *("room", "now_ms", "mode", "phase", "away", "event", "coming"),
    *("waiting", "active", "provisional", "wait_seconds", "a_minute"),
)
#: The fields of each minute of the last hour, for the charts.
COLUMNS = (
    *("from_ms", "ends_ms", "waiting", "active", "cap", "joined", "admitted", "abandoned"),
    *("wait_half", "wait_most"),
)
#: The longest and shortest time over which a rate per minute is measured, ms.
RATE_MS = 60_000
RATE_LEAST_MS = 5_000
#: The samples of an hour: one at each end of its minutes.
HOUR = 61
#: The age of a snapshot, ms, from which the store counts as away: it is read every second.
OLD_MS = 3_000

log = structlog.get_logger()


class Live(LongPolls):
    """Makes the events while `watched` counts a viewer; `text` returns those a viewer lacks."""

    def __init__(
        self, rooms: WaitingRooms, alerts: Alerts | None = None, others: Others | None = None
    ) -> None:
        super().__init__(self._tick, self._collect)
        self._rooms = rooms
        self._alerts = alerts
        self._others = others
        self._updated = asyncio.Event()
        self._is_due = asyncio.Event()
        self._now = b""
        #: The last `study` event of each room; the event `others` at "".
        self._collected: dict[str, bytes] = {}
        #: For each room: the latest sample, and the charts of the hour before it.
        self._hours: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}
        self._points: dict[str, deque[tuple[int, dict[str, float]]]] = {}
        self._revisions: dict[str, int] = {}

    @contextlib.contextmanager
    def watched(self, request: web.Request) -> Iterator[None]:
        """Count a viewer within the block."""
        if not len(self):  # the data of earlier viewers is old
            self._collected.clear()
            self._points.clear()
            self._look()
        with self.opened(request):
            yield

    async def updated(self) -> None:
        """Return when there is new data, within a second."""
        await self._updated.wait()

    def text(self, sent: dict[str, bytes]) -> bytes:
        """Return the events that are not in `sent`, and add them to it. A slow viewer only misses
        intermediate ones."""
        fresh = [event for room, event in self._collected.items() if sent.get(room) is not event]
        sent.update(self._collected)
        return b"".join([self._now, *fresh])

    def figures(self, name: str) -> bytes:
        """Return the event for a wall display: one room's figures, without settings and ids."""
        room = next(room for room in self._rooms if room.name == name)
        fields = self._describe(room)
        shown = {key: fields.get(key) for key in FIGURES}
        return event_text("now", {**shown, "cap": room.settings.total_active_users})

    def refresh(self) -> None:
        """Collect at once, because a room was changed."""
        self._is_due.set()

    def close(self) -> None:
        """End the streams of all viewers."""
        super().close()
        self._publish()

    def _publish(self) -> None:
        self._updated.set()
        self._updated.clear()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self._look()
            self._publish()

    def _look(self) -> None:
        """Make the event `now` from the snapshots, without reading from the store."""
        try:
            document = {
                "rooms": [self._describe(room) for room in self._rooms],
                "alerts": self._alerts.firing if self._alerts else [],
            }
            self._now = event_text("now", document)
        except Exception:  # try again in a second
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
            await wait_for(self._is_due, COLLECT_S)

    async def _collect_others(self) -> None:
        """Make the event `others`, kept under "", which is no room's name."""
        if self._others is None:
            return
        try:
            made = event_text("others", await self._others.collect())
        except Exception:
            log.exception("dashboard")
            return
        if self._collected.get("") != made:
            self._collected[""] = made

    async def _collect_room(self, room: WaitingRoom) -> None:
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

    def _last_hour(self, room: WaitingRoom, samples: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the charts, made again when there is a new sample, once a minute."""
        latest = samples[0] if samples else {}
        if room.name not in self._hours or self._hours[room.name][0] != latest:
            self._hours[room.name] = latest, _hour(samples)
        return self._hours[room.name][1]

    async def _head(self, room: WaitingRoom) -> list[dict[str, Any]]:
        """Return the head of the queue; nothing in a pre-queue, whose lots are secret."""
        if room.settings.moments(room.clock.now_ms()).phase is Phase.PREQUEUE:
            return []
        rows = await list_waiting_visitors(room, start=0, limit=HEAD)
        return [row.model_dump(by_alias=True) for row in rows]

    def _describe(self, room: WaitingRoom) -> dict[str, Any]:
        snapshot, settings, now_ms = room.snapshot, room.settings, room.clock.now_ms()
        moments = settings.moments(now_ms)
        from_store: dict[str, Any] = {}
        if snapshot is not None:
            from_store = {
                **{name: getattr(snapshot, name) for name in COUNTED},
                "wait_seconds": None if snapshot.wait_ms is None else snapshot.wait_ms // 1000,
                "lines": describe_sub_queues(settings, snapshot),
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
            # Changed settings included.
            "file": shorten_values(
                room.file_settings.model_dump(include={*SHOWN, *from_store.get("changed", ())})
            ),
            **from_store,
        }

    def _rates(self, room: WaitingRoom) -> dict[str, float] | None:
        """Return the changes of the room per minute, or None until there are samples of 5 s."""
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
        happened = compute_growth(counters, before)
        scale = 60_000 / (now_ms - since_ms)
        return {
            "joined": scale * happened.get("joined", 0),
            "admitted": scale * happened.get("admitted", 0),
            "abandoned": scale * sum(happened.get(name, 0) for name in ABANDONED),
            "ended": scale * sum(happened.get(name, 0) for name in ENDED),
        }

    def _remember(self, room: WaitingRoom, samples: list[dict[str, Any]]) -> None:
        """Put the store's samples of the last two minutes before the points seen by this
        replica."""
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
    """Return an event's times (ms) and the names of the settings that it replaces."""
    if event is None:
        return None
    times = event.model_dump(include={"name", "prequeue_from", "opens_at", "closes_at"})
    return {**times, "replaces": list(event.overrides)}


def _hour(samples: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the samples by minute, as columns, and wait-time percentiles in seconds (50, 90) of
    the visitors admitted in these minutes."""
    if not samples:
        return {"minutes": {name: [] for name in COLUMNS}, "waits": {"half": None, "most": None}}
    until_ms = samples[0]["minute"] * MINUTE_MS
    since_ms = until_ms - HOUR_MS
    minutes = compute_steps(samples, since_ms, until_ms)
    oldest = [each for each in samples if each["minute"] * MINUTE_MS >= since_ms][-1]
    waits = compute_wait_percentiles(samples[0]["totals"], oldest["totals"], (0.5, 0.9))
    return {
        "minutes": {name: [getattr(step, name) for step in minutes] for name in COLUMNS},
        "waits": {
            "half": waits[0.5],
            "most": waits[0.9],
            "minutes": samples[0]["minute"] - oldest["minute"],
        },
    }


LIVE = web.AppKey("live", Live)
