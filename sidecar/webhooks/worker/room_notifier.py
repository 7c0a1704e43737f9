"""Compares each room with what was sent of it, and notifies webhooks of what has changed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sidecar.webhooks.room_notices import UNSENT, Memory, Unsent, detect
from sidecar.webhooks.settings import EVENTS
from sidecar.webhooks.store.notices import Notices
from sidecar.webhooks.worker.notifier import Notifier

if TYPE_CHECKING:
    from sidecar.kit.redis.connect import Store
    from sidecar.rooms.store.replies import Snapshot
    from sidecar.webhooks.room_notices import Notice
    from sidecar.webhooks.worker.notifier import Outbox


class RoomNotifier(Notifier[Notices]):
    events = EVENTS
    work = "notifying"
    failure = "notify_failed"

    @staticmethod
    def open_store(redis: Store, room: str, timeout_s: float) -> Notices:
        return Notices(redis, room, timeout_s)

    async def notify(self, outbox: Outbox[Notices], snapshot: Snapshot) -> None:
        room, store, ledger = outbox.room, outbox.store, outbox.ledger
        text = await store.read()
        memory, new = detect(
            Memory.read(text) if text else store.last,
            room.name,
            snapshot,
            cap=room.settings.total_active_users,
            above=room.settings.notify_above,
        )
        if memory is None:
            return
        memory = self._with_unsent(outbox, memory, new)
        if memory.text() != text:
            await store.write(memory.text())
        store.last = memory
        unsent = {
            (one.notice.id, name): one.notice for one in memory.unsent for name in one.webhooks
        }
        ledger.keep(unsent)
        for delivery, notice in unsent.items():
            if ledger.is_new(delivery):
                age_s = max(0, snapshot.now_ms - notice.at_ms) / 1000
                ledger.taken.add(delivery)
                self.senders[delivery[1]].put(notice, age_s=age_s)

    def _with_unsent(self, outbox: Outbox[Notices], memory: Memory, new: list[Notice]) -> Memory:
        """The memory with the new notices to be sent, and without what is done."""
        unsent = [
            Unsent(one.notice, left)
            for one in (*memory.unsent, *(Unsent(n, self.receivers(n.room, n.event)) for n in new))
            if (left := self.open_for(outbox, one.notice.id, one.webhooks))
        ]
        return replace(memory, unsent=tuple(unsent[-UNSENT:]))
