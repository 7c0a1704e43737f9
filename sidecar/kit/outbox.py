"""Messages to receivers elsewhere: signed, retried, bounded for each receiver, at least once.

What is to be sent is written to a store first, and taken out once the receiver has taken it or it
is given up: a process that dies in between loses nothing, and the next one repeats, with the same
id, what the store had not heard of yet. `Sender` delivers in order, one message at a time, and
retries by itself; `InFlight` counts deliveries that go side by side and are retried by the store.
"""

import asyncio
import time
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Collection, Coroutine
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from typing import ClassVar, Generic, Literal, TypeAlias, TypeVar

import aiohttp
import structlog
from yarl import URL

from sidecar import __version__
from sidecar.kit.retry import Backoff, seconds_in
from sidecar.kit.signing import signature

Result = Literal["delivered", "failed", "dropped"]
#: A message's id, and its receiver's name.
Delivery: TypeAlias = tuple[str, str]
Item = TypeVar("Item")

#: A message that is older is not retried: nobody needs it by then.
FRESH_S = 3600.0
#: Messages that wait for one receiver.
BACKLOG = 1000
#: How much of a response is read, bytes.
RESPONSE_LIMIT = 4096
#: For how long a refusal's body is read, which changes nothing.
REFUSAL_S = 1.0
#: Statuses that a retry may change: these and all from 500 on.
_TEMPORARY = {408, 425, 429}

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Message:
    """A POST. Its url may be a secret."""

    url: URL | str
    body: bytes
    headers: dict[str, str]


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a message. `reason` holds no part of the receiver's address."""

    is_taken: bool = False
    reason: str = ""
    #: Whether it may be taken later, and after how many seconds at the soonest.
    may_retry: bool = False
    after_s: float = 0.0
    #: Of the response; None: there was none.
    status: int | None = None
    #: The first part of a refusal, where that was asked for. It may hold the address.
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Schedule:
    """`tries` in all."""

    tries: int
    backoff: Backoff

    def pause_s(self, tried: int, answer: Answer) -> float | None:
        """Before the next try; None: there is none."""
        if not answer.may_retry or tried >= self.tries:
            return None
        return max(answer.after_s, self.backoff.delay_s(tried))


def headers_of(event: str, id_: str, body: bytes, secret: str, *, now_s: float) -> dict[str, str]:
    """Of a message of JSON as it is sent now; without a secret it is not signed."""
    headers = {
        "Content-Type": "application/json; charset=utf-8",
        "User-Agent": f"waitroom/{__version__}",
        "X-Waitroom-Event": event,
        "X-Waitroom-Delivery": id_,
    }
    if secret:
        headers["X-Waitroom-Signature"] = signature(secret, body, int(now_s))
    return headers


async def post(
    session: aiohttp.ClientSession,
    message: Message,
    *,
    timeout_s: float,
    read: Callable[[bytes], Answer] | None = None,
    keeps_refusal: bool = False,
) -> Answer:
    """One try. Never raises for what a receiver does; never follows a redirect. `read`: makes the
    answer of a 2xx from its body. `keeps_refusal`: with the first part of its body."""
    timeout = aiohttp.ClientTimeout(total=timeout_s)
    try:
        async with session.post(
            message.url,
            data=message.body,
            headers=message.headers,
            allow_redirects=False,
            timeout=timeout,
        ) as response:
            status = response.status
            if read is not None and 200 <= status < 300:
                body = await _first_part(response)
                return replace(read(body), status=status, body=body)
            answer = judge(status, response.headers.get("Retry-After", ""))
            if keeps_refusal and not answer.is_taken:
                with suppress(TimeoutError, aiohttp.ClientError, OSError):
                    async with asyncio.timeout(REFUSAL_S):
                        answer = replace(answer, body=await _first_part(response))
            return replace(answer, status=status)
    except TimeoutError:
        return Answer(reason=f"no answer within {timeout_s:g} s", may_retry=True)
    except (aiohttp.ClientError, OSError) as error:
        return Answer(reason=_reason(error), may_retry=True)
    except ValueError as error:  # such as a host's name that cannot be one
        return Answer(reason=_reason(error))


async def _first_part(response: aiohttp.ClientResponse) -> bytes:
    body = b""
    while part := await response.content.read(RESPONSE_LIMIT - len(body)):
        body += part
    return body


def judge(status: int, retry_after: str) -> Answer:
    """What a response's status means."""
    if 200 <= status < 300:
        return Answer(is_taken=True)
    reason = f"HTTP {status}"
    if 300 <= status < 400:
        reason += ", and redirects are not followed"
    if status not in _TEMPORARY and status < 500:
        return Answer(reason=reason)
    return Answer(reason=reason, may_retry=True, after_s=seconds_in(retry_after, time.time()))


def _reason(error: Exception) -> str:
    """Not the error's own text: it may hold the address, which is a secret."""
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    text = cause.strerror if isinstance(cause, OSError) else None
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


@dataclass(eq=False)
class Sender(ABC, Generic[Item]):
    """Delivers to one receiver, in order."""

    schedule: ClassVar[Schedule]

    name: str
    #: Gets each item's result, once.
    done: Callable[[str, Item, Result], None]
    _: KW_ONLY
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    #: Seconds.
    clock: Callable[[], float] = time.monotonic
    #: Items, and until when (by the clock) each is worth a try. The first is on its way.
    _backlog: deque[tuple[Item, float]] = field(default_factory=deque, init=False)
    _has_some: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    @abstractmethod
    async def send(self, item: Item) -> Answer:
        """One try."""

    @abstractmethod
    def log(self, say: Callable[..., object], result: str, item: Item, **more: object) -> None:
        """Says what became of an item."""

    def __len__(self) -> int:
        """How many wait or are on their way."""
        return len(self._backlog)

    def put(self, item: Item, *, age_s: float = 0, fresh_s: float = FRESH_S) -> None:
        """Never waits. When there are too many, the oldest that is not on its way is dropped.
        `fresh_s`: how old it may be when it is sent."""
        if len(self._backlog) > BACKLOG:
            oldest, _ = self._backlog[1]
            del self._backlog[1]
            self._finish(oldest, "dropped", "too many wait")
        self._backlog.append((item, self.clock() + fresh_s - age_s))
        self._has_some.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            while not self._backlog:
                self._has_some.clear()
                await self._has_some.wait()
            item, until = self._backlog[0]
            try:
                answer = await self._deliver(item, until)
            except Exception as error:  # noqa: BLE001 - one receiver must not end the others
                # Without the error's text: it may hold the address, which may be a secret.
                answer = Answer(reason=f"an error of the waiting room: {type(error).__name__}")
            self._backlog.popleft()
            self._finish(item, "delivered" if answer.is_taken else "failed", answer.reason)

    async def _deliver(self, item: Item, until: float) -> Answer:
        answer, tried = Answer(reason="too old"), 0
        while self.clock() < until:
            answer = await self.send(item)
            tried += 1
            pause_s = self.schedule.pause_s(tried, answer)
            if pause_s is None or self.clock() + pause_s >= until:
                break
            self.log(log.info, "retried", item, reason=answer.reason, in_s=round(pause_s, 1))
            await self.sleep(pause_s)
        return answer

    def _finish(self, item: Item, result: Result, reason: str) -> None:
        if result == "delivered":
            self.log(log.info, result, item)
        else:
            self.log(log.warning, result, item, reason=reason)
        self.done(self.name, item, result)


@dataclass(slots=True)
class Ledger:
    """What this process knows of deliveries that the store has as open."""

    #: Deliveries that a sender has or had.
    taken: set[Delivery] = field(default_factory=set)
    #: Deliveries that are over. The store does not know it yet.
    done: set[Delivery] = field(default_factory=set)

    def is_new(self, delivery: Delivery) -> bool:
        return delivery not in self.taken and delivery not in self.done

    def keep(self, stored: Collection[Delivery]) -> None:
        """After the store was written. What was done meanwhile is taken out the next time."""
        self.taken.intersection_update(stored)
        self.done.intersection_update(stored)


class InFlight:
    """Deliveries under way, and how many to each receiver."""

    def __init__(self) -> None:
        self.tasks: set[asyncio.Task[None]] = set()
        self.receivers: Counter[str] = Counter()
        #: One has ended since this was cleared.
        self.has_room = asyncio.Event()

    def begin(self, receiver: str, work: Coroutine[None, None, None]) -> None:
        self.receivers[receiver] += 1
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(partial(self._end, receiver))

    def _end(self, receiver: str, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        self.receivers[receiver] -= 1
        self.receivers += Counter()  # those of none are forgotten
        self.has_room.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            # It is due again once nobody holds it.
            log.warning("delivery_not_noted", error=str(error), exc_info=error)
