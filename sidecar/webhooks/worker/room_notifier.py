"""Compares each room with what was sent of it, and notifies webhooks of what has changed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sidecar.webhooks.room_notices import UNSENT, Unsent, detect, read_memory
from sidecar.webhooks.settings import EVENTS
from sidecar.webhooks.store.notices import Notices
from sidecar.webhooks.worker.notifier import LEASE_MS, Notifier

if TYPE_CHECKING:
    from sidecar.kit.metrics import Metrics
    from sidecar.kit.redis.connect import Store
    from sidecar.rooms.service import Rooms
    from sidecar.rooms.store.replies import Snapshot
    from sidecar.webhooks.room_notices import Memory, Notice
    from sidecar.webhooks.worker.notifier import Outbox


class RoomNotifier(Notifier):
    events = EVENTS
    work = "notifying"
    failure = "notify_failed"

    def __init__(
        self,
        rooms: Rooms,
        metrics: Metrics,
        redis: Store,
        *,
        timeout_s: float,
        lease_ms: int = LEASE_MS,
    ) -> None:
        super().__init__(rooms, metrics, redis, timeout_s=timeout_s, lease_ms=lease_ms)
        self._notices = {name: Notices(redis, name, timeout_s) for name in self._outboxes}
        #: As last read or written; what is left of it when the store was emptied.
        self._memories: dict[str, Memory] = {}

    async def notify(self, outbox: Outbox, snapshot: Snapshot) -> None:
        room, ledger = outbox.room, outbox.ledger
        notices = self._notices[room.name]
        text = await notices.read()
        memory, new = detect(
            read_memory(text) if text else self._memories.get(room.name),
            room.name,
            snapshot,
            cap=room.settings.total_active_users,
            above=room.settings.notify_above,
        )
        if memory is None:
            return
        memory = self._with_unsent(outbox, memory, new)
        if memory.text() != text:
            await notices.write(memory.text())
        self._memories[room.name] = memory
        unsent = {
            (one.notice.id, name): one.notice for one in memory.unsent for name in one.webhooks
        }
        ledger.keep(unsent)
        for delivery, notice in unsent.items():
            if ledger.is_new(delivery):
                age_s = max(0, snapshot.now_ms - notice.at_ms) / 1000
                ledger.taken.add(delivery)
                self.senders[delivery[1]].put(notice, age_s=age_s)

    def _with_unsent(self, outbox: Outbox, memory: Memory, new: list[Notice]) -> Memory:
        """The memory with the new notices to be sent, and without what is done."""
        unsent = [
            Unsent(one.notice, left)
            for one in (*memory.unsent, *(Unsent(n, self.receivers(n.room, n.event)) for n in new))
            if (left := self.open_for(outbox, one.notice.id, one.webhooks))
        ]
        return replace(memory, unsent=tuple(unsent[-UNSENT:]))
