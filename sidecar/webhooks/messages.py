"""Composes the HTTP requests that send messages, in each format, and reads the responses."""

import base64
import hashlib
import hmac
import json
from dataclasses import asdict
from typing import Any

from yarl import URL

from sidecar.kit.clock import iso
from sidecar.kit.http_post import Message, PostResult, signed_headers
from sidecar.webhooks.model import AnyNotice, CalledVisitor, Notice
from sidecar.webhooks.settings import Webhook

_SENTENCES: dict[str, str] = {
    "queue_started": "a queue has begun",
    "queue_over": "more than {:,} people wait",
    "queue_empty": "the queue is empty",
    "room_full": "the room is full",
    "target_queue_over": "more than {:,} jobs wait",
}
_NUMBER_FIELDS = ("waiting", "active", "cap", "wait_seconds", "threshold")
#: The values of errcode after which a retry may succeed: DingTalk is busy, or refuses all messages
#: for ten minutes, because it got more than 20 in one minute. Its HTTP status is always 200.
_DINGTALK_TEMPORARY_ERRORS = {-1, 130101, 90030}


def compose_message(webhook: Webhook, notice: AnyNotice, *, now_s: float) -> Message:
    """Compose the HTTP request that sends a message, signed for an attempt at `now_s`."""
    url = URL(webhook.url)
    document: dict[str, Any]
    if notice.event == "called":  # the settings allow only the generic format
        document = {**_describe_notice(notice), "calls": list(map(_describe_call, notice.calls))}
    elif webhook.format == "generic":
        numbers = {name: getattr(notice, name) for name in _NUMBER_FIELDS}
        document = _describe_notice(notice) | numbers | (asdict(notice.site) if notice.site else {})
    elif webhook.format == "slack":
        document = {"text": write_sentence(notice)}
    else:
        document = {"msgtype": "text", "text": {"content": write_sentence(notice)}}
    body = json.dumps(document).encode()
    secrets = webhook.secrets
    if secrets and webhook.format == "dingtalk":
        url, secrets = url.update_query(_sign_for_dingtalk(secrets[0], int(now_s * 1000))), []
    return Message(url, body, signed_headers(notice.event, notice.id, body, secrets, now_s=now_s))


def _describe_notice(notice: AnyNotice) -> dict[str, Any]:
    about = {"target": notice.target} if notice.target else {"room": notice.room}
    return {"id": notice.id, "event": notice.event, **about, "at": iso(notice.at_ms)}


def _describe_call(call: CalledVisitor) -> dict[str, Any]:
    return {
        "visitor": call.visitor,
        "called_at": iso(call.called_ms),
        "claim_before": iso(call.claim_before_ms),
        "claim_url": call.claim_url,
    }


def _sign_for_dingtalk(secret: str, now_ms: int) -> dict[str, str]:
    """Return the query parameters of DingTalk's signature. It covers the time but not the body."""
    signed = f"{now_ms}\n{secret}".encode()
    digest = hmac.new(secret.encode(), signed, hashlib.sha256).digest()
    return {"timestamp": str(now_ms), "sign": base64.b64encode(digest).decode()}


def write_sentence(notice: Notice) -> str:
    """Describe an event in a sentence. It begins with "Waitroom", by which a chat may filter it."""
    if notice.event == "test":
        subject = f"Waitroom {notice.room}".rstrip()  # there may be no rooms
        return f"{subject}: this is a test, nothing has happened."
    if site := notice.site:
        change = f"the site's state is now {site.state} (before: {site.previous_state})"
        return f"Waitroom {notice.room}: {change}. {site.text[:1].upper()}{site.text[1:]}."
    event = _SENTENCES[notice.event].format(notice.threshold)
    has_wait = notice.waiting and notice.wait_seconds is not None
    wait = f", wait about {_format_duration(notice.wait_seconds or 0)}" if has_wait else ""
    inside = "called" if notice.target else "inside"
    return (
        f"Waitroom {notice.target or notice.room}: {event}. {notice.waiting:,} waiting, "
        f"{notice.active:,} of {notice.cap:,} {inside}{wait}."
    )


def _format_duration(seconds: int) -> str:
    return f"{seconds} s" if seconds < 120 else f"{round(seconds / 60):,} min"


def read_dingtalk_response(body: bytes) -> PostResult:
    """Read the result of an attempt from the body of DingTalk's response."""
    try:
        document = json.loads(body)
        code, text = int(document["errcode"]), str(document.get("errmsg", ""))
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        return PostResult(reason="the answer has no errcode: is this DingTalk?")
    if code == 0:
        return PostResult(is_taken=True)
    return PostResult(
        reason=f"errcode {code}: {text[:200]}", may_retry=code in _DINGTALK_TEMPORARY_ERRORS
    )
