"""Reads each room's calls every second, and has couriers tell them to the webhooks that ask.

As with the notifier, one replica tells of a room; what is to be told is written to the store,
together with how far was read, before anything is sent. So the next one misses nothing, and
repeats, with the same ids, what the store had not heard of yet. Who came before the message was
made is not in it, and neither is who had to come before.
"""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

import structlog

from sidecar.kit.errors import StoreError
from sidecar.webhooks.call_notices import (
    UNSENT,
    Batch,
    CallNotice,
    Cursor,
    Invitation,
    batches_of,
    claim_url,
    read_batches,
    read_cursor,
    ticket_of,
)
from sidecar.webhooks.metrics import WebhookMetrics
from sidecar.webhooks.store.calls import Call, Calls
from sidecar.webhooks.worker.sender import Courier, Result, new_session

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sidecar.kit.metrics import Metrics
    from sidecar.kit.redis.connect import Store
    from sidecar.rooms.service import Room, Rooms
    from sidecar.webhooks.settings import Webhook
    from sidecar.webhooks.worker.sender import News

LOOK_S = 1.0
TURN_MS = 5_000
#: Pages of events that are read at one look, at most.
PAGES = 100
#: Batches that one courier has at a time. The others wait in the store, and are looked at again
#: before they go: by then their visitors may have come.
IN_HAND = 20

#: What becomes of a call besides what becomes of the message that it is in.
Unsaid = Literal["came", "over", "lost"]

log = structlog.get_logger()


async def call_forever(
    rooms: Rooms,
    webhooks: Mapping[str, Webhook],
    metrics: Metrics,
    redis: Store,
    *,
    timeout_s: float,
) -> None:
    """Runs until cancelled."""
    async with new_session() as session:
        caller = Caller(rooms, metrics, redis, timeout_s=timeout_s)
        for name, webhook in webhooks.items():
            caller.add(Courier(name, webhook, session, caller.done))
        await caller.run()


@dataclass(slots=True)
class _Desk:
    """What the caller knows of one room."""

    room: Room
    calls: Calls
    #: How far was read, as this replica knew it last.
    cursor: Cursor | None = None
    #: Batches and webhooks that the couriers have, by their ids and names.
    taken: set[tuple[str, str]] = field(default_factory=set)
    #: Batches and webhooks that are over and done with.
    done: set[tuple[str, str]] = field(default_factory=set)


class Caller:
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
            calls = Calls(redis, room.name, replica=replica, timeout_s=timeout_s, turn_ms=turn_ms)
            return _Desk(room, calls)

        self.couriers: dict[str, Courier] = {}
        self._desks = {room.name: desk(room) for room in rooms}
        self._metrics = metrics.of(WebhookMetrics)

    def add(self, courier: Courier) -> None:
        self.couriers[courier.name] = courier
        for room in filter(courier.webhook.is_about, self._desks):
            for result in ("delivered", "failed", "dropped"):
                self._metrics.webhooks.labels(room, "called", result)
            for result in ("delivered", "failed", "dropped", "came", "over", "lost"):
                self._metrics.calls.labels(room, result)

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
        await asyncio.gather(
            *(self._look(desk) for name, desk in self._desks.items() if self._who_wants(name))
        )

    def done(self, webhook: str, notice: News, result: Result) -> None:
        """Told by the couriers."""
        if isinstance(notice, CallNotice):
            self._metrics.webhooks.labels(notice.room, notice.event, result).inc()
            self._count(notice.room, result, len(notice.calls))
            self._desks[notice.room].done.add((notice.id, webhook))

    def _who_wants(self, room: str) -> tuple[str, ...]:
        couriers = self.couriers.values()
        return tuple(courier.name for courier in couriers if courier.webhook.is_about(room))

    def _count(self, room: str, result: Result | Unsaid, number: int) -> None:
        self._metrics.calls.labels(room, result).inc(number)

    async def _look(self, desk: _Desk) -> None:
        room = desk.room
        if room.snapshot is None or room.store.is_away:
            return
        try:
            if await desk.calls.take_turn():
                await self._tell(desk, epoch=room.snapshot.epoch)
        except StoreError as error:
            log.warning("calls_failed", room=room.name, error=str(error))

    async def _tell(self, desk: _Desk, *, epoch: int) -> None:
        name = desk.room.name
        noted, texts = await desk.calls.load()
        cursor, found = await self._read(desk, noted)
        kept = self._open(desk, read_batches(texts))
        batches = kept | batches_of(name, found, self._who_wants(name))
        self._drop_oldest(desk, batches)
        changed = {id_: text for id_, text in _texts(batches) if texts.get(id_) != text}
        gone = [id_ for id_ in texts if id_ not in batches]
        if changed or gone or cursor.text() != noted:
            await desk.calls.note(cursor.text(), changed, gone)
        desk.cursor = cursor
        wanted = {(id_, hook) for id_, batch in batches.items() for hook in batch.webhooks}
        desk.taken &= wanted
        desk.done &= wanted  # what was done while this was written goes the next time
        for id_, batch in batches.items():
            await self._hand_out(desk, id_, batch, epoch=epoch)

    async def _read(self, desk: _Desk, noted: str | None) -> tuple[Cursor, list[Call]]:
        """How far is read now, and what was called since `noted`, which the store has."""
        room, calls = desk.room.name, desk.calls
        cursor = read_cursor(noted)
        if cursor is None:
            if desk.cursor is None:  # what was called before anybody asked is not told
                end = await calls.read("", noted="")
                return Cursor(end.until, end.ever), []
            cursor = Cursor()  # the store was emptied: all that is there is new
        known, found = cursor.until if noted else "", list[Call]()
        for _ in range(PAGES):
            page = await calls.read(cursor.until, noted=known)
            cursor, lost = cursor.after(page)
            found += page.calls
            if lost:
                self._count(room, "lost", lost)
                hint = "the stream was trimmed before they were read; calls since then are told"
                log.error("calls_lost", room=room, calls=lost, hint=hint)
            if page.is_end:
                break
        return cursor, found

    def _open(self, desk: _Desk, batches: dict[str, Batch]) -> dict[str, Batch]:
        """Without what is done, and without webhooks that are in the settings no more."""
        left = {
            id_: tuple(
                hook
                for hook in batch.webhooks
                if hook in self.couriers and (id_, hook) not in desk.done
            )
            for id_, batch in batches.items()
        }
        return {
            id_: replace(batch, webhooks=left[id_]) for id_, batch in batches.items() if left[id_]
        }

    def _drop_oldest(self, desk: _Desk, batches: dict[str, Batch]) -> None:
        """Where there are too many; what a courier has stays."""
        waiting = [
            id_
            for id_, batch in batches.items()
            if not any((id_, hook) in desk.taken for hook in batch.webhooks)
        ]
        for id_ in waiting[: max(0, len(batches) - UNSENT)]:
            batch = batches.pop(id_)
            count = len(batch.calls) * len(batch.webhooks)
            self._count(desk.room.name, "dropped", count)
            log.warning("calls_dropped", room=desk.room.name, calls=count, hint="too many wait")

    async def _hand_out(self, desk: _Desk, id_: str, batch: Batch, *, epoch: int) -> None:
        """Gives the couriers what they do not have, which is new or another replica's."""
        known = desk.taken | desk.done
        hooks = [
            hook
            for hook in batch.webhooks
            if (id_, hook) not in known and len(self.couriers[hook]) < IN_HAND
        ]
        if not hooks:
            return
        room = desk.room
        invited = await self._invited(desk, batch.calls, hooks=len(hooks), epoch=epoch)
        if not invited:
            desk.done |= {(id_, hook) for hook in hooks}
            return
        last_ms = max(call.called_ms for call in invited)
        notice = CallNotice(id_, room.name, last_ms, invited)
        ends_ms = max(call.claim_before_ms for call in invited)
        for hook in hooks:
            self.couriers[hook].bring(notice, fresh_s=(ends_ms - room.clock.now_ms()) / 1000)
            desk.taken.add((id_, hook))

    async def _invited(
        self, desk: _Desk, calls: tuple[Call, ...], *, hooks: int, epoch: int
    ) -> tuple[Invitation, ...]:
        """Those who may still come, and have not."""
        room = desk.room
        ends, inside = await desk.calls.ends([call.visitor for call in calls])
        invited, now_ms = [], room.clock.now_ms()
        for call in calls:
            ends_ms = ends.get(call.visitor, 0)
            if ends_ms <= now_ms:
                self._count(room.name, "came" if call.visitor in inside else "over", hooks)
                continue
            ticket = ticket_of(call, room.settings, epoch=epoch)
            url = claim_url(room.name, room.settings, room.tokens, ticket)
            invited.append(Invitation(call.visitor, call.at_ms, ends_ms, url))
        return tuple(invited)


def _texts(batches: dict[str, Batch]) -> list[tuple[str, str]]:
    return [(id_, batch.text()) for id_, batch in batches.items()]
