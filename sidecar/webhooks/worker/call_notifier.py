"""Reads each room's calls, and notifies the webhooks that ask for them.

What is to be sent is written to Redis together with how far was read, before anything is sent.
Visitors who came before a message was made are not in it, and neither are those whose time to come
is over.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import structlog

from sidecar.webhooks.call_notices import (
    UNSENT,
    Batch,
    CallNotice,
    Invitation,
    batches_of,
    claim_url,
    read_batches,
    ticket_of,
)
from sidecar.webhooks.store.calls import Call, Calls, Cursor
from sidecar.webhooks.worker.notifier import Notifier

if TYPE_CHECKING:
    from sidecar.kit.outbox import Result
    from sidecar.kit.redis.connect import Store
    from sidecar.rooms.store.replies import Snapshot
    from sidecar.webhooks.worker.notifier import Outbox
    from sidecar.webhooks.worker.sender import AnyNotice, WebhookSender

#: Pages of events that are read at one look, at most.
PAGES = 100
#: Batches that one sender has at a time. The others wait in Redis, and are looked at again before
#: they go: by then their visitors may have come.
IN_HAND = 20

#: What becomes of a call besides what becomes of the message that it is in.
Unsent = Literal["came", "over", "lost"]

log = structlog.get_logger()


class CallNotifier(Notifier[Calls]):
    events = ("called",)
    work = "calling"
    failure = "calls_failed"

    @staticmethod
    def open_store(redis: Store, room: str, timeout_s: float) -> Calls:
        return Calls(redis, room, timeout_s)

    def add(self, sender: WebhookSender) -> None:
        super().add(sender)
        for room in filter(sender.webhook.is_about, self.outboxes):
            for result in ("delivered", "failed", "dropped", "came", "over", "lost"):
                self._metrics.calls.labels(room, result)

    def done(self, webhook: str, notice: AnyNotice, result: Result) -> None:
        super().done(webhook, notice, result)
        if isinstance(notice, CallNotice):
            self._count(notice.room, result, len(notice.calls))

    def _count(self, room: str, result: Result | Unsent, number: int) -> None:
        self._metrics.calls.labels(room, result).inc(number)

    async def notify(self, outbox: Outbox[Calls], snapshot: Snapshot) -> None:
        room, calls = outbox.room.name, outbox.store
        noted, texts = await calls.load()
        cursor, found = await self._read(room, calls, noted)
        batches = {
            id_: replace(batch, webhooks=left)
            for id_, batch in read_batches(texts).items()
            if (left := self.open_for(outbox, id_, batch.webhooks))
        } | batches_of(room, found, self.receivers(room, "called"))
        self._drop_oldest(outbox, batches)
        written = {id_: batch.text() for id_, batch in batches.items()}
        changed = dict(written.items() - texts.items())
        gone = [id_ for id_ in texts if id_ not in batches]
        if changed or gone or cursor.text() != noted:
            await calls.note(cursor.text(), changed, gone)
        calls.last = cursor
        outbox.ledger.keep({(id_, w) for id_, batch in batches.items() for w in batch.webhooks})
        for id_, batch in batches.items():
            await self._hand_out(outbox, id_, batch, epoch=snapshot.epoch)

    async def _read(self, room: str, calls: Calls, noted: str | None) -> tuple[Cursor, list[Call]]:
        """How far is read now, and what was called since `noted`, which Redis has."""
        cursor = Cursor.read(noted)
        if cursor is None:
            if calls.last is None:  # what was called before anybody asked is not sent
                end = await calls.read("", noted="")
                return Cursor(end.until, end.ever), []
            cursor = Cursor()  # Redis was emptied: all that is there is new
        known, found = cursor.until if noted else "", list[Call]()
        for _ in range(PAGES):
            page = await calls.read(cursor.until, noted=known)
            cursor, lost = cursor.after(page)
            found += page.calls
            if lost:
                self._count(room, "lost", lost)
                hint = "the stream was trimmed before they were read; calls since then are sent"
                log.error("calls_lost", room=room, calls=lost, hint=hint)
            if page.is_end:
                break
        return cursor, found

    def _drop_oldest(self, outbox: Outbox[Calls], batches: dict[str, Batch]) -> None:
        """Where there are too many; what a sender has stays."""
        taken, room = outbox.ledger.taken, outbox.room.name
        waiting = [
            id_
            for id_, batch in batches.items()
            if not any((id_, webhook) in taken for webhook in batch.webhooks)
        ]
        for id_ in waiting[: max(0, len(batches) - UNSENT)]:
            batch = batches.pop(id_)
            count = len(batch.calls) * len(batch.webhooks)
            self._count(room, "dropped", count)
            log.warning("calls_dropped", room=room, calls=count, hint="too many wait")

    async def _hand_out(self, outbox: Outbox[Calls], id_: str, batch: Batch, *, epoch: int) -> None:
        """Gives the senders what they do not have, which is new or another replica's."""
        room, ledger = outbox.room, outbox.ledger
        senders = [
            sender
            for sender in map(self.senders.__getitem__, batch.webhooks)
            if ledger.is_new((id_, sender.name)) and len(sender) < IN_HAND
        ]
        if not senders:
            return
        deliveries = {(id_, sender.name) for sender in senders}
        invited = await self._invite(outbox, batch.calls, times=len(senders), epoch=epoch)
        if not invited:
            ledger.done |= deliveries
            return
        notice = CallNotice(id_, room.name, max(call.called_ms for call in invited), invited)
        ends_ms = max(call.claim_before_ms for call in invited)
        ledger.taken |= deliveries
        for sender in senders:
            sender.put(notice, fresh_s=(ends_ms - room.clock.now_ms()) / 1000)

    async def _invite(
        self, outbox: Outbox[Calls], calls: tuple[Call, ...], *, times: int, epoch: int
    ) -> tuple[Invitation, ...]:
        """Of the visitors who may still come, and have not."""
        room = outbox.room
        ends, inside = await outbox.store.ends([call.visitor for call in calls])
        invited, now_ms = [], room.clock.now_ms()
        for call in calls:
            ends_ms = ends.get(call.visitor, 0)
            if ends_ms <= now_ms:
                self._count(room.name, "came" if call.visitor in inside else "over", times)
                continue
            ticket = ticket_of(call, room.settings, epoch=epoch)
            url = claim_url(room.name, room.settings, room.tokens, ticket)
            invited.append(Invitation(call.visitor, call.at_ms, ends_ms, url))
        return tuple(invited)
