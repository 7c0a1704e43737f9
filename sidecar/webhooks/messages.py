"""The body of a message in each format, and what DingTalk's responses mean."""

import base64
import hashlib
import hmac
import html
import json
from typing import Any

from yarl import URL

from sidecar.kit.clock import iso
from sidecar.kit.http_post import Message, PostResult, signed_headers
from sidecar.webhooks.model import AnyNotice, CalledVisitor, Notice
from sidecar.webhooks.settings import Event, Webhook

_SENTENCES: dict[Event, str] = {
    "queue_started": "a queue has begun",
    "queue_over": "more than {:,} people wait",
    "queue_empty": "the queue is empty",
    "room_full": "the room is full",
}
#: How many characters of a response are kept.
KEPT = 500
#: Parts of an address that are shorter than this are not hidden.
_SHORTEST = 4
_NUMBERS = ("waiting", "active", "cap", "wait_seconds", "threshold")
#: DingTalk's errcodes (its status is always 200) after which a retry may succeed: busy, and two for
#: too many messages (20 a minute are allowed, then none for ten minutes).
_DINGTALK_LATER = {-1, 130101, 90030}


def compose(webhook: Webhook, notice: AnyNotice, *, now_s: float) -> Message:
    """Return the message as it is sent now: a signature holds the time of the attempt."""
    url = URL(webhook.url)
    document: dict[str, Any]
    if notice.event == "called":  # to programs alone, as the settings say
        document = {**_head(notice), "calls": [_call(call) for call in notice.calls]}
    elif webhook.format == "generic":
        document = {**_head(notice), **{name: getattr(notice, name) for name in _NUMBERS}}
    elif webhook.format == "slack":
        document = {"text": sentence(notice)}
    else:
        document = {"msgtype": "text", "text": {"content": sentence(notice)}}
    body = json.dumps(document).encode()
    secret = webhook.secret
    if secret and webhook.format == "dingtalk":
        url, secret = url.update_query(_dingtalk_query(secret, int(now_s * 1000))), ""
    return Message(url, body, signed_headers(notice.event, notice.id, body, secret, now_s=now_s))


def _head(notice: AnyNotice) -> dict[str, Any]:
    at = iso(notice.at_ms)
    return {"id": notice.id, "event": notice.event, "room": notice.room, "at": at}


def _call(call: CalledVisitor) -> dict[str, Any]:
    return {
        "visitor": call.visitor,
        "called_at": iso(call.called_ms),
        "claim_before": iso(call.claim_before_ms),
        "claim_url": call.claim_url,
    }


def _dingtalk_query(secret: str, now_ms: int) -> dict[str, str]:
    """Return DingTalk's own signature, which covers the time and not the body."""
    signed = f"{now_ms}\n{secret}".encode()
    digest = hmac.new(secret.encode(), signed, hashlib.sha256).digest()
    return {"timestamp": str(now_ms), "sign": base64.b64encode(digest).decode()}


def sentence(notice: Notice) -> str:
    """Return a sentence for people. It begins with Waitroom, a keyword that a chat may require."""
    if notice.event == "test":
        return f"Waitroom {notice.room}: this is a test, nothing has happened."
    event = _SENTENCES[notice.event].format(notice.threshold)
    wait = "" if notice.wait_seconds is None else f", wait about {_duration(notice.wait_seconds)}"
    if not notice.waiting:
        wait = ""
    return (
        f"Waitroom {notice.room}: {event}. {notice.waiting:,} waiting, "
        f"{notice.active:,} of {notice.cap:,} inside{wait}."
    )


def _duration(seconds: int) -> str:
    return f"{seconds} s" if seconds < 120 else f"{round(seconds / 60):,} min"


def read_dingtalk(body: bytes) -> PostResult:
    """Return what the body of DingTalk's response means."""
    try:
        document = json.loads(body)
        code, text = int(document["errcode"]), str(document.get("errmsg", ""))
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        return PostResult(reason="the answer has no errcode: is this DingTalk?")
    if code == 0:
        return PostResult(is_taken=True)
    return PostResult(reason=f"errcode {code}: {text[:200]}", may_retry=code in _DINGTALK_LATER)


def legible(webhook: Webhook, response: bytes | str) -> str:
    """Return the first part of a response as one line of text, without the webhook's address and
    secret, which a receiver may repeat."""
    text = response.decode(errors="replace") if isinstance(response, bytes) else response
    url = URL(webhook.url)
    query = (part for pair in url.query.items() for part in pair)
    words = {webhook.url, webhook.secret, url.user, url.password, url.raw_path_qs, url.path_qs}
    words |= {url.query_string, url.fragment, *url.parts, *url.raw_parts, *query}
    words |= {html.escape(word) for word in words if word}
    for word in sorted(filter(None, words), key=len, reverse=True):
        if len(word) >= _SHORTEST:
            text = text.replace(word, "…")
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:KEPT]
