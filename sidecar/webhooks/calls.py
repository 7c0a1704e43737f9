"""Detects which visitors are called, because it is their turn, and enqueues messages about them.

The detector reads calls from the room's event stream. The hash `calls` in Redis stores a cursor, up
to which the stream was read, and the batches of calls that are not enqueued yet. The history's
recorder trims the stream only up to the event whose id is in the Redis key `called`.
"""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Annotated, Any

import structlog
from pydantic import Field, PlainSerializer

from sidecar.rooms.redis_keys import cursor_key, room_key
from sidecar.rooms.service import WaitingRoom
from sidecar.rooms.settings import RoomSettings
from sidecar.rooms.store.replies import Snapshot
from sidecar.storage.redis.driver_errors import driver_errors, text
from sidecar.storage.redis.lua_source import source
from sidecar.visitors.model import Ticket
from sidecar.webhooks.detector import Detector
from sidecar.webhooks.model import CalledVisitor, CallNotice, Document
from sidecar.webhooks.retention import CURSOR_S, UNREAD_EVENTS_S, UNSENT_LIMIT

#: The maximum number of calls in one message.
BATCH_SIZE = 100
#: The maximum number of pages of the stream that one check reads, and the maximum number of events
#: in a page. Reading a page blocks Redis for about 3 ms.
MAX_PAGES = 100
PAGE_SIZE = 200
#: The field of the cursor in the hash `calls`.
_CURSOR = "cursor"

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class CallPage:
    """The calls in a page of the event stream."""

    calls: list[CalledVisitor]
    #: The id of the page's last event, and whether this is also the last event of the stream.
    until: str
    is_end: bool
    #: How many calls the room had ever had when the page was read.
    total_calls: int
    #: True if the event before this page was trimmed, so that calls may be lost.
    has_gap: bool


@dataclass(frozen=True, slots=True)
class Cursor(Document):
    """The id of the last event that was read, and the number of calls of the room until then."""

    until: str = "0-0"
    total_calls: Annotated[int, Field(alias="ever")] = 0

    def advance(self, page: CallPage) -> "tuple[Cursor, int]":
        """Return the cursor after a page, and how many calls were trimmed before they were read.
        This number is 0 until the end of the stream, where it becomes known."""
        total_calls = self.total_calls + len(page.calls)
        if not page.is_end:
            return Cursor(page.until, total_calls), 0
        # The room's count may be lower than the cursor's, because Redis may have been emptied.
        lost_calls = max(0, page.total_calls - total_calls) if page.has_gap else 0
        return Cursor(page.until, page.total_calls), lost_calls


def _dump_calls(calls: tuple[CalledVisitor, ...]) -> list[dict[str, Any]]:
    """Return the calls in the form in which Redis stores them. Earlier versions can read it too."""
    return [
        {
            "id": call.id,
            "visitor": call.visitor,
            "at_ms": call.called_ms,
            "order": call.order,
            "joined_ms": call.joined_ms,
        }
        for call in calls
    ]


@dataclass(frozen=True, slots=True)
class Batch(Document):
    """A message that is not enqueued yet: its called visitors, and the webhooks that receive it."""

    calls: Annotated[tuple[CalledVisitor, ...], PlainSerializer(_dump_calls)]
    webhooks: tuple[str, ...]

    def get_first_event_id(self) -> tuple[int, ...]:
        return tuple(map(int, self.calls[0].id.split("-")))


def create_ticket(call: CalledVisitor, settings: RoomSettings, *, epoch: int) -> Ticket:
    """Create the ticket of a called visitor. A field that the event lacks is estimated from the
    time of the call, which matters only if Redis is emptied before the visitor claims the call."""
    order = call.called_ms * 1000 if call.order is None else call.order
    joined_ms = call.joined_ms
    if joined_ms is None:
        is_time = settings.queueing_method == "fifo" and 0 < order <= call.called_ms * 1000
        joined_ms = order // 1000 if is_time else call.called_ms
    return Ticket(call.visitor, order, joined_ms, epoch)


async def select_claimable(
    redis: Any, room: WaitingRoom, calls: tuple[CalledVisitor, ...], *, epoch: int, timeout_s: float
) -> tuple[tuple[CalledVisitor, ...], Counter[str]]:
    """Return the calls that can still be claimed, with their links. Count all other calls as
    "came" if the visitor was admitted, or "over" if the call expired. Raises StoreError."""
    visitors = [call.visitor for call in calls]
    async with driver_errors("calls", timeout_s):
        ends_ms = await redis.zmscore(room_key(room.name, "active"), visitors)
        admitted_ms = await redis.zmscore(room_key(room.name, "admitted"), visitors)
    claimable, other_counts, now_ms = [], Counter[str](), room.clock.now_ms()
    for call, end_ms, begin_ms in zip(calls, ends_ms, admitted_ms, strict=True):
        if begin_ms is not None or int(end_ms or 0) <= now_ms:
            other_counts["over" if begin_ms is None else "came"] += 1
            continue
        token = room.tokens.write_claim(create_ticket(call, room.settings, epoch=epoch))
        url = f"{room.settings.public_url or ''}/_waitroom/{room.name}/claim?token={token}"
        claimable.append(replace(call, claim_before_ms=int(end_ms), claim_url=url))
    return tuple(claimable), other_counts


def _read_call(event_id: bytes | str, fields: list[bytes | str]) -> CalledVisitor:
    names_and_values = [text(field) for field in fields]
    event = dict(zip(names_and_values[::2], names_and_values[1::2], strict=True))
    order, joined_ms = event.get("order"), event.get("joined")
    return CalledVisitor(
        event["visitor"],
        int(event["at"]),
        order=None if order is None else int(float(order)),  # exact, because Redis stores a double
        joined_ms=None if joined_ms is None else int(joined_ms),
        id=text(event_id),
    )


class CallDetector(Detector):
    """Detects calls for the webhooks that receive the event `called`."""

    events = ("called",)
    lease_name = "calling"
    failure_event = "calls_failed"

    async def handle_snapshot(self, room: WaitingRoom, _: Snapshot) -> None:
        stored_cursor, stored_batches = await self.load_batches(room.name)
        cursor, calls = await self._read_calls(room.name, stored_cursor)
        pairs = ((id_, Batch.read(document)) for id_, document in stored_batches.items())
        batches = {id_: batch for id_, batch in pairs if batch is not None}
        webhooks = self.find_subscribers(room.name, "called")
        for start in range(0, len(calls), BATCH_SIZE):
            batch = Batch(tuple(calls[start : start + BATCH_SIZE]), webhooks)
            # The same calls get the same id on every replica.
            batches[f"{room.name}-{batch.calls[0].id}-{batch.calls[-1].id}-called"] = batch
        ids = sorted(batches, key=lambda id_: batches[id_].get_first_event_id())
        for id_ in ids[:-UNSENT_LIMIT]:
            batch = batches.pop(id_)
            count = len(batch.calls) * len(batch.webhooks)
            self.metrics.calls.labels(room.name, "dropped").inc(count)
            log.warning("calls_dropped", room=room.name, calls=count, hint="too many wait")
        new_ids = batches.keys() - stored_batches.keys()
        new_batches = {id_: batches[id_].to_json() for id_ in new_ids}
        if new_batches or cursor.to_json() != stored_cursor:
            await self.save_batches(room.name, cursor.to_json(), new_batches)
        self.last_states[room.name] = cursor
        await self._delete_batches(room.name, stored_batches.keys() - batches.keys())
        for id_ in ids[-UNSENT_LIMIT:]:
            batch = batches[id_]
            at_ms = max(call.called_ms for call in batch.calls)
            await self.enqueue(CallNotice(id_, room.name, at_ms, batch.calls), batch.webhooks)
        await self._delete_batches(room.name, batches.keys())

    async def _read_calls(
        self, room: str, stored_cursor: str | None
    ) -> tuple[Cursor, list[CalledVisitor]]:
        """Read the calls after the cursor in Redis. Return the new cursor and these calls."""
        cursor = Cursor.read(stored_cursor)
        if cursor is None:
            if room not in self.last_states:  # calls before the first read are not sent
                end = await self._read_page(room, "", stored_until="")
                return Cursor(end.until, end.total_calls), []
            cursor = Cursor()  # Redis was emptied, so every event in the stream is new
        stored_until = cursor.until if stored_cursor else ""
        calls: list[CalledVisitor] = []
        for _ in range(MAX_PAGES):
            page = await self._read_page(room, cursor.until, stored_until=stored_until)
            cursor, lost_calls = cursor.advance(page)
            calls += page.calls
            if lost_calls:
                self.metrics.calls.labels(room, "lost").inc(lost_calls)
                hint = "the stream was trimmed before they were read; calls since then are sent"
                log.error("calls_lost", room=room, calls=lost_calls, hint=hint)
            if page.is_end:
                break
        return cursor, calls

    async def _read_page(self, room: str, after: str, *, stored_until: str) -> CallPage:
        """Read the page after the event `after`. If `after` is "", return an empty page at the end
        of the stream. `stored_until` is the event up to which the recorder may trim the stream."""
        keys = [*(room_key(room, name) for name in ("events", "stats", "calls")), cursor_key(room)]
        arguments = (after, stored_until, PAGE_SIZE, UNREAD_EVENTS_S, CURSOR_S)
        async with driver_errors("calls", self.timeout_s):
            until, is_end, rows, total_calls, has_gap = await self.redis.eval(
                source("webhooks/read_calls"), len(keys), *keys, *arguments
            )
        calls = [_read_call(event_id, fields) for event_id, fields in rows]
        return CallPage(calls, text(until), bool(is_end), int(text(total_calls)), bool(has_gap))

    async def load_batches(self, room: str) -> tuple[str | None, dict[str, str]]:
        """Return the JSON of the cursor, and the batches' JSON by id. The cursor is None if no
        replica has read the room's calls for CURSOR_S."""
        async with driver_errors("calls", self.timeout_s):
            fields = await self.redis.hgetall(room_key(room, "calls"))
        batches = {text(name): text(value) for name, value in fields.items()}
        return batches.pop(_CURSOR, None), batches

    async def save_batches(self, room: str, cursor: str, batches: dict[str, str]) -> None:
        """Store the JSON of the cursor and of new batches."""
        async with driver_errors("calls", self.timeout_s):
            await self.redis.hset(room_key(room, "calls"), mapping={_CURSOR: cursor, **batches})

    async def _delete_batches(self, room: str, ids: Collection[str]) -> None:
        """Delete batches that were dropped, or whose messages have been enqueued."""
        if ids:
            async with driver_errors("calls", self.timeout_s):
                await self.redis.hdel(room_key(room, "calls"), *ids)
