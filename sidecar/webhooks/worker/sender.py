"""Brings notices to one webhook, in order, and tries again where that may help.

Each webhook has a courier of its own: one that hangs holds up no other.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Literal, TypeAlias

import aiohttp
import structlog

from sidecar.kit.retry import Backoff
from sidecar.webhooks.messages import Answer, compose, judge

if TYPE_CHECKING:
    from sidecar.webhooks.call_notices import CallNotice
    from sidecar.webhooks.room_notices import Notice
    from sidecar.webhooks.settings import Webhook

    #: What couriers bring.
    News: TypeAlias = Notice | CallNotice

Result = Literal["delivered", "failed", "dropped"]

TIMEOUT_S = 5.0
#: Eight tries take about a quarter of an hour.
TRIES = 8
BACKOFF = Backoff(1.0, 300.0, factor=4, jitter=0.2)
#: A notice that is older is not tried again: nobody wants to hear of it now.
FRESH_S = 3600.0
#: Notices that wait for one webhook.
BACKLOG = 1000
#: How much of an answer is read, bytes.
ANSWER_LIMIT = 4096

log = structlog.get_logger()


def new_session() -> aiohttp.ClientSession:
    """It keeps no cookies, and heeds HTTPS_PROXY, HTTP_PROXY and NO_PROXY."""
    return aiohttp.ClientSession(
        timeout=aiohttp.ClientTimeout(total=TIMEOUT_S),
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=True,
    )


async def send(session: aiohttp.ClientSession, webhook: Webhook, notice: News) -> Answer:
    """One try. Never raises for what a receiver does; never follows a redirect."""
    try:
        message = compose(webhook, notice, now_s=time.time())
        async with session.post(
            message.url, data=message.body, headers=message.headers, allow_redirects=False
        ) as reply:
            body = b""
            while webhook.format == "dingtalk" and len(body) < ANSWER_LIMIT:
                part = await reply.content.read(ANSWER_LIMIT)
                if not part:
                    break
                body += part
            retry_after = reply.headers.get("Retry-After", "")
            return judge(webhook, reply.status, retry_after, body, now_s=time.time())
    except TimeoutError:
        reason = f"no answer within {TIMEOUT_S:g} s"
        return Answer(is_taken=False, reason=reason, may_retry=True)
    except (aiohttp.ClientError, OSError) as error:
        return Answer(is_taken=False, reason=_why(error), may_retry=True)
    except ValueError as error:  # such as a host's name that cannot be one
        return Answer(is_taken=False, reason=_why(error))


def _why(error: Exception) -> str:
    """Not the error's own text: it may hold the address, which is a secret."""
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    said = cause.strerror if isinstance(cause, OSError) else None
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


class Courier:
    """`done` is told each notice's result, once. `sleep` and `clock` (seconds) are time's."""

    def __init__(  # noqa: PLR0913
        self,
        name: str,
        webhook: Webhook,
        session: aiohttp.ClientSession,
        done: Callable[[str, News, Result], None],
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self.webhook = webhook
        self._session = session
        self._done = done
        self._sleep = sleep
        self._clock = clock
        #: Notices, and until when (by the clock) each is worth a try. The first is on its way.
        self._backlog: deque[tuple[News, float]] = deque()
        self._news = asyncio.Event()

    def __len__(self) -> int:
        """How many notices wait or are on their way."""
        return len(self._backlog)

    def bring(self, notice: News, *, age_s: float = 0, fresh_s: float = FRESH_S) -> None:
        """Never waits. When there are too many, the oldest that is not on its way is dropped.
        `fresh_s`: how old it may be when it is sent."""
        if len(self._backlog) > BACKLOG:
            oldest, _ = self._backlog[1]
            del self._backlog[1]
            self._finish(oldest, "dropped", "too many wait")
        self._backlog.append((notice, self._clock() + fresh_s - age_s))
        self._news.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            while not self._backlog:
                self._news.clear()
                await self._news.wait()
            notice, until = self._backlog[0]
            try:
                answer = await self._deliver(notice, until)
            except Exception as error:  # noqa: BLE001 - one webhook must not end the others
                # Without the error's text: it may hold the address, which may be a secret.
                reason = f"an error of the waiting room: {type(error).__name__}"
                answer = Answer(is_taken=False, reason=reason)
            self._backlog.popleft()
            self._finish(notice, "delivered" if answer.is_taken else "failed", answer.reason)

    async def _deliver(self, notice: News, until: float) -> Answer:
        answer = Answer(is_taken=False, reason="too old")
        for tried in range(1, TRIES + 1):
            if self._clock() >= until:
                return answer
            answer = await send(self._session, self.webhook, notice)
            if not answer.may_retry or tried == TRIES:
                return answer
            pause_s = max(answer.after_s, round(BACKOFF.delay_s(tried), 1))
            if self._clock() + pause_s >= until:
                return answer
            self._log(log.info, "webhook_retried", notice, reason=answer.reason, in_s=pause_s)
            await self._sleep(pause_s)
        return answer

    def _finish(self, notice: News, result: Result, reason: str) -> None:
        if result == "delivered":
            self._log(log.info, "webhook_delivered", notice)
        else:
            self._log(log.warning, f"webhook_{result}", notice, reason=reason)
        self._done(self.name, notice, result)

    def _log(self, say: Callable[..., object], what: str, notice: News, **more: object) -> None:
        say(what, webhook=self.name, host=self.webhook.host, room=notice.room,
            happened=notice.event, id=notice.id, **more)  # fmt: skip
