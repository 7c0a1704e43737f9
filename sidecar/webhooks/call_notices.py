"""What is sent to webhooks about visitors who were called.

A room's event stream has its calls. How far it was read is kept in Redis (`calls`, a hash),
together with what was read and is not sent yet, before anything is sent: the next replica goes on
from there. Meanwhile `called` says how far the recorder may trim the stream. Visitors who came
before a message was made are not in it, and neither are those whose time to come is over.
"""

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any, Literal

import structlog

from sidecar.kit.outbox import Result
from sidecar.rooms.redis_keys import called_key, room_key
from sidecar.rooms.service import Room
from sidecar.rooms.settings import RoomSettings
from sidecar.rooms.store.replies import Snapshot
from sidecar.storage.redis.connect import Store
from sidecar.storage.redis.driver_errors import driver_errors, text
from sidecar.visitors.model import Ticket
from sidecar.visitors.tokens import Tokens
from sidecar.webhooks.model import AnyNotice, CallNotice, Document, Invitation
from sidecar.webhooks.notifier import Notifier, Outbox, WebhookSender

#: Calls in one notice.
BATCH = 100
#: Batches on their way that are kept in Redis; the oldest give way.
UNSENT = 100
#: Pages of events that are read at one look, at most.
PAGES = 100
#: Batches that one sender has at a time. The others wait in Redis, and are looked at again before
#: they go: by then their visitors may have come.
IN_HAND = 20
#: Events read at a time: Redis does nothing else meanwhile, for some 3 ms.
PAGE = 200
#: What was read is forgotten when nobody has read for so long: the calls are over.
KEPT_S = 3 * 3600
#: For how long the recorder waits for a silent reader.
HELD_S = 60
START = "0-0"
_CURSOR = "cursor"

# KEYS   events, stats, the calls, how far was read   ARGV  from where to read, '': the end; how far
# was read and noted, ''; how many events; HELD_S; KEPT_S
# Returns how far it has read; whether that is the end; the calls; how many calls there ever were;
# whether the event to read from is gone.
_READ = """
local from, noted = ARGV[1], ARGV[2]
local ever = redis.call('HGET', KEYS[2], 'called') or '0'
if from == '' then
  local last = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
  return {last and last[1] or '0-0', 1, {}, ever, 0}
end
if noted ~= '' then
  redis.call('SET', KEYS[4], noted, 'EX', ARGV[4])
  redis.call('EXPIRE', KEYS[3], ARGV[5])
end
local rows = redis.call('XRANGE', KEYS[1], '(' .. from, '+', 'COUNT', ARGV[3])
local calls, last = {}, from
for _, row in ipairs(rows) do
  last = row[1]
  if row[2][1] == 'kind' and row[2][2] == 'called' then calls[#calls + 1] = row end
end
local is_gone = from ~= '0-0' and #redis.call('XRANGE', KEYS[1], from, from) == 0
return {last, #rows < tonumber(ARGV[3]) and 1 or 0, calls, ever, is_gone and 1 or 0}
"""

#: What becomes of a call besides what becomes of the message that it is in.
Unsent = Literal["came", "over", "lost"]

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Call:
    """One call as the stream has it. `order` and `joined_ms` make the visitor's ticket; None where
    the event does not say them."""

    id: str
    visitor: str
    at_ms: int
    order: int | None = None
    joined_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """Calls after a place in the stream."""

    calls: list[Call]
    #: How far this page goes, and whether that is the stream's end.
    until: str
    is_end: bool
    #: How many calls the room ever had, at this moment.
    ever: int
    #: Whether the event that it goes on from was trimmed.
    is_gone: bool


@dataclass(frozen=True, slots=True)
class Cursor(Document):
    """How far a room's events were read, and how many calls the room had had until there."""

    until: str = START
    ever: int = 0

    def after(self, page: Page) -> "tuple[Cursor, int]":
        """How far it is read with this page, and how many calls were lost: trimmed before
        anybody had read them. That is known at the stream's end."""
        ever = self.ever + len(page.calls)
        if not page.is_end:
            return Cursor(page.until, ever), 0
        # A room that comes from another store brings a higher number along.
        lost = max(0, page.ever - ever) if page.is_gone else 0
        return Cursor(page.until, page.ever), lost


@dataclass(frozen=True, slots=True)
class Batch(Document):
    """Calls that are sent together, and the webhooks that do not have them."""

    calls: tuple[Call, ...]
    webhooks: tuple[str, ...]


def read_batches(texts: dict[str, str]) -> dict[str, Batch]:
    """By id, oldest first. What cannot be read is left out."""
    found = [(name, batch) for name, text in texts.items() if (batch := Batch.read(text))]
    return dict(sorted(found, key=lambda item: _place(item[1].calls[0].id)))


def _place(event_id: str) -> tuple[int, int]:
    ms, _, seq = event_id.partition("-")
    return int(ms), int(seq)


def batches_of(room: str, calls: list[Call], webhooks: tuple[str, ...]) -> dict[str, Batch]:
    """By id. Two replicas that read the same calls give them the same ids."""
    made = {}
    for start in range(0, len(calls), BATCH):
        part = calls[start : start + BATCH]
        made[f"{room}-{part[0].id}-{part[-1].id}-called"] = Batch(tuple(part), webhooks)
    return made


def ticket_of(call: Call, settings: RoomSettings, *, epoch: int) -> Ticket:
    """The ticket that the called visitor has, as far as the call tells. What it does not tell is
    made of the time of the call: that counts only where Redis is emptied before they come."""
    order = call.at_ms * 1000 if call.order is None else call.order
    joined_ms = call.joined_ms
    if joined_ms is None:
        is_time = settings.queueing_method == "fifo" and 0 < order <= call.at_ms * 1000
        joined_ms = order // 1000 if is_time else call.at_ms
    return Ticket(call.visitor, order, joined_ms, epoch)


def claim_url(room: str, settings: RoomSettings, tokens: Tokens, ticket: Ticket) -> str:
    """Where a ticket is taken to another browser; without the room's `public_url`, the path."""
    return f"{settings.public_url or ''}/_waitroom/{room}/claim?token={tokens.write_claim(ticket)}"


class Calls:
    """Of one room. Every method raises StoreError when Redis is unavailable."""

    def __init__(self, redis: Store, room: str, timeout_s: float) -> None:
        self._redis: Any = redis
        self._room = room
        self._key = room_key(room, "calls")
        self._timeout_s = timeout_s
        #: How far was read, as this replica knew it last.
        self.last: Cursor | None = None

    async def load(self) -> tuple[str | None, dict[str, str]]:
        """What was noted of how far it was read, and of each batch that is not sent to all, by its
        id. None: nobody has ever read, or not for long."""
        async with driver_errors("calls", self._timeout_s):
            found = await self._redis.hgetall(self._key)
        noted = {text(name): text(value) for name, value in found.items()}
        return noted.pop(_CURSOR, None), noted

    async def read(self, start: str, *, noted: str) -> Page:
        """The next page after `start`; of the end, where that is empty. `noted`: how far was read
        and noted; the recorder may trim until there."""
        stream, stats = (room_key(self._room, name) for name in ("events", "stats"))
        keys = [stream, stats, self._key, called_key(self._room)]
        async with driver_errors("calls", self._timeout_s):
            until, is_end, rows, ever, is_gone = await self._redis.eval(
                _READ, len(keys), *keys, start, noted, PAGE, HELD_S, KEPT_S
            )
        calls = [_call(event_id, fields) for event_id, fields in rows]
        return Page(calls, text(until), bool(is_end), int(text(ever)), bool(is_gone))

    async def note(self, cursor: str, batches: dict[str, str], gone: list[str]) -> None:
        """How far was read, together with the batches that are new or were changed; and takes out
        those that are done."""
        async with driver_errors("calls", self._timeout_s):
            await self._redis.hset(self._key, mapping={_CURSOR: cursor, **batches})
            if gone:
                await self._redis.hdel(self._key, *gone)

    async def ends(self, visitors: list[str]) -> tuple[dict[str, int], set[str]]:
        """Until when those of them who are called, and not yet arrived, have to come (ms); and
        those who are inside."""
        async with driver_errors("calls", self._timeout_s):
            ends = await self._redis.zmscore(room_key(self._room, "active"), visitors)
            started = await self._redis.zmscore(room_key(self._room, "admitted"), visitors)
        inside = {v for v, at in zip(visitors, started, strict=True) if at is not None}
        called = zip(visitors, ends, strict=True)
        return {v: int(at) for v, at in called if at is not None and v not in inside}, inside


def _call(event_id: bytes | str, fields: list[bytes | str]) -> Call:
    words = [text(field) for field in fields]
    said = dict(zip(words[::2], words[1::2], strict=True))
    order, joined = said.get("order"), said.get("joined")
    return Call(
        text(event_id),
        said["visitor"],
        int(said["at"]),
        None if order is None else int(float(order)),  # exact: it is a double in the store
        None if joined is None else int(joined),
    )


class CallNotifier(Notifier[Calls]):
    events = ("called",)
    work = "calling"
    failure = "calls_failed"
    open_store = Calls

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
        invited, others = await invite(outbox.room, outbox.store, calls, epoch=epoch)
        for why, number in others.items():
            self._count(outbox.room.name, why, number * times)
        return invited


async def invite(
    room: Room, store: Calls, calls: tuple[Call, ...], *, epoch: int
) -> tuple[tuple[Invitation, ...], Counter[Unsent]]:
    """Of the visitors who may still come, and have not; and how many others there are."""
    ends, inside = await store.ends([call.visitor for call in calls])
    invited, others, now_ms = [], Counter[Unsent](), room.clock.now_ms()
    for call in calls:
        ends_ms = ends.get(call.visitor, 0)
        if ends_ms <= now_ms:
            others["came" if call.visitor in inside else "over"] += 1
            continue
        ticket = ticket_of(call, room.settings, epoch=epoch)
        url = claim_url(room.name, room.settings, room.tokens, ticket)
        invited.append(Invitation(call.visitor, call.at_ms, ends_ms, url))
    return tuple(invited), others
