"""The events of a room that webhooks receive, and when.

Each of the room's conditions is a latch, so that nothing flaps: its event is sent when it comes
on, at most once in APART_MS, and it comes off when its opposite has held for a while.

| latch | comes on                 | comes off                        | sends                      |
|-------|--------------------------|----------------------------------|----------------------------|
| queue | somebody waits           | nobody waits for EMPTY_MS        | queue_started, queue_empty |
| over  | more than n wait         | fewer than 80 % of n wait        | queue_over                 |
| full  | all slots of a cap taken | a slot was free for FREE_MS      | room_full                  |

The latches are a Memory, which Redis keeps: the replica that looks next goes on from there. An id
is made of the memory's, so two replicas that look from the same memory give an event the same id.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Annotated

from pydantic import Field

from sidecar.rooms.redis_keys import room_key
from sidecar.rooms.service import WaitingRoom
from sidecar.rooms.store.replies import Snapshot
from sidecar.storage.redis.connect import Store
from sidecar.storage.redis.driver_errors import driver_errors, text
from sidecar.webhooks.detector import Detector
from sidecar.webhooks.latch import Latch
from sidecar.webhooks.model import Document, Notice
from sidecar.webhooks.settings import EVENTS, Event

EMPTY_MS = 10_000
FREE_MS = 60_000
#: The share of notify_above below which queue_over may be sent again.
BELOW = 0.8
#: Messages of a room that are kept while they cannot be enqueued; the oldest give way.
UNSENT = 100


@dataclass(frozen=True, slots=True)
class Unsent:
    """A message that is not enqueued yet, and the webhooks that are to receive it."""

    notice: Notice
    webhooks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Memory(Document):
    """The latches of a room. `began_ms` and `sent`, a count of the events, make the ids."""

    began_ms: int
    sent: Annotated[int, Field(alias="told")] = 0
    queue: Latch = field(default_factory=Latch)
    over: Latch = field(default_factory=Latch)
    full: Latch = field(default_factory=Latch)
    unsent: tuple[Unsent, ...] = ()


def detect(
    memory: Memory | None, room: str, snapshot: Snapshot, *, cap: int, above: int | None
) -> tuple[Memory | None, list[Notice]]:
    """Return the memory after a snapshot of a room, and the events to be sent.

    The first look at a room sends nothing: what holds then has not just begun. A room that
    recovers is not looked at, because its visitors are not back yet. `above`: its notify_above.
    """
    if snapshot.recovery_stage:
        return memory, []
    waiting, now_ms = snapshot.waiting, snapshot.now_ms
    is_full = 0 < cap <= snapshot.active
    is_over = above is not None and waiting > above
    if memory is None:
        queue, over, full = (Latch(is_on=is_on) for is_on in (waiting > 0, is_over, is_full))
        return Memory(now_ms, queue=queue, over=over, full=full), []
    after = replace(
        memory,
        queue=memory.queue.step(now_ms, rises=waiting > 0, rests=waiting == 0, rest_ms=EMPTY_MS),
        over=memory.over.step(
            now_ms, rises=is_over, rests=above is None or waiting < BELOW * above
        ),
        full=memory.full.step(now_ms, rises=is_full, rests=not is_full, rest_ms=FREE_MS),
    )
    notices = [
        Notice(
            f"{room}-{memory.began_ms}-{number}-{event}",
            event,
            room,
            now_ms,
            waiting,
            snapshot.active,
            cap,
            None if snapshot.wait_ms is None else round(snapshot.wait_ms / 1000),
            above if event == "queue_over" else None,
        )
        for number, event in enumerate(_changes(memory, after), start=memory.sent + 1)
    ]
    return replace(after, sent=memory.sent + len(notices)), notices


def _changes(before: Memory, after: Memory) -> Iterator[Event]:
    if after.full.is_on and not before.full.is_on:
        yield "room_full"
    if after.queue.is_on and not before.queue.is_on:
        yield "queue_started"
    if after.over.is_on and not before.over.is_on:
        yield "queue_over"
    if before.queue.is_on and not after.queue.is_on:
        yield "queue_empty"


class MemoryStore:
    """A room's Memory: a string, JSON. Every method raises StoreError when Redis is unavailable."""

    def __init__(self, redis: Store, room: str, timeout_s: float) -> None:
        self._redis = redis
        self._key = room_key(room, "notices")
        self._timeout_s = timeout_s
        #: The memory last read or written by this replica, for a Redis that has lost its copy.
        self.last: Memory | None = None

    async def read(self) -> str | None:
        async with driver_errors("notices", self._timeout_s):
            value = await self._redis.get(self._key)
        return None if value is None else text(value)

    async def write(self, memory: Memory, *, before: str | None = None) -> None:
        """Write a memory, unless its text is as it was before."""
        if (after := memory.text()) != before:
            async with driver_errors("notices", self._timeout_s):
                await self._redis.set(self._key, after)
        self.last = memory


class RoomDetector(Detector[MemoryStore]):
    events = EVENTS
    work = "notifying"
    failure = "notify_failed"
    open_store = MemoryStore

    async def detect(self, room: WaitingRoom, store: MemoryStore, snapshot: Snapshot) -> None:
        before = await store.read()
        memory, notices = detect(
            Memory.read(before) if before else store.last,
            room.name,
            snapshot,
            cap=room.settings.total_active_users,
            above=room.settings.notify_above,
        )
        if memory is None:
            return
        new = (Unsent(each, self.receivers(room.name, each.event)) for each in notices)
        unsent = (*memory.unsent, *(each for each in new if each.webhooks))[-UNSENT:]
        await store.write(replace(memory, unsent=unsent), before=before)
        for each in unsent:
            await self.enqueue(each.notice, each.webhooks)
        if unsent:
            await store.write(replace(memory, unsent=()))
