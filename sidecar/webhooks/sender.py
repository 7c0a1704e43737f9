"""Sends the messages of webhooks. For each webhook, one replica at a time sends.

The replica that holds the webhook's leader lease sends from four queues concurrently: events,
calls, retries, and messages that operators resend. It sends the first message of a queue and stores
the result in Redis. A message that waits for a retry delays the messages behind it, until its third
attempt has failed: then it moves to the queue of the retries. Each message is sent at least once:
if a replica stops before it has stored the result, or its lease expires meanwhile, the next replica
sends the message again with the same id.
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

from sidecar.kit import egress
from sidecar.kit.errors import StoreError
from sidecar.kit.http_post import PostResult, post
from sidecar.kit.tasks import stop_workers
from sidecar.rooms.service import WaitingRooms
from sidecar.storage.redis.connect import Store
from sidecar.storage.redis.leader_lease import LeaderLease
from sidecar.webhooks.calls import select_claimable
from sidecar.webhooks.deliveries import QUEUES, Delivery, DeliveryState, QueueHead, QueueName
from sidecar.webhooks.detector import CHECK_S, LEASE_MS
from sidecar.webhooks.messages import compose_message, read_dingtalk_response
from sidecar.webhooks.model import AnyNotice, CallNotice
from sidecar.webhooks.redaction import redact_response
from sidecar.webhooks.redis_keys import webhook_key
from sidecar.webhooks.retry import EXPIRY_S, ORDERED_ATTEMPTS, SCHEDULE, TIMEOUT_S
from sidecar.webhooks.service import ConfiguredWebhook, Webhooks
from sidecar.webhooks.settings import Webhook

#: How many checks of the queues there are for one deletion of old messages, and for one update of
#: the metrics.
_CHECKS_PER_TIDY = 60
_CHECKS_PER_UPDATE = 5
_EXPIRED_REASON = "not sent: its calls are over, or the visitors have arrived"

log = structlog.get_logger()


def open_session() -> aiohttp.ClientSession:
    """Open an HTTP client that ignores cookies and respects HTTPS_PROXY, HTTP_PROXY, NO_PROXY."""
    return egress.open_session(is_private=True, trust_env=True)


async def send_notice(
    session: aiohttp.ClientSession, webhook: Webhook, notice: AnyNotice
) -> PostResult:
    """Send a message once, with a signature of the current time."""
    reader = read_dingtalk_response if webhook.format == "dingtalk" else None
    message = compose_message(webhook, notice, now_s=time.time())
    return await post(session, message, timeout_s=TIMEOUT_S, read=reader, keep_error_body=True)


async def send_forever(
    rooms: WaitingRooms, webhooks: Webhooks, redis: Store, *, timeout_s: float
) -> None:
    """Send the messages of all webhooks until cancelled."""
    async with open_session() as session:
        senders = [Sender(hook, rooms, redis, session, timeout_s=timeout_s) for hook in webhooks]
        try:
            while True:
                await asyncio.gather(*(sender.check_queues() for sender in senders))
                await asyncio.sleep(CHECK_S)
        finally:
            await asyncio.gather(*(sender.stop() for sender in senders))


class Sender:
    """Sends the messages of one webhook."""

    lease_ms = LEASE_MS
    #: Tests replace this function.
    sleep: Callable[[float], Awaitable[None]] = staticmethod(asyncio.sleep)

    def __init__(
        self,
        webhook: ConfiguredWebhook,
        rooms: WaitingRooms,
        redis: Store,
        session: aiohttp.ClientSession,
        *,
        timeout_s: float,
    ) -> None:
        self.webhook = webhook
        #: True if this replica had the leader lease at the last check.
        self.is_leader = False
        self.tasks: dict[QueueName, asyncio.Task[None]] = {}
        self._rooms, self._redis, self._session = rooms, redis, session
        self._timeout_s = timeout_s
        self._replica = secrets.token_urlsafe(9)
        key = webhook_key(webhook.name, "resending")
        self._lease = LeaderLease(redis, key, owner=self._replica, timeout_s=timeout_s)
        self._checks = 0
        #: How many attempts of this replica failed in a row.
        self._failures = 0
        webhook.export_zeros(room.name for room in rooms)

    async def check_queues(self) -> None:
        """Acquire or renew the leader lease. Then start a task for each queue that has none."""
        try:
            self.is_leader = await self._lease.hold(milliseconds=self.lease_ms)
            if self.is_leader and self._checks % _CHECKS_PER_TIDY == 0:
                await self.webhook.deliveries.tidy()
            if self._checks % _CHECKS_PER_UPDATE == 0:
                self.webhook.export_health(await self.webhook.deliveries.read_health())
        except StoreError as error:
            log.warning("resends_failed", webhook=self.webhook.name, error=str(error))
            return
        self._checks += 1
        for queue in QUEUES if self.is_leader else ():
            if (task := self.tasks.get(queue)) is not None:
                if not task.done():
                    continue
                task.result()  # raises the error that ended the task
            self.tasks[queue] = asyncio.create_task(self._send_queue(queue))

    async def stop(self) -> None:
        """Stop sending, and log how many messages wait."""
        await stop_workers(*self.tasks.values())
        if self.is_leader:
            with suppress(StoreError):
                if waiting := (await self.webhook.deliveries.read_health()).counts["waiting"]:
                    hint = "another replica sends them, or this one when it is back"
                    name = self.webhook.name
                    log.warning("webhooks_undelivered", webhook=name, count=waiting, hint=hint)

    async def _send_queue(self, queue: QueueName) -> None:
        """Send the messages of a queue until it is empty or this replica has lost the lease."""
        deliveries = self.webhook.deliveries
        try:
            while head := await deliveries.read_head(queue, owner=self._replica):
                if head.delivery is None:
                    await deliveries.delete(head)
                elif (wait_ms := head.delivery.due_ms - head.now_ms) > 0:
                    await self.sleep(min(wait_ms / 1000, CHECK_S))
                else:
                    await self._deliver_message(head, head.delivery)
        except StoreError as error:
            log.warning("resends_failed", webhook=self.webhook.name, error=str(error))

    async def _deliver_message(self, head: QueueHead, delivery: Delivery) -> None:
        """Send a message once and store the result. Do not retry an operator's resend."""
        start_s, stored = time.monotonic(), delivery.notice
        notice, until_ms = await self._update_notice(head, stored)
        result, updated = PostResult(), delivery
        if notice is not None:
            result, updated = await self._send_once(delivery, notice)
            self._failures = 0 if result.is_taken else self._failures + 1
        elif not isinstance(stored, CallNotice):
            updated = replace(delivery, reason="too old")
        elif head.resend_request or delivery.attempts:
            updated = replace(delivery, reason=_EXPIRED_REASON)
        else:
            await self.webhook.deliveries.delete(head)
            return
        after_s = result.retry_after_s
        # While nothing is delivered, send the next messages more slowly, so that few of them use up
        # their attempts. Calls would expire meanwhile.
        if self._failures > ORDERED_ATTEMPTS and not isinstance(stored, CallNotice):
            after_s = max(after_s, SCHEDULE.backoff.delay_s(ORDERED_ATTEMPTS + 1))
        pause_s = SCHEDULE.pause_s(updated.attempts, after_s) if result.may_retry else None
        due_ms = head.now_ms + round((time.monotonic() - start_s + (pause_s or 0)) * 1000)
        if pause_s is not None and due_ms < until_ms and not head.resend_request:
            self.webhook.log(stored, "retried", reason=updated.reason, in_s=round(pause_s, 1))
            await self._store_result(head, replace(updated, due_ms=due_ms), "waiting")
            return
        state: Literal["delivered", "failed"] = "delivered" if result.is_taken else "failed"
        count_calls = notice is not None and not head.resend_request
        reason = updated.reason
        self.webhook.report(notice or stored, state, reason=reason, count_calls=count_calls)
        resent_by = head.resend_request.partition(" ")[2] or updated.resent_by
        await self._store_result(head, replace(updated, due_ms=0, resent_by=resent_by), state)

    async def _update_notice(
        self, head: QueueHead, notice: AnyNotice
    ) -> tuple[AnyNotice | None, int]:
        """Return the message with only the calls that can still be claimed, or None if it has
        expired, and the time (ms) until which it may be sent. Raises StoreError."""
        if not isinstance(notice, CallNotice):
            until_ms = notice.at_ms + EXPIRY_S * 1000
            return notice if head.resend_request or head.now_ms < until_ms else None, until_ms
        room = self._rooms.find(notice.room)
        if room is None:
            return None, 0
        if room.snapshot is None:
            raise StoreError(f"room {room.name} has not been read yet")
        epoch, timeout_s = room.snapshot.epoch, self._timeout_s
        calls, other_counts = await select_claimable(
            self._redis, room, notice.calls, epoch=epoch, timeout_s=timeout_s
        )
        if not head.resend_request:
            for reason, number in other_counts.items():
                self.webhook.metrics.calls.labels(room.name, reason).inc(number)
        if not calls:
            return None, 0
        at_ms = max(call.called_ms for call in calls)
        until_ms = max(call.claim_before_ms for call in calls)
        return replace(notice, at_ms=at_ms, calls=calls), until_ms

    async def _send_once(
        self, delivery: Delivery, notice: AnyNotice
    ) -> tuple[PostResult, Delivery]:
        """Send a message. Return the result, and the delivery with this result."""
        start_s, settings = time.monotonic(), self.webhook.settings
        try:
            result = await send_notice(self._session, settings, notice)
        except Exception as error:  # noqa: BLE001 - it must not prevent the next message
            # The text of the error may contain the webhook's URL, which is secret.
            result = PostResult(reason=f"an error of the waiting room: {type(error).__name__}")
        reason = redact_response(settings, result.reason)
        if isinstance(notice, CallNotice):  # Redis must not store the links, which are secret
            calls = tuple(replace(call, claim_url="") for call in notice.calls)
            notice = replace(notice, calls=calls)
        updated = replace(
            delivery,
            notice=notice,
            attempts=delivery.attempts + 1,
            tried_ms=int(time.time() * 1000),
            took_ms=round((time.monotonic() - start_s) * 1000),
            status=result.status,
            reason=reason,
            body=redact_response(settings, result.body) if reason else "",
        )
        return result, updated

    async def _store_result(
        self, head: QueueHead, delivery: Delivery, state: DeliveryState
    ) -> None:
        """Store the result of a message. Retry until Redis is available."""
        while True:
            try:
                await self.webhook.deliveries.settle(head, delivery, state)
            except StoreError as error:
                log.warning("deliveries_not_saved", webhook=self.webhook.name, error=str(error))
                await self.sleep(CHECK_S)
            else:
                return
