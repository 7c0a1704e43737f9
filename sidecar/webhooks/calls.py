"""The visitors of a room who were called, as webhooks receive them.

A room's event stream has its calls. How far it was read is kept in Redis (`calls`, a hash),
together with what was read and is not enqueued yet. Meanwhile `called` tells the recorder how far
it may trim the stream. Visitors who have arrived before a message is sent are not in it, and
neither are those whose call has expired.
"""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any, Literal

import structlog

from sidecar.rooms.redis_keys import called_key, room_key
from sidecar.rooms.service import WaitingRoom
from sidecar.rooms.settings import RoomSettings
from sidecar.rooms.store.replies import Snapshot
from sidecar.storage.redis.connect import Store
from sidecar.storage.redis.driver_errors import driver_errors, text
from sidecar.storage.redis.lua_source import source
from sidecar.visitors.model import Ticket
from sidecar.visitors.tokens import Tokens
from sidecar.webhooks.detector import Detector
from sidecar.webhooks.model import CalledVisitor, CallNotice, Document

#: Calls in one message.
BATCH = 100
#: Batches of a room that are kept while they cannot be enqueued; the oldest give way.
UNSENT = 100
#: Pages of events that are read at one look, at most.
PAGES = 100
#: Events read at a time: Redis does nothing else meanwhile, for some 3 ms.
PAGE = 200
#: How long after the last look the cursor is kept, in seconds: later, the calls have expired.
KEPT_S = 3 * 3600
#: How long after the last look the recorder still waits for it, in seconds.
HELD_S = 60
START = "0-0"
_CURSOR = "cursor"

#: Why a call is left out of a message.
LeftOut = Literal["came", "over"]

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class CallEvent:
    """A call in the stream. `order` and `joined_ms` make the visitor's ticket. None: the event does
    not say them."""

    id: str
    visitor: str
    at_ms: int
    order: int | None = None
    joined_ms: int | None = None


@dataclass(frozen=True, slots=True)
class CallPage:
    """Calls after a place in the stream."""

    calls: list[CallEvent]
    #: How far this page goes, and whether that is the stream's end.
    until: str
    is_end: bool
    #: How many calls the room ever had, at this moment.
    ever: int
    #: Whether the event that the page follows was trimmed.
    is_gone: bool


@dataclass(frozen=True, slots=True)
class Cursor(Document):
    """How far a room's events were read, and how many calls the room had had until there."""

    until: str = START
    ever: int = 0

    def after(self, page: CallPage) -> "tuple[Cursor, int]":
        """Return the cursor after a page, and how many calls were trimmed before they were read.

        The number is known at the stream's end.
        """
        ever = self.ever + len(page.calls)
        if not page.is_end:
            return Cursor(page.until, ever), 0
        # A room that comes from another store brings a higher number along.
        lost = max(0, page.ever - ever) if page.is_gone else 0
        return Cursor(page.until, page.ever), lost


@dataclass(frozen=True, slots=True)
class Batch(Document):
    """Calls in one message that is not enqueued yet, and the webhooks that are to receive it."""

    calls: tuple[CallEvent, ...]
    webhooks: tuple[str, ...]

    def notice(self, id_: str, room: str) -> CallNotice:
        calls = (
            CalledVisitor(call.visitor, call.at_ms, order=call.order, joined_ms=call.joined_ms)
            for call in self.calls
        )
        return CallNotice(id_, room, max(call.at_ms for call in self.calls), tuple(calls))


def read_batches(texts: dict[str, str]) -> dict[str, Batch]:
    """Return the batches by id, oldest first, without those that cannot be read."""
    read = [(id_, batch) for id_, text in texts.items() if (batch := Batch.read(text))]
    return dict(sorted(read, key=lambda item: _place(item[1].calls[0].id)))


def _place(event_id: str) -> tuple[int, int]:
    ms, _, seq = event_id.partition("-")
    return int(ms), int(seq)


def batches_of(room: str, calls: list[CallEvent], webhooks: tuple[str, ...]) -> dict[str, Batch]:
    """Return the batches by id. The same calls have the same ids at every replica."""
    parts = (calls[start : start + BATCH] for start in range(0, len(calls), BATCH))
    return {
        f"{room}-{part[0].id}-{part[-1].id}-called": Batch(tuple(part), webhooks) for part in parts
    }


def ticket_of(call: CalledVisitor, settings: RoomSettings, *, epoch: int) -> Ticket:
    """Return the ticket of a called visitor, as far as the call's event tells.

    What the event does not tell is made of the time of the call, which counts only where Redis is
    emptied before the visitor comes.
    """
    order = call.called_ms * 1000 if call.order is None else call.order
    joined_ms = call.joined_ms
    if joined_ms is None:
        is_time = settings.queueing_method == "fifo" and 0 < order <= call.called_ms * 1000
        joined_ms = order // 1000 if is_time else call.called_ms
    return Ticket(call.visitor, order, joined_ms, epoch)


def claim_url(room: str, settings: RoomSettings, tokens: Tokens, ticket: Ticket) -> str:
    """Return the link that claims a call in any browser; without `public_url`, its path."""
    return f"{settings.public_url or ''}/_waitroom/{room}/claim?token={tokens.write_claim(ticket)}"


class CallStore:
    """The calls of a room in Redis. Every method raises StoreError when Redis is unavailable."""

    def __init__(self, redis: Store, room: str, timeout_s: float) -> None:
        self._redis: Any = redis
        self._room = room
        self._key = room_key(room, "calls")
        self._timeout_s = timeout_s
        #: How far was read, as this replica last wrote it.
        self.last: Cursor | None = None

    async def load(self) -> tuple[str | None, dict[str, str]]:
        """Return the text of the cursor, and of each batch that is not enqueued yet, by its id.

        The cursor is None if no replica has read the room's calls for KEPT_S.
        """
        async with driver_errors("calls", self._timeout_s):
            fields = await self._redis.hgetall(self._key)
        noted = {text(name): text(value) for name, value in fields.items()}
        return noted.pop(_CURSOR, None), noted

    async def read(self, start: str, *, noted: str) -> CallPage:
        """Return the page after an event; after the last one if `start` is empty.

        `noted`: the cursor in Redis, up to which the recorder may trim.
        """
        stream, stats = (room_key(self._room, name) for name in ("events", "stats"))
        keys = [stream, stats, self._key, called_key(self._room)]
        async with driver_errors("calls", self._timeout_s):
            until, is_end, rows, ever, is_gone = await self._redis.eval(
                source("webhooks/read_calls"), len(keys), *keys, start, noted, PAGE, HELD_S, KEPT_S
            )
        calls = [_call(event_id, fields) for event_id, fields in rows]
        return CallPage(calls, text(until), bool(is_end), int(text(ever)), bool(is_gone))

    async def note(self, cursor: str, batches: dict[str, str]) -> None:
        """Write how far was read, together with the batches that are new."""
        async with driver_errors("calls", self._timeout_s):
            await self._redis.hset(self._key, mapping={_CURSOR: cursor, **batches})

    async def forget(self, ids: Collection[str]) -> None:
        """Take out batches that are enqueued."""
        if ids:
            async with driver_errors("calls", self._timeout_s):
                await self._redis.hdel(self._key, *ids)

    async def ends(self, visitors: list[str]) -> tuple[dict[str, int], set[str]]:
        """Return when the calls of visitors expire (ms), and which visitors have arrived."""
        async with driver_errors("calls", self._timeout_s):
            ends = await self._redis.zmscore(room_key(self._room, "active"), visitors)
            started = await self._redis.zmscore(room_key(self._room, "admitted"), visitors)
        inside = {v for v, at in zip(visitors, started, strict=True) if at is not None}
        called = zip(visitors, ends, strict=True)
        return {v: int(at) for v, at in called if at is not None and v not in inside}, inside


def _call(event_id: bytes | str, fields: list[bytes | str]) -> CallEvent:
    words = [text(field) for field in fields]
    values = dict(zip(words[::2], words[1::2], strict=True))
    order, joined = values.get("order"), values.get("joined")
    return CallEvent(
        text(event_id),
        values["visitor"],
        int(values["at"]),
        None if order is None else int(float(order)),  # exact: it is a double in the store
        None if joined is None else int(joined),
    )


class CallDetector(Detector[CallStore]):
    events = ("called",)
    work = "calling"
    failure = "calls_failed"
    open_store = CallStore

    async def detect(self, room: WaitingRoom, store: CallStore, _: Snapshot) -> None:
        noted, texts = await store.load()
        cursor, calls = await self._read(room.name, store, noted)
        batches = read_batches(texts)
        batches |= batches_of(room.name, calls, self.receivers(room.name, "called"))
        self._drop_oldest(room.name, batches)
        new = {id_: batch.text() for id_, batch in batches.items() if id_ not in texts}
        if new or cursor.text() != noted:
            await store.note(cursor.text(), new)
        store.last = cursor
        await store.forget(texts.keys() - batches.keys())
        for id_, batch in batches.items():
            await self.enqueue(batch.notice(id_, room.name), batch.webhooks)
        await store.forget(batches.keys())

    async def _read(
        self, room: str, store: CallStore, noted: str | None
    ) -> tuple[Cursor, list[CallEvent]]:
        """Return how far the stream is read now, and the calls since the cursor in Redis."""
        cursor = Cursor.read(noted)
        if cursor is None:
            if store.last is None:  # the first look: earlier calls are not sent
                end = await store.read("", noted="")
                return Cursor(end.until, end.ever), []
            cursor = Cursor()  # Redis was emptied: all that is there is new
        until, calls = cursor.until if noted else "", list[CallEvent]()
        for _ in range(PAGES):
            page = await store.read(cursor.until, noted=until)
            cursor, lost = cursor.after(page)
            calls += page.calls
            if lost:
                self._count(room, "lost", lost)
                hint = "the stream was trimmed before they were read; calls since then are sent"
                log.error("calls_lost", room=room, calls=lost, hint=hint)
            if page.is_end:
                break
        return cursor, calls

    def _drop_oldest(self, room: str, batches: dict[str, Batch]) -> None:
        """Drop the oldest batches where too many could not be enqueued."""
        for id_ in list(batches)[: max(0, len(batches) - UNSENT)]:
            batch = batches.pop(id_)
            count = len(batch.calls) * len(batch.webhooks)
            self._count(room, "dropped", count)
            log.warning("calls_dropped", room=room, calls=count, hint="too many wait")

    def _count(self, room: str, result: str, number: int) -> None:
        self.metrics.calls.labels(room, result).inc(number)


async def invite(
    room: WaitingRoom, store: CallStore, calls: tuple[CalledVisitor, ...], *, epoch: int
) -> tuple[tuple[CalledVisitor, ...], Counter[LeftOut]]:
    """Return the visitors who can still claim their call, with their links, and count the others.

    A visitor who is not called any more has arrived ("came"), or the call is over.
    """
    ends, inside = await store.ends([call.visitor for call in calls])
    invited, others, now_ms = [], Counter[LeftOut](), room.clock.now_ms()
    for call in calls:
        ends_ms = ends.get(call.visitor, 0)
        if ends_ms <= now_ms:
            others["came" if call.visitor in inside else "over"] += 1
            continue
        ticket = ticket_of(call, room.settings, epoch=epoch)
        url = claim_url(room.name, room.settings, room.tokens, ticket)
        invited.append(replace(call, claim_before_ms=ends_ms, claim_url=url))
    return tuple(invited), others
