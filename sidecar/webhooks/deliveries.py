"""The messages of a webhook: what waits to be sent, in order, and what became of the others.

A message waits in one of two queues: events of rooms, and calls. A detector enqueues it. The
sender, which holds the webhook's leader lease, tries the head of each queue and settles it:
delivered, failed, or due again later. An operator's request to resend a message is kept until it is
settled, and there is one request for a message at a time.
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
from sidecar.webhooks.retry import BACKLOG, DELIVERED_KEPT, FAILED_KEPT, KEPT_S, LOST_S

State = Literal["waiting", "delivered", "failed"]
STATES: tuple[State, ...] = get_args(State)
#: What the sender works on side by side: the two queues, and the operators' requests.
Lane = Literal["events", "calls", "resends"]
LANES: tuple[Lane, ...] = get_args(Lane)
#: The response to a request to resend a message.
ResendReply = Literal["queued", "waiting", "changed", "unknown"]

_KEYS = ("deliveries", "resends", *STATES, "events", "calls", "resending")


@dataclass(frozen=True, slots=True)
class Delivery(Document):
    """A message, and what became of it."""

    notice: Notice | CallNotice
    attempts: int = 0
    #: The last attempt: when it began, how long it took, the HTTP status, why the message was not
    #: taken, and the first part of the response.
    tried_ms: int | None = None
    took_ms: int | None = None
    status: int | None = None
    reason: str = ""
    body: str = ""
    #: The operator who sent it again last.
    resent_by: str = ""
    #: When the next attempt of a waiting message is due. 0: now.
    due_ms: int = 0


@dataclass(frozen=True, slots=True)
class Head:
    """The first message of a lane. `request`: the operator's, which ends when it is settled."""

    id: str
    #: None: Redis has no document that can be read.
    delivery: Delivery | None
    request: str
    now_ms: int


class Deliveries:
    """Every method raises StoreError when Redis is unavailable.

    `now_ms`: the clock of a test, in place of that of Redis.
    """

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
        self._keys = [webhook_key(webhook, name) for name in _KEYS]

    async def _run(self, script: str, *args: Any) -> Any:
        async with driver_errors("deliveries", self._timeout_s):
            lua = source(f"webhooks/{script}")
            return await self._redis.eval(lua, len(self._keys), *self._keys, *args)

    def _key(self, name: str) -> str:
        return self._keys[_KEYS.index(name)]

    async def enqueue(self, notice: AnyNotice) -> list[str]:
        """Queue a message for the sender; to queue the same id twice has no effect.

        Returns the ids of messages over the backlog limit, oldest first, without the one that is
        being sent.
        """
        lane = _KEYS.index("calls" if notice.event == "called" else "events") + 1
        document = Delivery(notice).text()
        found = await self._run("enqueue", notice.id, document, notice.at_ms, lane, BACKLOG, KEPT_S)
        return [text(id_) for id_ in found]

    async def head(self, lane: Lane, *, owner: str) -> Head | None:
        """Return the message to be sent next. None: there is none, or `owner` has no lease."""
        now_ms = "" if self._now_ms is None else self._now_ms()
        found = await self._run("head", owner, _KEYS.index(lane) + 1, now_ms)
        if not found:
            return None
        id_, document, request, now = found
        return Head(text(id_), Delivery.read(text(document)), text(request), int(now))

    async def settle(self, head: Head, delivery: Delivery, state: State) -> None:
        """Write what became of a message, unless another replica has settled it meanwhile."""
        number = _KEYS.index(state) + 1
        await self._settle(head.id, delivery.text(), delivery.notice.at_ms, number, head.request)

    async def forget(self, head: Head) -> None:
        await self._settle(head.id, "", 0, 0, head.request)

    async def tidy(self) -> None:
        """Drop what is too old or too much, which `settle` does as well."""
        await self._settle()

    async def _settle(self, *args: Any) -> None:
        await self._run("settle", DELIVERED_KEPT, FAILED_KEPT, KEPT_S, LOST_S, *args)

    async def drop(self, id_: str, *, reason: str) -> Delivery | None:
        """Settle a waiting message as failed. Return it; None: it cannot be read."""
        delivery = (await self.find([id_])).get(id_)
        head = Head(id_, delivery, "", 0)
        if delivery is None:
            await self.forget(head)
            return None
        dropped = replace(delivery, reason=reason)
        await self.settle(head, dropped, "failed")
        return dropped

    async def find(self, ids: Collection[str]) -> dict[str, Delivery]:
        """Return the deliveries that are kept and can be read, by id."""
        if not ids:
            return {}
        async with driver_errors("deliveries", self._timeout_s):
            documents = await self._redis.hmget(self._key("deliveries"), list(ids))
        read = {
            id_: Delivery.read(None if document is None else text(document))
            for id_, document in zip(ids, documents, strict=True)
        }
        return {id_: delivery for id_, delivery in read.items() if delivery is not None}

    async def counts(self) -> dict[State, int]:
        async with driver_errors("deliveries", self._timeout_s):
            return {state: await self._redis.zcard(self._key(state)) for state in STATES}

    async def page(
        self, states: Iterable[State] = STATES, *, start: int = 0, limit: int
    ) -> list[tuple[State, Delivery]]:
        """Return a page of the deliveries in these states, latest first."""
        places: dict[str, tuple[float, State]] = {}
        async with driver_errors("deliveries", self._timeout_s):
            for state in states:
                rows = await self._redis.zrevrange(
                    self._key(state), 0, start + limit - 1, withscores=True
                )
                places |= {text(id_): (at, state) for id_, at in rows}
        latest = sorted(places, key=lambda id_: (places[id_][0], id_), reverse=True)
        page = latest[start : start + limit]
        kept = await self.find(page)
        return [(places[id_][1], kept[id_]) for id_ in page if id_ in kept]

    async def failed(self) -> list[str]:
        """Return the ids of all failed messages, oldest first."""
        async with driver_errors("deliveries", self._timeout_s):
            return [text(id_) for id_ in await self._redis.zrange(self._key("failed"), 0, -1)]

    async def resend(
        self, ids: Collection[str], *, by: str, attempts: int | None = None
    ) -> list[ResendReply]:
        """Ask for messages to be sent once more, each only if it has had `attempts`, if given."""
        return await self._resend(by, "" if attempts is None else attempts, "", 0, *ids)

    async def add(self, notice: Notice, *, by: str) -> None:
        """Ask for a new message to be sent once."""
        await self._resend(by, "", Delivery(notice).text(), notice.at_ms, notice.id)

    async def _resend(
        self, by: str, attempts: int | str, document: str, at_ms: int, *ids: str
    ) -> list[ResendReply]:
        request = f"{secrets.token_hex(8)} {by}"
        replies = await self._run("resend", request, attempts, KEPT_S, document, at_ms, *ids)
        return [_REPLIES[text(reply)] for reply in replies]


_REPLIES: dict[str, ResendReply] = {reply: reply for reply in get_args(ResendReply)}
