"""Stores the messages of a webhook in Redis: those that wait to be sent, and those that were sent.

A detector enqueues a message in one of two queues, which are for events of rooms and for calls. The
replica that holds the webhook's leader lease sends the first message of each queue and stores the
result: delivered, failed, or to be retried later. A message that failed ORDERED_ATTEMPTS times
moves to the queue of retries. An operator's request to resend a message is stored until
the message is sent. A message has at most one such request.
"""

import secrets
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from sidecar.storage.redis.connect import Store
from sidecar.storage.redis.driver_errors import driver_errors, text
from sidecar.storage.redis.lua_source import source
from sidecar.webhooks.model import AnyNotice, CallNotice, Document, Notice
from sidecar.webhooks.redis_keys import webhook_key
from sidecar.webhooks.retention import DELIVERED_LIMIT, FAILED_LIMIT, LOST_S, QUEUE_LIMIT, STORED_S
from sidecar.webhooks.retry import ORDERED_ATTEMPTS

DeliveryState = Literal["waiting", "delivered", "failed"]
STATES: tuple[DeliveryState, ...] = get_args(DeliveryState)
#: `events` and `calls` are the detectors' queues. `retries` has messages that left those queues
#: after several failed attempts, and `resends` has messages that operators resend.
QueueName = Literal["events", "calls", "retries", "resends"]
QUEUES: tuple[QueueName, ...] = get_args(QueueName)

_KEYS = (
    *("deliveries", "resends", *STATES, "events", "calls", "retries"),
    *("failures", "resending"),
)


@dataclass(frozen=True, slots=True)
class Delivery(Document):
    """A message and the result of its last attempt."""

    notice: Notice | CallNotice
    attempts: int = 0
    #: The last attempt: when it began, how long it took, its HTTP status, why it failed, and the
    #: first part of the response.
    tried_ms: int | None = None
    took_ms: int | None = None
    status: int | None = None
    reason: str = ""
    body: str = ""
    #: The operator who last resent the message.
    resent_by: str = ""
    #: When the next attempt is due, if the message waits. 0 means at once.
    due_ms: int = 0


@dataclass(frozen=True, slots=True)
class QueueHead:
    """The first message of a queue."""

    id: str
    #: None if the document is missing, or if this version cannot read it.
    delivery: Delivery | None
    #: The operator's request to resend the message, or "".
    resend_request: str
    now_ms: int


@dataclass(frozen=True, slots=True)
class Health:
    """Numbers that tell whether the messages of a webhook are delivered."""

    #: How many stored messages are in each state.
    counts: dict[str, int]
    #: How many attempts have failed since the last delivered message, at most ORDERED_ATTEMPTS, and
    #: when the first of these attempts began, in ms.
    failures: int
    failing_since_ms: int | None
    #: The seconds since the event of the oldest waiting message happened; 0 if no message waits.
    lag_s: float


class Deliveries:
    """The messages of a webhook. Every method raises StoreError if Redis is unavailable. Tests
    pass `now_ms` to replace the clock of Redis."""

    def __init__(
        self,
        redis: Store,
        webhook: str,
        timeout_s: float,
        *,
        now_ms: Callable[[], int] | None = None,
    ) -> None:
        self._redis: Any = redis
        self._timeout_s = timeout_s
        self._now_ms = now_ms
        self._keys = {name: webhook_key(webhook, name) for name in _KEYS}

    async def _run_script(self, script: str, *args: Any) -> Any:
        async with driver_errors("deliveries", self._timeout_s):
            lua = source(f"webhooks/{script}")
            return await self._redis.eval(lua, len(_KEYS), *self._keys.values(), *args)

    async def enqueue(self, notice: AnyNotice) -> list[str]:
        """Enqueue a message, unless a message with its id was enqueued before. If the queue is over
        its limit, return the ids of its oldest messages, without the one that is being sent."""
        queue = _KEYS.index("calls" if notice.event == "called" else "events") + 1
        document = Delivery(notice).to_json()
        arguments = (notice.id, document, notice.at_ms, queue, QUEUE_LIMIT, STORED_S)
        return [text(id_) for id_ in await self._run_script("enqueue", *arguments)]

    async def read_head(self, queue: QueueName, *, owner: str) -> QueueHead | None:
        """Read the next message to send. Return None if the queue is empty or the replica `owner`
        does not hold the leader lease."""
        now_ms = "" if self._now_ms is None else self._now_ms()
        reply = await self._run_script("head", owner, _KEYS.index(queue) + 1, now_ms)
        if not reply:
            return None
        id_, document, request, now = reply
        return QueueHead(text(id_), Delivery.read(document), text(request), int(now))

    async def settle(self, head: QueueHead, delivery: Delivery, state: DeliveryState) -> None:
        """Store a message's result and new state, unless another replica has stored a result."""
        document, number = delivery.to_json(), _KEYS.index(state) + 1
        has_failed = delivery.reason and delivery.attempts > (head.delivery or delivery).attempts
        failure = f"{head.id} {delivery.attempts}" if has_failed else ""
        leaves_queue = state == "waiting" and delivery.attempts >= ORDERED_ATTEMPTS
        await self._run_settle(
            *(head.id, document, delivery.notice.at_ms, number, head.resend_request),
            *(failure, delivery.tried_ms or 0, delivery.due_ms if leaves_queue else ""),
        )

    async def delete(self, head: QueueHead) -> None:
        await self._run_settle(head.id, "", 0, 0, head.resend_request, "", 0, "")

    async def tidy(self) -> None:
        """Delete messages that are too old or over the limit. `settle` also does this."""
        await self._run_settle()

    async def _run_settle(self, *message: Any) -> None:
        limits = DELIVERED_LIMIT, FAILED_LIMIT, STORED_S, LOST_S, ORDERED_ATTEMPTS
        await self._run_script("settle", *limits, *message)

    async def drop(self, id_: str, *, reason: str) -> Delivery | None:
        """Mark a waiting message as failed and return it. Delete it instead if it is unreadable."""
        delivery = (await self.find([id_])).get(id_)
        head = QueueHead(id_, delivery, "", 0)
        if delivery is None:
            await self.delete(head)
            return None
        dropped_delivery = replace(delivery, reason=reason)
        await self.settle(head, dropped_delivery, "failed")
        return dropped_delivery

    async def find(self, ids: Collection[str]) -> dict[str, Delivery]:
        """Return the stored deliveries that this version can read, by id."""
        if not ids:
            return {}
        async with driver_errors("deliveries", self._timeout_s):
            documents = await self._redis.hmget(self._keys["deliveries"], list(ids))
        pairs = zip(ids, map(Delivery.read, documents), strict=True)
        return {id_: delivery for id_, delivery in pairs if delivery is not None}

    async def read_health(self) -> Health:
        """Return how many messages are in each state, and how many attempts have failed."""
        counts, failures, since, oldest, now = await self._run_script("health")
        oldest_ms = float(text(oldest) or now)
        return Health(
            dict(zip(STATES, counts, strict=True)),
            failures,
            int(float(text(since))) if since else None,
            max(0.0, (now - oldest_ms) / 1000),
        )

    async def read_page(
        self, states: Iterable[DeliveryState] = STATES, *, start: int = 0, limit: int
    ) -> list[tuple[DeliveryState, Delivery]]:
        """Return a page of the messages in these states, latest first."""
        positions: dict[str, tuple[float, DeliveryState]] = {}
        async with driver_errors("deliveries", self._timeout_s):
            for state in states:
                rows = await self._redis.zrevrange(
                    self._keys[state], 0, start + limit - 1, withscores=True
                )
                positions |= {text(id_): (at_ms, state) for id_, at_ms in rows}
        latest_ids = sorted(positions, key=lambda id_: (positions[id_][0], id_), reverse=True)
        page = latest_ids[start : start + limit]
        deliveries = await self.find(page)
        return [(positions[id_][1], deliveries[id_]) for id_ in page if id_ in deliveries]

    async def list_failed(self) -> list[str]:
        """Return the ids of all failed messages, oldest first."""
        async with driver_errors("deliveries", self._timeout_s):
            return [text(id_) for id_ in await self._redis.zrange(self._keys["failed"], 0, -1)]

    async def resend(
        self, ids: Collection[str], *, by: str, attempts: int | None = None
    ) -> list[str]:
        """Request that messages are sent once more. With `attempts`, skip messages that have had
        another number of attempts. Return for each id "queued", "waiting" (the message will be sent
        anyway), "changed" (it was skipped) or "unknown"."""
        return await self._resend(by, "" if attempts is None else attempts, "", 0, *ids)

    async def add(self, notice: Notice, *, by: str) -> None:
        """Add a message that is sent only once."""
        await self._resend(by, "", Delivery(notice).to_json(), notice.at_ms, notice.id)

    async def _resend(
        self, by: str, attempts: int | str, document: str, at_ms: int, *ids: str
    ) -> list[str]:
        request = f"{secrets.token_hex(8)} {by}"
        arguments = (request, attempts, STORED_S, document, at_ms, *ids)
        return [text(reply) for reply in await self._run_script("resend", *arguments)]
