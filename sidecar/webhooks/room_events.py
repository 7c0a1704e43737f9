"""Detects the events of rooms (all but calls of visitors), and enqueues messages about them.

Each condition of a room has a latch, so that short changes cause no messages. A latch turns on at
most once a minute.

| latch | turns on when           | turns off when                   | messages                   |
|-------|-------------------------|----------------------------------|----------------------------|
| queue | a visitor waits         | nobody has waited for EMPTY_MS   | queue_started, queue_empty |
| over  | more than n wait *      | fewer than 80 % of n wait        | queue_over                 |
| full  | all slots are in use    | a slot has been free for FREE_MS | room_full                  |

* n is the room's setting notify_above.

A new state of an adaptive room's site causes the message site_state, at most once a minute.

Redis stores the latches, so that another replica can continue. Two replicas that start from the
same latches give an event the same id.
"""

from dataclasses import dataclass, field, replace
from typing import Annotated

from pydantic import Field

from sidecar.rooms.adaptive.settings import AdaptiveSettings
from sidecar.rooms.adaptive.words import is_notable_change
from sidecar.rooms.redis_keys import room_key
from sidecar.rooms.service import WaitingRoom
from sidecar.rooms.statistics import describe_site
from sidecar.rooms.store.replies import Snapshot
from sidecar.storage.redis.driver_errors import driver_errors, text
from sidecar.webhooks.detector import Detector
from sidecar.webhooks.latch import MIN_INTERVAL_MS, Latch
from sidecar.webhooks.model import Document, Notice, SiteChange
from sidecar.webhooks.retention import UNSENT_LIMIT
from sidecar.webhooks.settings import ROOM_EVENT_NAMES, RoomEventName

#: How long the queue must be empty before the latch `queue` turns off, in ms.
EMPTY_MS = 10_000
#: How long a slot must be free before the latch `full` turns off, in ms.
FREE_MS = 60_000
#: The latch `over` turns off if fewer visitors than this share of notify_above wait.
OVER_OFF_SHARE = 0.8


@dataclass(frozen=True, slots=True)
class Unsent:
    """A message that is not enqueued yet, and the webhooks that receive it."""

    notice: Notice
    webhooks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Latches(Document):
    """The latches of a room, and the messages that are not enqueued yet. `began_ms` (the time of
    the first snapshot) and `event_count` (the events so far) are parts of the messages' ids."""

    began_ms: int
    event_count: Annotated[int, Field(alias="told")] = 0
    queue: Latch = field(default_factory=Latch)
    over: Latch = field(default_factory=Latch)
    full: Latch = field(default_factory=Latch)
    #: The state of an adaptive room's site in the last message, and when this was sent.
    site: str = ""
    site_ms: int = 0
    unsent: tuple[Unsent, ...] = ()


def detect_events(  # noqa: PLR0913
    before: Latches | None,
    room: str,
    snapshot: Snapshot,
    *,
    cap: int,
    above: int | None,
    adaptive: AdaptiveSettings | None = None,
) -> tuple[Latches | None, list[Notice]]:
    """Return the latches after a snapshot of a room, and the messages to send.

    `before` is None at the first snapshot, which causes no messages, because its conditions may
    have been true for a long time. A snapshot during a recovery is ignored, because
    visitors are still missing. `above` is the room's notify_above.
    """
    if snapshot.recovery_stage:
        return before, []
    waiting, now_ms = snapshot.waiting, snapshot.now_ms
    site = describe_site(adaptive, snapshot)
    state = site["state"] if site else ""
    is_full = 0 < cap <= snapshot.active
    is_over = above is not None and waiting > above
    if before is None:
        queue, over, full = (Latch(is_on=is_on) for is_on in (waiting > 0, is_over, is_full))
        return Latches(now_ms, queue=queue, over=over, full=full, site=state), []
    is_below = above is None or waiting < OVER_OFF_SHARE * above
    queue = before.queue.update(
        now_ms, turn_on=waiting > 0, turn_off=waiting == 0, off_after_ms=EMPTY_MS
    )
    over = before.over.update(now_ms, turn_on=is_over, turn_off=is_below)
    full = before.full.update(now_ms, turn_on=is_full, turn_off=not is_full, off_after_ms=FREE_MS)
    changes: list[tuple[RoomEventName, bool]] = [
        ("room_full", full.is_on and not before.full.is_on),
        ("queue_started", queue.is_on and not before.queue.is_on),
        ("queue_over", over.is_on and not before.over.is_on),
        ("queue_empty", before.queue.is_on and not queue.is_on),
    ]
    events = [event for event, has_happened in changes if has_happened]
    wait_s = None if snapshot.wait_ms is None else round(snapshot.wait_ms / 1000)
    notices = []
    for number, event in enumerate(events, start=before.event_count + 1):
        id_ = f"{room}-{before.began_ms}-{number}-{event}"
        threshold = above if event == "queue_over" else None
        notices.append(
            Notice(id_, event, room, now_ms, waiting, snapshot.active, cap, wait_s, threshold)
        )
    last_state, last_ms = before.site or state, before.site_ms
    if site and is_notable_change(last_state, state) and now_ms - last_ms >= MIN_INTERVAL_MS:
        id_ = f"{room}-{before.began_ms}-{before.event_count + len(notices) + 1}-site_state"
        change = SiteChange(state, last_state, site["text"], site["ceiling"])
        numbers = waiting, snapshot.active, cap, wait_s
        notices.append(Notice(id_, "site_state", room, now_ms, *numbers, site=change))
        last_state, last_ms = state, now_ms
    after = replace(before, event_count=before.event_count + len(notices), site=last_state)
    return replace(after, queue=queue, over=over, full=full, site_ms=last_ms), notices


class RoomDetector(Detector):
    """Detects all events of rooms except calls."""

    events = (*ROOM_EVENT_NAMES, "site_state")
    lease_name = "notifying"
    failure_event = "notify_failed"

    async def handle_snapshot(self, room: WaitingRoom, snapshot: Snapshot) -> None:
        async with driver_errors("notices", self.timeout_s):
            stored = await self.redis.get(room_key(room.name, "notices"))
        latches, notices = detect_events(
            Latches.read(stored) if stored else self.last_states.get(room.name),
            room.name,
            snapshot,
            cap=room.settings.find_cap(snapshot.learned),
            above=room.settings.notify_above,
            adaptive=room.settings.adaptive,
        )
        if latches is None:
            return
        new = (Unsent(notice, self.find_subscribers(room.name, notice.event)) for notice in notices)
        unsent = (*latches.unsent, *(unsent for unsent in new if unsent.webhooks))[-UNSENT_LIMIT:]
        await self._store(room.name, replace(latches, unsent=unsent), stored)
        for message in unsent:
            await self.enqueue(message.notice, message.webhooks)
        if unsent:
            await self._store(room.name, replace(latches, unsent=()), None)

    async def _store(self, room: str, latches: Latches, stored: bytes | str | None) -> None:
        """Store latches, unless they are equal to those that Redis has (`stored`)."""
        if stored is None or latches.to_json() != text(stored):
            async with driver_errors("notices", self.timeout_s):
                await self.redis.set(room_key(room, "notices"), latches.to_json())
        self.last_states[room] = latches
