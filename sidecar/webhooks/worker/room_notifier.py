"""Looks at every room each second, and has couriers tell the webhooks what has changed.

One replica tells of a room: it has the turn, and another takes it when nothing was heard of
the first for TURN_MS. What was told, and what is on its way, is written to the store before it
is sent, so that the next one misses nothing. What was delivered in the last moment before a
replica died comes again, with the same id.
"""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import structlog

from sidecar.kit.errors import StoreError
from sidecar.webhooks.metrics import WebhookMetrics
from sidecar.webhooks.room_notices import UNSENT, Memory, Unsent, detect, read_memory
from sidecar.webhooks.store.notices import Notices
from sidecar.webhooks.worker.sender import Courier, Result, new_session

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sidecar.kit.metrics import Metrics
    from sidecar.kit.redis.connect import Store
    from sidecar.rooms.service import Room, Rooms
    from sidecar.webhooks.room_notices import Notice
    from sidecar.webhooks.settings import Webhook
    from sidecar.webhooks.worker.sender import News

LOOK_S = 1.0
TURN_MS = 5_000

log = structlog.get_logger()


async def notify_forever(
    rooms: Rooms,
    webhooks: Mapping[str, Webhook],
    metrics: Metrics,
    redis: Store,
    *,
    timeout_s: float,
) -> None:
    """Runs until cancelled."""
    async with new_session() as session:
        notifier = Notifier(rooms, metrics, redis, timeout_s=timeout_s)
        for name, webhook in webhooks.items():
            notifier.add(Courier(name, webhook, session, notifier.done))
        try:
            await notifier.run()
        finally:
            undelivered = sum(len(courier) for courier in notifier.couriers.values())
            if undelivered:
                hint = "another replica sends them, or this one when it is back"
                log.warning("webhooks_undelivered", count=undelivered, hint=hint)


@dataclass(slots=True)
class _Desk:
    """What the notifier knows of one room."""

    room: Room
    notices: Notices
    #: As last read or written; what is left of it when the store was emptied.
    memory: Memory | None = None
    #: Notices and webhooks that the couriers have, by their ids and names.
    taken: set[tuple[str, str]] = field(default_factory=set)
    #: Those of them that are over and done with.
    done: set[tuple[str, str]] = field(default_factory=set)


class Notifier:
    """Couriers are added before it runs."""

    def __init__(
        self,
        rooms: Rooms,
        metrics: Metrics,
        redis: Store,
        *,
        timeout_s: float,
        turn_ms: int = TURN_MS,
    ) -> None:
        replica = secrets.token_urlsafe(9)

        def desk(room: Room) -> _Desk:
            notices = Notices(
                redis, room.name, replica=replica, timeout_s=timeout_s, turn_ms=turn_ms
            )
            return _Desk(room, notices)

        self.couriers: dict[str, Courier] = {}
        self._desks = {room.name: desk(room) for room in rooms}
        self._metrics = metrics.of(WebhookMetrics)

    def add(self, courier: Courier) -> None:
        self.couriers[courier.name] = courier
        for room in filter(courier.webhook.is_about, self._desks):
            for event in courier.webhook.events:
                for result in ("delivered", "failed", "dropped"):
                    self._metrics.webhooks.labels(room, event, result)

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            for courier in self.couriers.values():
                group.create_task(courier.run())
            while True:
                await self.look()
                await asyncio.sleep(LOOK_S)

    async def look(self) -> None:
        """Once at every room that a webhook is about and whose store answers."""
        hooks = [courier.webhook for courier in self.couriers.values()]
        await asyncio.gather(
            *(
                self._look(desk)
                for name, desk in self._desks.items()
                if any(hook.is_about(name) for hook in hooks)
            )
        )

    def done(self, webhook: str, notice: News, result: Result) -> None:
        """Told by the couriers."""
        self._metrics.webhooks.labels(notice.room, notice.event, result).inc()
        self._desks[notice.room].done.add((notice.id, webhook))

    async def _look(self, desk: _Desk) -> None:
        room = desk.room
        if room.snapshot is None or room.store.is_away:
            return
        try:
            if not await desk.notices.take_turn():
                return
            text = await desk.notices.read()
            memory, notices = detect(
                read_memory(text) if text else desk.memory,
                room.name,
                room.snapshot,
                cap=room.settings.total_active_users,
                above=room.settings.notify_above,
            )
            if memory is None:
                return
            memory = self._with_unsent(desk, memory, notices)
            if memory.text() != text:
                await desk.notices.write(memory.text())
        except StoreError as error:
            log.warning("notify_failed", room=room.name, error=str(error))
            return
        desk.memory = memory
        self._hand_out(desk, now_ms=room.snapshot.now_ms)

    def _with_unsent(self, desk: _Desk, memory: Memory, notices: list[Notice]) -> Memory:
        """The memory with the new notices to be sent, and without what is done."""
        unsent = []
        for one in (*memory.unsent, *(Unsent(new, self._who_wants(new)) for new in notices)):
            left = tuple(name for name in one.webhooks if self._is_open(desk, one.notice, name))
            if left:
                unsent.append(Unsent(one.notice, left))
        return replace(memory, unsent=tuple(unsent[-UNSENT:]))

    def _who_wants(self, notice: Notice) -> tuple[str, ...]:
        return tuple(
            name
            for name, courier in self.couriers.items()
            if notice.event in courier.webhook.events and courier.webhook.is_about(notice.room)
        )

    def _is_open(self, desk: _Desk, notice: Notice, webhook: str) -> bool:
        """Whether it is still to be sent; not to a webhook that is in the settings no more."""
        return webhook in self.couriers and (notice.id, webhook) not in desk.done

    def _hand_out(self, desk: _Desk, *, now_ms: int) -> None:
        """Gives the couriers what they do not have, which is new or another replica's."""
        memory = desk.memory
        if memory is None:
            return
        unsent = {
            (one.notice.id, name): one.notice for one in memory.unsent for name in one.webhooks
        }
        for key, notice in unsent.items():
            if key not in desk.taken:
                self.couriers[key[1]].bring(notice, age_s=max(0, now_ms - notice.at_ms) / 1000)
        desk.taken = set(unsent)
        desk.done &= desk.taken  # what was done while the memory was written goes the next time
