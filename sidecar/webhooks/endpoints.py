"""Endpoints by which operators list and resend the messages of webhooks, and send a test."""

from collections.abc import Sequence

import structlog
from aiohttp import web

from sidecar.http.auth.session import find_logged_name
from sidecar.http.endpoint import OPERATORS, VIEWERS, Endpoints
from sidecar.http.problems import ProblemError
from sidecar.kit.clock import iso
from sidecar.rooms.schemas.common import UNKNOWN_ROOM
from sidecar.rooms.service import ROOMS
from sidecar.webhooks import schemas
from sidecar.webhooks.deliveries import STATES, Delivery, DeliveryState
from sidecar.webhooks.model import CallNotice, create_test_notice
from sidecar.webhooks.service import WEBHOOKS, ConfiguredWebhook


def _find_webhook(request: web.Request) -> ConfiguredWebhook:
    return request.app[WEBHOOKS].get(request.match_info["webhook"])


ENDPOINTS = Endpoints("webhooks", find=_find_webhook, unknown=schemas.UNKNOWN_WEBHOOK)

_WEBHOOK_PATH = "/admin/webhooks/{webhook}"

log = structlog.get_logger()


@ENDPOINTS.get("/admin/webhooks", VIEWERS, replies={200: "The webhooks."})
async def list_webhooks(request: web.Request) -> schemas.WebhookList:
    """List all webhooks, each with its latest message."""
    webhooks = request.app[WEBHOOKS]
    by_name = sorted(webhooks, key=lambda webhook: webhook.name)
    return schemas.WebhookList(webhooks=[await _describe_webhook(webhook) for webhook in by_name])


async def _describe_webhook(webhook: ConfiguredWebhook) -> schemas.WebhookState:
    settings = webhook.settings
    status = await webhook.read_health()
    since_ms = status.failing_since_ms
    return schemas.WebhookState(
        name=webhook.name,
        state=status.state,
        failing_since=None if since_ms is None else iso(since_ms),
        host=settings.host,
        format=settings.format,
        is_signed=bool(settings.secret),
        events=[*settings.events],
        rooms=settings.rooms,
        last=_describe_delivery(*status.last) if status.last else None,
        **status.health.counts,
    )


@ENDPOINTS.get(_WEBHOOK_PATH + "/deliveries", VIEWERS, replies={200: "A page of messages."})
async def list_deliveries(
    request: web.Request, page: schemas.DeliveriesPage
) -> schemas.WebhookDeliveries:
    """List the messages of a webhook, latest first."""
    store = _find_webhook(request).deliveries
    states: tuple[DeliveryState, ...] = STATES if page.state == "all" else (page.state,)
    deliveries = await store.read_page(states, start=page.start, limit=page.limit)
    return schemas.WebhookDeliveries(
        webhook=page.webhook,
        deliveries=[_describe_delivery(state, delivery) for state, delivery in deliveries],
        next=page.next(len(deliveries)),
        **(await store.read_health()).counts,
    )


@ENDPOINTS.post(
    _WEBHOOK_PATH + "/deliveries/{id}/resend",
    OPERATORS,
    replies={200: "The message is sent again, or was already waiting."},
    problems=(schemas.UNKNOWN_DELIVERY, schemas.DELIVERY_CHANGED),
)
async def resend_delivery(request: web.Request, params: schemas.ResendParameters) -> schemas.Resent:
    """Send one message again, with the same id.

    The message is sent once, within about a second. Idempotent while the message waits.
    """
    store, by = _find_webhook(request).deliveries, find_logged_name(request)
    (reply,) = await store.resend([params.id], by=by, attempts=params.attempts)
    if reply == "unknown":
        raise ProblemError(
            schemas.UNKNOWN_DELIVERY, detail=f"There is none with the id {params.id}."
        )
    if reply == "changed":
        raise ProblemError(schemas.DELIVERY_CHANGED, detail="It is not as you saw it.")
    log.info("webhook_resent", webhook=params.webhook, id=params.id, result=reply, by=by)
    return _count_resent(params, [reply])


@ENDPOINTS.post(_WEBHOOK_PATH + "/resend", OPERATORS, replies={200: "The messages are sent again."})
async def resend_failed(request: web.Request, params: schemas.WebhookAddress) -> schemas.Resent:
    """Send all failed messages again, oldest first.

    Each message is sent once, with the same id.
    """
    store, by = _find_webhook(request).deliveries, find_logged_name(request)
    replies = await store.resend(await store.list_failed(), by=by)
    log.info("webhook_failed_resent", webhook=params.webhook, count=replies.count("queued"), by=by)
    return _count_resent(params, replies)


@ENDPOINTS.post(
    _WEBHOOK_PATH + "/test",
    OPERATORS,
    replies={200: "The test message is sent."},
    problems=(UNKNOWN_ROOM,),
)
async def send_test(request: web.Request, params: schemas.TestParameters) -> schemas.SentTest:
    """Send a test message, with the event `test`.

    The message is sent once, within about a second.
    """
    webhook, rooms, by = _find_webhook(request), request.app[ROOMS], find_logged_name(request)
    name = params.room
    if name is None:
        names = (room.name for room in rooms if webhook.settings.is_about(room.name))
        name = min(names, default=None)
    cap = 0 if name is None else rooms.get(name).settings.total_active_users
    notice = create_test_notice(name or "", cap)
    await webhook.deliveries.add(notice, by=by)
    log.info("webhook_tested", webhook=params.webhook, id=notice.id, by=by)
    return schemas.SentTest(webhook=params.webhook, id=notice.id)


def _count_resent(params: schemas.WebhookAddress, replies: Sequence[str]) -> schemas.Resent:
    queued, waiting = replies.count("queued"), replies.count("waiting")
    return schemas.Resent(webhook=params.webhook, queued=queued, waiting=waiting)


def _describe_delivery(state: DeliveryState, delivery: Delivery) -> schemas.WebhookDelivery:
    notice = delivery.notice
    return schemas.WebhookDelivery(
        id=notice.id,
        event=notice.event,
        room=notice.room,
        target=notice.target or None,
        at=iso(notice.at_ms),
        state=state,
        attempts=delivery.attempts,
        calls=len(notice.calls) if isinstance(notice, CallNotice) else None,
        last_attempt_at=None if delivery.tried_ms is None else iso(delivery.tried_ms),
        took_seconds=None if delivery.took_ms is None else delivery.took_ms / 1000,
        status=delivery.status,
        reason=delivery.reason,
        body=delivery.body,
        resent_by=delivery.resent_by or None,
    )
