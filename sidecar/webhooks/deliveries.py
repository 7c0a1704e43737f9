"""What became of each message to a webhook, and what an operator sends again.

Redis keeps it, for all replicas. Senders note what they do in a Journal, and a notifier saves that
every second: a message that waits is in its outbox as well, until what became of it is saved here.
An operator's request to send one again is kept until the answer is saved. There is one at a time:
the script that takes it looks at what became of the last one.
"""

import secrets
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from sidecar.kit.errors import StoreError
from sidecar.kit.outbox import FRESH_S, Result
from sidecar.storage.redis.connect import Store
from sidecar.storage.redis.driver_errors import driver_errors, text
from sidecar.webhooks.model import AnyNotice, CallNotice, Document, Notice
from sidecar.webhooks.redis_keys import webhook_key

State = Literal["waiting", "delivered", "failed"]
STATES: tuple[State, ...] = get_args(State)
#: Of one webhook, how many of each are kept; the oldest give way.
DELIVERED_KEPT = 200
FAILED_KEPT = 500
#: And for how long.
KEPT_S = 7 * 86_400
#: Nobody sends one by itself that is so old: its replica was killed, or it is none's any more.
_LOST_S = 2 * FRESH_S
#: What became of a request to send one again.
Asked = Literal["queued", "waiting", "changed", "unknown"]

# KEYS   deliveries, resends, and by state: waiting, delivered, failed
# ARGV   how many delivered and failed are kept; for how long, s; after how long a waiting one has
# failed, s; then of each delivery: id, the document, when it happened, its state's number in KEYS,
# the request that it ends
_SAVE = """
for i = 5, #ARGV, 5 do
  local id, state = ARGV[i], tonumber(ARGV[i + 3])
  redis.call('HSET', KEYS[1], id, ARGV[i + 1])
  local asked = redis.call('HGET', KEYS[2], id)
  if asked and asked == ARGV[i + 4] and state ~= 3 then
    redis.call('HDEL', KEYS[2], id)
  elseif asked then
    state = 3
  end
  for k = 3, 5 do
    if k == state then redis.call('ZADD', KEYS[k], ARGV[i + 2], id)
    else redis.call('ZREM', KEYS[k], id) end
  end
end
local now = tonumber(redis.call('TIME')[1])
local lost = redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', (now - ARGV[4]) * 1000, 'LIMIT', 0, 100)
for _, id in ipairs(lost) do
  if redis.call('HEXISTS', KEYS[2], id) == 0 then
    redis.call('ZADD', KEYS[5], redis.call('ZSCORE', KEYS[3], id), id)
    redis.call('ZREM', KEYS[3], id)
  end
end
for k = 4, 5 do
  local function drop(ids)
    for _, id in ipairs(ids) do
      redis.call('ZREM', KEYS[k], id)
      redis.call('HDEL', KEYS[1], id)
    end
  end
  local old = (now - ARGV[3]) * 1000
  drop(redis.call('ZRANGEBYSCORE', KEYS[k], '-inf', old, 'LIMIT', 0, 100))
  local many = redis.call('ZCARD', KEYS[k]) - ARGV[k - 3]
  if many > 0 then drop(redis.call('ZRANGE', KEYS[k], 0, math.min(many, 100) - 1)) end
end
for k = 1, 5 do redis.call('EXPIRE', KEYS[k], ARGV[3]) end
"""

# KEYS   the same   ARGV  the request; attempts that it was to have had, '': any number; how long it
# is kept, s; of a new delivery the document and when it happened, or ''; ids
_ASK = """
local said = {}
for i = 6, #ARGV do
  local id = ARGV[i]
  local found, at = redis.call('HGET', KEYS[1], id), ARGV[5]
  for k = 4, 5 do at = redis.call('ZSCORE', KEYS[k], id) or at end
  if not found and ARGV[4] == '' then
    said[#said + 1] = 'unknown'
  elseif redis.call('ZSCORE', KEYS[3], id) then
    said[#said + 1] = 'waiting'
  elseif ARGV[2] ~= '' and cjson.decode(found).attempts ~= tonumber(ARGV[2]) then
    said[#said + 1] = 'changed'
  else
    redis.call('HSET', KEYS[2], id, ARGV[1])
    if not found then redis.call('HSET', KEYS[1], id, ARGV[4]) end
    redis.call('ZADD', KEYS[3], at, id)
    for k = 4, 5 do redis.call('ZREM', KEYS[k], id) end
    said[#said + 1] = 'queued'
  end
end
for k = 1, 3 do redis.call('EXPIRE', KEYS[k], ARGV[3]) end
return said
"""


@dataclass(frozen=True, slots=True)
class Delivery(Document):
    """A message, and what became of it. `calls` of a notice have no address here."""

    notice: Notice | CallNotice
    attempts: int = 0
    #: The last attempt: when, for how long, the HTTP status, why it was not taken, and the first
    #: part of what the receiver said.
    tried_ms: int | None = None
    took_ms: int | None = None
    status: int | None = None
    reason: str = ""
    body: str = ""
    #: Who sent it again last.
    resent_by: str = ""


@dataclass(slots=True)
class Change:
    """What senders did with one message since that was last saved."""

    notice: Notice | CallNotice
    state: State = "waiting"
    attempts: int = 0
    outcome: dict[str, Any] = field(default_factory=dict)
    #: The request to send it again that is over.
    ends: str = ""


class Journal:
    """What a sender did, by the message's id, and is not saved."""

    def __init__(self) -> None:
        self._changes: dict[str, Change] = {}
        #: By id, the requests that the sender has.
        self.asked: dict[str, str] = {}

    def _of(self, notice: AnyNotice) -> Change:
        return self._changes.setdefault(notice.id, Change(_without_addresses(notice)))

    def began(self, notice: AnyNotice) -> None:
        self._of(notice).state = "waiting"

    def tried(
        self, notice: AnyNotice, status: int | None, reason: str, body: str, *, took_s: float
    ) -> None:
        change = self._of(notice)
        change.attempts += 1
        change.outcome = {
            "tried_ms": int(time.time() * 1000),
            "took_ms": round(took_s * 1000),
            "status": status,
            "reason": reason,
            "body": "" if not reason else body,
        }

    def ended(self, notice: AnyNotice, result: Result, reason: str) -> None:
        change = self._of(notice)
        change.state = "delivered" if result == "delivered" else "failed"
        change.outcome["reason"] = reason
        if asked := self.asked.get(notice.id):
            change.ends = asked
            change.outcome["resent_by"] = asked.partition(" ")[2]

    async def save(self, store: "Deliveries") -> None:
        """Raises StoreError; then it is saved the next time."""
        changes, self._changes = self._changes, {}
        if not changes:
            return
        try:
            await store.save(changes)
        except StoreError:
            for id_, newer in self._changes.items():
                if older := changes.get(id_):
                    newer.attempts += older.attempts
                    newer.outcome = older.outcome | newer.outcome
            self._changes = changes | self._changes
            raise


class Deliveries:
    """Of one webhook. Every method raises StoreError when Redis is unavailable."""

    def __init__(self, redis: Store, webhook: str, timeout_s: float) -> None:
        self._redis: Any = redis
        self._timeout_s = timeout_s
        names = ("deliveries", "resends", *STATES)
        self._keys = [webhook_key(webhook, name) for name in names]
        self._documents, self._asked, *by_state = self._keys
        self._by_state = dict(zip(STATES, by_state, strict=True))

    async def save(self, changes: dict[str, Change]) -> None:
        """What became of them; and drops what is too old or too much."""
        known = await self.find(changes)
        args: list[Any] = []
        for id_, change in changes.items():
            before = known.get(id_) or Delivery(change.notice)
            after = replace(
                before,
                notice=change.notice,
                attempts=before.attempts + change.attempts,
                **change.outcome,
            )
            number = 3 + STATES.index(change.state)
            args += [id_, after.text(), change.notice.at_ms, number, change.ends]
        kept = [DELIVERED_KEPT, FAILED_KEPT, KEPT_S, int(_LOST_S)]
        async with driver_errors("deliveries", self._timeout_s):
            await self._redis.eval(_SAVE, len(self._keys), *self._keys, *kept, *args)

    async def find(self, ids: Collection[str]) -> dict[str, Delivery]:
        """Those that are kept, and can be read."""
        if not ids:
            return {}
        async with driver_errors("deliveries", self._timeout_s):
            found = await self._redis.hmget(self._documents, list(ids))
        read = {
            id_: Delivery.read(None if document is None else text(document))
            for id_, document in zip(ids, found, strict=True)
        }
        return {id_: delivery for id_, delivery in read.items() if delivery is not None}

    async def counts(self) -> dict[State, int]:
        async with driver_errors("deliveries", self._timeout_s):
            return {state: await self._redis.zcard(key) for state, key in self._by_state.items()}

    async def page(
        self, states: Iterable[State] = STATES, *, start: int = 0, limit: int
    ) -> list[tuple[State, Delivery]]:
        """A page of them, latest first."""
        found: dict[str, tuple[float, State]] = {}
        async with driver_errors("deliveries", self._timeout_s):
            for state in states:
                key, end = self._by_state[state], start + limit - 1
                rows = await self._redis.zrevrange(key, 0, end, withscores=True)
                found |= {text(id_): (at, state) for id_, at in rows}
        latest = sorted(found, key=lambda id_: (found[id_][0], id_), reverse=True)
        page = latest[start : start + limit]
        known = await self.find(page)
        return [(found[id_][1], known[id_]) for id_ in page if id_ in known]

    async def failed(self) -> list[str]:
        """The ids of all, oldest first."""
        async with driver_errors("deliveries", self._timeout_s):
            return [text(id_) for id_ in await self._redis.zrange(self._by_state["failed"], 0, -1)]

    async def resend(
        self, ids: Collection[str], *, by: str, attempts: int | None = None
    ) -> list[Asked]:
        """What became of each request. `attempts`: only one that has had so many."""
        return await self._ask(by, "" if attempts is None else attempts, "", 0, *ids)

    async def add(self, notice: Notice, *, by: str) -> None:
        """A message that an operator sends."""
        await self._ask(by, "", Delivery(notice).text(), notice.at_ms, notice.id)

    async def _ask(
        self, by: str, attempts: int | str, document: str, at_ms: int, *ids: str
    ) -> list[Asked]:
        args = [f"{secrets.token_hex(8)} {by}", attempts, KEPT_S, document, at_ms, *ids]
        async with driver_errors("deliveries", self._timeout_s):
            said = await self._redis.eval(_ASK, len(self._keys), *self._keys, *args)
        return [_ASKED[text(word)] for word in said]

    async def asked(self) -> dict[str, str]:
        """The requests to send one again that are not over, by the message's id."""
        async with driver_errors("deliveries", self._timeout_s):
            found = await self._redis.hgetall(self._asked)
        return {text(id_): text(request) for id_, request in found.items()}

    async def forget(self, ids: Collection[str]) -> None:
        """Requests for what is kept no more."""
        async with driver_errors("deliveries", self._timeout_s):
            await self._redis.hdel(self._asked, *ids)


_ASKED: dict[str, Asked] = {word: word for word in get_args(Asked)}


def _without_addresses(notice: AnyNotice) -> AnyNotice:
    """Anyone who has the address of a call can take its place."""
    if not isinstance(notice, CallNotice):
        return notice
    return replace(notice, calls=tuple(replace(call, claim_url="") for call in notice.calls))
