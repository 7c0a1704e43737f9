"""Computes the dashboard's live data, once a second while anybody views the dashboard."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Iterator
from typing import Any

import structlog
from aiohttp import web

from sidecar.dashboard.alerts import Alerts
from sidecar.dashboard.overview_rows import OverviewRows
from sidecar.http.json_text import encode_event
from sidecar.http.long_poll import LongPolls
from sidecar.kit.errors import StoreError
from sidecar.kit.shorten import shorten_values
from sidecar.kit.tasks import wait_for
from sidecar.rooms.acts import describe_act, find_stop
from sidecar.rooms.endpoints.visitors import list_waiting_visitors
from sidecar.rooms.openings import RoomEvent
from sidecar.rooms.service import WaitingRoom, WaitingRooms
from sidecar.rooms.statistics import (
    ABANDONMENTS,
    ENDED_SESSIONS,
    HOUR_MS,
    MINUTE_MS,
    compute_growth,
    compute_steps,
    compute_wait_percentiles,
    describe_site,
    describe_sub_queues,
    name_state,
)
from sidecar.visitors.model import Phase

#: Seconds between two `now` events.
UPDATE_INTERVAL_S = 1.0
#: Seconds between two reads of the charts, the log and the head of the queue, which are slower.
COLLECT_INTERVAL_S = 5.0
#: How many visitors at the head of the queue are shown.
HEAD_SHOWN = 10
#: How many entries of the log are shown.
LOG_SHOWN = 60
#: The settings that the page shows and can change.
SHOWN_SETTINGS = (
    *("total_active_users", "new_users_per_minute", "message"),
    *("max_waiting", "queue_all", "suspended"),
)
#: The fields of a snapshot that are sent unchanged.
SNAPSHOT_FIELDS = (
    *("waiting", "active", "provisional", "replicas"),
    *("recovery_stage", "recovers_until_ms", "shield_until_ms"),
)
#: The fields of a room that a wall display shows. Displays of version 0.1.0 need `mode`.
WALL_FIELDS = (
    *("room", "now_ms", "state", "mode", "phase", "away", "event", "coming"),
    *("waiting", "active", "provisional", "wait_seconds", "a_minute", "cap"),
)
#: The figures that the charts show for each minute of the last hour.
CHART_FIELDS = (
    *("from_ms", "ends_ms", "waiting", "active", "cap", "joined", "admitted", "abandoned"),
    *("wait_half", "wait_most", "ceiling", "p90"),
)
#: The longest and shortest time over which a rate per minute is measured, in ms.
MAX_SPAN_MS = 60_000
MIN_SPAN_MS = 5_000
#: The number of samples of an hour: one at its beginning, and one at the end of each minute.
HOUR_SAMPLES = 61
#: The age of the last snapshot, in ms, from which Redis counts as unavailable.
STALE_MS = 3_000

log = structlog.get_logger()


class Live(LongPolls):
    """The server-sent events for viewers of the dashboard, updated while there is a viewer."""

    def __init__(
        self, rooms: WaitingRooms, alerts: Alerts | None = None, rows: OverviewRows | None = None
    ) -> None:
        super().__init__(self._update_forever, self._collect_forever)
        self._rooms, self._alerts, self._overview = rooms, alerts, rows
        self._updated = asyncio.Event()
        self._collect_now = asyncio.Event()
        #: The last `now` event.
        self._now = b""
        #: The last `study` event of each room, by the room's name. The last `others` event, with
        #: the overview's rows, has the key "".
        self._collected: dict[str, bytes] = {}
        #: The latest sample of each room, and the charts of the hour before this sample.
        self._hours: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}
        #: The counters of each room over the last minute, with the times of their snapshots (ms).
        self._points: dict[str, deque[tuple[int, dict[str, float]]]] = {}
        self._revisions: dict[str, int] = {}
        #: The log of each room, and the latest entries of the log with their texts.
        self._acts: dict[str, tuple[list[dict[str, Any]], list[dict[str, Any]]]] = {}

    @contextlib.contextmanager
    def count_viewer(self, request: web.Request) -> Iterator[None]:
        """Count a viewer while the block runs."""
        if not len(self):  # the data was collected for earlier viewers and is old
            self._collected.clear()
            self._points.clear()
            self._acts.clear()
            self._update_now()
        with self.keep_open(request):
            yield

    async def wait_for_update(self) -> None:
        """Wait for new data, which comes within a second."""
        await self._updated.wait()

    def take_unsent_events(self, sent: dict[str, bytes]) -> bytes:
        """Return `now` and the other events that `sent` lacks, and add these to `sent`."""
        fresh = [event for room, event in self._collected.items() if sent.get(room) is not event]
        sent.update(self._collected)
        return b"".join([self._now, *fresh])

    def build_wall_event(self, room: WaitingRoom) -> bytes:
        """Return the event for a wall display: a room's figures, but no settings or ids."""
        fields = self._describe_room(room)
        return encode_event("now", {key: fields.get(key) for key in WALL_FIELDS})

    def refresh(self) -> None:
        """Collect the data of all rooms now, not at the next interval."""
        self._collect_now.set()

    def close(self) -> None:
        """End the streams of all viewers."""
        super().close()
        self._publish()

    def _publish(self) -> None:
        self._updated.set()
        self._updated.clear()

    async def _update_forever(self) -> None:
        while True:
            await asyncio.sleep(UPDATE_INTERVAL_S)
            self._update_now()
            self._publish()

    def _update_now(self) -> None:
        """Update the `now` event from the snapshots, without a request to Redis."""
        try:
            document = {
                "rooms": [self._describe_room(room) for room in self._rooms],
                "alerts": self._alerts.firing if self._alerts else [],
            }
            self._now = encode_event("now", document)
        except Exception:  # try again in a second
            log.exception("dashboard")
        revisions = {r.name: r.snapshot.revision for r in self._rooms if r.snapshot}
        if revisions != self._revisions:
            self._revisions = revisions
            self.refresh()

    async def _collect_forever(self) -> None:
        while True:
            self._collect_now.clear()
            rooms = (self._collect_room(room) for room in self._rooms)
            await asyncio.gather(*rooms, self._collect_overview())
            self._update_now()
            self._publish()
            await wait_for(self._collect_now, COLLECT_INTERVAL_S)

    async def _collect_overview(self) -> None:
        """Update the `others` event."""
        if self._overview is None:
            return
        try:
            self._store_event("", encode_event("others", await self._overview.collect()))
        except Exception:  # try again in five seconds
            log.exception("dashboard")

    async def _collect_room(self, room: WaitingRoom) -> None:
        """Update the `study` event of a room."""
        lists = room.store.lists
        if room.store.is_away:
            return
        try:
            samples, acts = await lists.minutes(HOUR_SAMPLES), await lists.log()
            head = await self._read_head(room)
            self._prepend_points(room, samples)
            document = {
                "room": room.name,
                **self._chart_last_hour(room, samples),
                "events": [_describe_event(event) for event in room.settings.events],
                "line": head,
                "log": self._describe_acts(room, acts),
            }
            self._store_event(room.name, encode_event("study", document))
        except StoreError as error:
            log.debug("dashboard", room=room.name, error=str(error))
        except Exception:  # try again in five seconds
            log.exception("dashboard", room=room.name)

    def _describe_acts(self, room: WaitingRoom, acts: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the latest log entries with their texts. Cache them until the log changes."""
        if room.name not in self._acts or self._acts[room.name][0] != acts:
            file = room.file_settings
            shown = [{**act, "text": describe_act(act, file)} for act in acts[:LOG_SHOWN]]
            self._acts[room.name] = acts, shown
        return self._acts[room.name][1]

    def _store_event(self, name: str, event: bytes) -> None:
        # An unchanged event stays the same object, so that no viewer gets it again.
        if self._collected.get(name) != event:
            self._collected[name] = event

    def _chart_last_hour(self, room: WaitingRoom, samples: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the charts of the last hour. They are computed once a minute, for a new sample."""
        latest = samples[0] if samples else {}
        if room.name not in self._hours or self._hours[room.name][0] != latest:
            self._hours[room.name] = latest, _chart_hour(samples)
        return self._hours[room.name][1]

    async def _read_head(self, room: WaitingRoom) -> list[dict[str, Any]]:
        """Return the head of the queue, or [] for a pre-queue, whose random order is secret."""
        if room.settings.schedule_at(room.clock.now_ms()).phase is Phase.PREQUEUE:
            return []
        rows = await list_waiting_visitors(room, start=0, limit=HEAD_SHOWN)
        return [row.model_dump(by_alias=True) for row in rows]

    def _describe_room(self, room: WaitingRoom) -> dict[str, Any]:
        snapshot, settings, now_ms = room.snapshot, room.settings, room.clock.now_ms()
        schedule = settings.schedule_at(now_ms)
        is_away = room.store.is_away or snapshot is None or now_ms - snapshot.now_ms > STALE_MS
        acts, _ = self._acts.get(room.name, ([], []))
        from_store: dict[str, Any] = {}
        if snapshot is not None:
            from_store = {
                **{name: getattr(snapshot, name) for name in SNAPSHOT_FIELDS},
                "wait_seconds": None if snapshot.wait_ms is None else snapshot.wait_ms // 1000,
                "lines": describe_sub_queues(settings, snapshot),
                "adaptive": describe_site(settings.adaptive, snapshot),
                "p90_target": settings.adaptive and settings.adaptive.p90,
                "as_of_ms": snapshot.now_ms,
                "changed": shorten_values(snapshot.overrides),
                "a_minute": self._compute_rates(room),
            }
        return {
            "room": room.name,
            "now_ms": now_ms,
            "state": name_state(settings, None if is_away else snapshot),
            "mode": settings.mode,
            "cap": settings.find_cap(snapshot.learned if snapshot else None),
            "stopped": find_stop(acts, settings, room.file_settings),
            "phase": schedule.phase,
            "event": _describe_event(schedule.event),
            "coming": _describe_event(schedule.next_event),
            "classes": list(settings.classes),
            "away": is_away,
            "on_store_failure": settings.on_store_failure,
            "site": settings.public_url,
            "settings": {name: getattr(settings, name) for name in SHOWN_SETTINGS},
            # The configured values of the settings that are shown or changed.
            "file": shorten_values(
                room.file_settings.model_dump(
                    include={*SHOWN_SETTINGS, *from_store.get("changed", ())}
                )
            ),
            **from_store,
        }

    def _compute_rates(self, room: WaitingRoom) -> dict[str, float] | None:
        """Return the room's rates per minute, or None until the counters cover 5 s."""
        snapshot = room.snapshot
        if snapshot is None:
            return None
        now_ms, counters = snapshot.now_ms, snapshot.counters
        points = self._points.setdefault(room.name, deque())
        if not points or points[-1][0] < now_ms:
            points.append((now_ms, counters))
        while len(points) > 1 and points[1][0] <= now_ms - MAX_SPAN_MS:
            points.popleft()
        since_ms, before = points[0]
        if now_ms - since_ms < MIN_SPAN_MS:
            return None
        increases = compute_growth(counters, before)
        scale = 60_000 / (now_ms - since_ms)
        counted = {"joined": ["joined"], "admitted": ["admitted"]}
        counted |= {"abandoned": [*ABANDONMENTS], "ended": [*ENDED_SESSIONS]}
        return {
            rate: scale * sum(increases.get(name, 0) for name in names)
            for rate, names in counted.items()
        }

    def _prepend_points(self, room: WaitingRoom, samples: list[dict[str, Any]]) -> None:
        """Add the last two samples from Redis before the counters that this replica has stored."""
        points = self._points.setdefault(room.name, deque())
        if room.snapshot is None or (points and points[0][0] <= room.snapshot.now_ms - MAX_SPAN_MS):
            return
        oldest_ms = points[0][0] if points else room.snapshot.now_ms
        for sample in samples[:2]:
            # A sample is recorded at the beginning of its minute.
            at_ms = sample["minute"] * 60_000
            if oldest_ms - 2 * MAX_SPAN_MS < at_ms < oldest_ms:
                points.appendleft((at_ms, sample["totals"]))


def _describe_event(event: RoomEvent | None) -> dict[str, Any] | None:
    """Return an event's times (ms) and the names of the settings that the event replaces."""
    if event is None:
        return None
    times = event.model_dump(include={"name", "prequeue_from", "opens_at", "closes_at"})
    return {**times, "replaces": list(event.overrides)}


def _chart_hour(samples: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the samples by minute, as columns, and the 50th and 90th percentile of the wait, in
    seconds, of the visitors admitted in these minutes."""
    if not samples:
        no_waits = {"half": None, "most": None}
        return {"minutes": {name: [] for name in CHART_FIELDS}, "waits": no_waits}
    until_ms = samples[0]["minute"] * MINUTE_MS
    since_ms = until_ms - HOUR_MS
    minutes = compute_steps(samples, since_ms, until_ms)
    oldest = [sample for sample in samples if sample["minute"] * MINUTE_MS >= since_ms][-1]
    waits = compute_wait_percentiles(samples[0]["totals"], oldest["totals"], (0.5, 0.9))
    return {
        "minutes": {name: [getattr(step, name) for step in minutes] for name in CHART_FIELDS},
        "waits": {
            "half": waits[0.5],
            "most": waits[0.9],
            "minutes": samples[0]["minute"] - oldest["minute"],
        },
    }


LIVE = web.AppKey("live", Live)
