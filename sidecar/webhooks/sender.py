"""Sends the messages of webhooks: one replica at a time for each webhook.

The sender that holds the webhook's leader lease works on three lanes side by side: the queue of
events, the queue of calls, and what operators send again. In each lane it tries the first message,
settles it in Redis, and goes on with the next, so a message whose try is due again later holds up
those behind it. A message is sent at least once: if a replica stops between the try and the
settling, or its lease expires during the try, another replica sends the message again, with the
same id.
"""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Literal

import aiohttp
import structlog

from sidecar.kit.errors import StoreError
from sidecar.kit.http_post import PostResult, post
from sidecar.kit.tasks import stop_workers
from sidecar.rooms.service import WaitingRooms
from sidecar.storage.redis.connect import Store
from sidecar.storage.redis.leader_lease import LeaderLease
from sidecar.webhooks.calls import CallStore, invite
from sidecar.webhooks.deliveries import LANES, Delivery, Head, Lane, State
from sidecar.webhooks.detector import LEASE_MS, LOOK_S
from sidecar.webhooks.messages import compose, legible, read_dingtalk
from sidecar.webhooks.model import AnyNotice, CallNotice
from sidecar.webhooks.redis_keys import webhook_key
from sidecar.webhooks.retry import FRESH_S, SCHEDULE, TIMEOUT_S
from sidecar.webhooks.service import Receiver, Webhooks
from sidecar.webhooks.settings import Webhook

#: How many looks there are from one tidying to the next.
_TIDY_EVERY = 60
_OVER = "not sent: its calls are over, or the visitors have arrived"

log = structlog.get_logger()


def new_session() -> aiohttp.ClientSession:
    """Return a client without cookies that heeds HTTPS_PROXY, HTTP_PROXY and NO_PROXY."""
    return aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar(), trust_env=True)


async def send(session: aiohttp.ClientSession, webhook: Webhook, notice: AnyNotice) -> PostResult:
    """Send a message once, signed at the time of this try."""
    read = read_dingtalk if webhook.format == "dingtalk" else None
    message = compose(webhook, notice, now_s=time.time())
    return await post(session, message, timeout_s=TIMEOUT_S, read=read, keep_refusal=True)


async def send_forever(
    rooms: WaitingRooms, webhooks: Webhooks, redis: Store, *, timeout_s: float
) -> None:
    """Send the messages of all webhooks until cancelled."""
    async with new_session() as session:
        senders = [Sender(hook, rooms, redis, session, timeout_s=timeout_s) for hook in webhooks]
        try:
            while True:
                await asyncio.gather(*(sender.look() for sender in senders))
                await asyncio.sleep(LOOK_S)
        finally:
            await asyncio.gather(*(sender.stop() for sender in senders))


class Sender:
    lease_ms = LEASE_MS
    #: Waits for a number of seconds.
    sleep: Callable[[float], Awaitable[None]] = staticmethod(asyncio.sleep)

    def __init__(
        self,
        receiver: Receiver,
        rooms: WaitingRooms,
        redis: Store,
        session: aiohttp.ClientSession,
        *,
        timeout_s: float,
    ) -> None:
        self.receiver = receiver
        #: Whether this replica had the leader lease at the last look.
        self.is_leader = False
        self.lanes: dict[Lane, asyncio.Task[None]] = {}
        self._rooms, self._redis, self._session = rooms, redis, session
        self._timeout_s = timeout_s
        self._replica = secrets.token_urlsafe(9)
        key = webhook_key(receiver.name, "resending")
        self._lease = LeaderLease(redis, key, owner=self._replica, timeout_s=timeout_s)
        self._looks = 0
        receiver.count_from_zero(room.name for room in rooms)

    async def look(self) -> None:
        """Renew the leader lease, and start to work on each lane that is idle."""
        try:
            self.is_leader = await self._lease.hold(milliseconds=self.lease_ms)
            if self.is_leader and self._looks % _TIDY_EVERY == 0:
                await self.receiver.deliveries.tidy()
        except StoreError as error:
            self._warn(error)
            return
        self._looks += 1
        if self.is_leader:
            for lane in LANES:
                if (task := self.lanes.get(lane)) is not None:
                    if not task.done():
                        continue
                    task.result()
                self.lanes[lane] = asyncio.create_task(self._work(lane))

    async def stop(self) -> None:
        """Cancel what is being sent, and log how many messages wait."""
        await stop_workers(*self.lanes.values())
        if self.is_leader:
            with suppress(StoreError):
                if waiting := (await self.receiver.deliveries.counts())["waiting"]:
                    hint = "another replica sends them, or this one when it is back"
                    name = self.receiver.name
                    log.warning("webhooks_undelivered", webhook=name, count=waiting, hint=hint)

    def _warn(self, error: StoreError) -> None:
        log.warning("resends_failed", webhook=self.receiver.name, error=str(error))

    async def _work(self, lane: Lane) -> None:
        """Send the messages of a lane until it is empty or the lease is lost."""
        try:
            while head := await self.receiver.deliveries.head(lane, owner=self._replica):
                if head.delivery is None:
                    await self.receiver.deliveries.forget(head)
                elif (wait_ms := head.delivery.due_ms - head.now_ms) > 0:
                    await self.sleep(min(wait_ms / 1000, LOOK_S))
                else:
                    await self._deliver(head, head.delivery)
        except StoreError as error:
            self._warn(error)

    async def _deliver(self, head: Head, delivery: Delivery) -> None:
        """Try a message once and settle it. One that an operator sends again is not retried."""
        began_s, kept = time.monotonic(), delivery.notice
        notice, until_ms = await self._renew(head, kept)
        if notice is None and isinstance(kept, CallNotice):
            if not head.request and not delivery.attempts:
                await self.receiver.deliveries.forget(head)
                return
            result, after = PostResult(), replace(delivery, reason=_OVER)
        elif notice is None:
            result, after = PostResult(), replace(delivery, reason="too old")
        else:
            result, after = await self._try(delivery, notice)
        pause_s = SCHEDULE.pause_s(after.attempts, result.after_s) if result.may_retry else None
        due_ms = head.now_ms + round((time.monotonic() - began_s + (pause_s or 0)) * 1000)
        if pause_s is not None and due_ms < until_ms and not head.request:
            self.receiver.log(kept, "retried", reason=after.reason, in_s=round(pause_s, 1))
            await self._settle(head, replace(after, due_ms=due_ms), "waiting")
            return
        state: Literal["delivered", "failed"] = "delivered" if result.is_taken else "failed"
        count_calls = notice is not None and not head.request
        self.receiver.report(notice or kept, state, reason=after.reason, count_calls=count_calls)
        resent_by = head.request.partition(" ")[2] or after.resent_by
        await self._settle(head, replace(after, due_ms=0, resent_by=resent_by), state)

    async def _renew(self, head: Head, notice: AnyNotice) -> tuple[AnyNotice | None, int]:
        """Return a message as it is now, and until when it may be sent. None: not any more.

        A message about calls has only the visitors who can still come. Raises StoreError.
        """
        if not isinstance(notice, CallNotice):
            until_ms = notice.at_ms + FRESH_S * 1000
            return notice if head.request or head.now_ms < until_ms else None, until_ms
        room = self._rooms.find(notice.room)
        if room is None:
            return None, 0
        if room.snapshot is None:
            raise StoreError(f"room {room.name} has not been read yet")
        store = CallStore(self._redis, room.name, self._timeout_s)
        invited, others = await invite(room, store, notice.calls, epoch=room.snapshot.epoch)
        if not head.request:
            for why, number in others.items():
                self.receiver.metrics.calls.labels(room.name, why).inc(number)
        if not invited:
            return None, 0
        at_ms = max(call.called_ms for call in invited)
        until_ms = max(call.claim_before_ms for call in invited)
        return replace(notice, at_ms=at_ms, calls=invited), until_ms

    async def _try(self, delivery: Delivery, notice: AnyNotice) -> tuple[PostResult, Delivery]:
        """Send a message, and return the result and the delivery with it."""
        began_s, webhook = time.monotonic(), self.receiver.settings
        try:
            result = await send(self._session, webhook, notice)
        except Exception as error:  # noqa: BLE001 - this must not end the lane
            # Without the error's text, which may hold the address.
            result = PostResult(reason=f"an error of the waiting room: {type(error).__name__}")
        reason = legible(webhook, result.reason)
        if isinstance(notice, CallNotice):  # without the links, which are secret
            calls = tuple(replace(call, claim_url="") for call in notice.calls)
            notice = replace(notice, calls=calls)
        after = replace(
            delivery,
            notice=notice,
            attempts=delivery.attempts + 1,
            tried_ms=int(time.time() * 1000),
            took_ms=round((time.monotonic() - began_s) * 1000),
            status=result.status,
            reason=reason,
            body=legible(webhook, result.body) if reason else "",
        )
        return result, after

    async def _settle(self, head: Head, delivery: Delivery, state: State) -> None:
        """Write what became of a message, again and again until Redis has it."""
        while True:
            try:
                await self.receiver.deliveries.settle(head, delivery, state)
            except StoreError as error:
                log.warning("deliveries_not_saved", webhook=self.receiver.name, error=str(error))
                await self.sleep(LOOK_S)
            else:
                return
