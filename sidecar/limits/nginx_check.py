"""nginx asks here whether a rate limit lets a request pass. 204 passes, 403 is refused.

As /check: never another status, never a body.
"""

import hashlib
import string
from collections.abc import Mapping
from dataclasses import replace
from urllib.parse import quote

from aiohttp import web

from sidecar.http.auth_request import close_if_body, is_preflight, log_unknown, original_method
from sidecar.http.endpoint import ANYBODY, Endpoints
from sidecar.http.metrics import METRICS
from sidecar.http.models import NO_BODY
from sidecar.http.problems import STORE_RETRY_S
from sidecar.kit.addresses import network_of
from sidecar.limits.app_keys import LIMITS
from sidecar.limits.endpoints import hold
from sidecar.limits.model import Ask, Decision, Outcome
from sidecar.limits.schemas import CheckLimit, LimitPassed, LimitRefused
from sidecar.limits.service import Limit, retry_after_s
from sidecar.limits.service import headers as rate_headers
from sidecar.limits.settings import MAX_KEY_LENGTH

#: The longest that a request is held, seconds: nginx waits somewhat longer for the answer.
MAX_HOLD_S = 25.0
#: What a key keeps as it is. A % too: what nginx gives may be encoded already.
_KEPT = string.punctuation
_PASSED = {"X-Waitroom-State": "admitted"}
_RATE = ("RateLimit-Policy", "RateLimit")

ENDPOINTS = Endpoints("proxy")


@ENDPOINTS.get(
    "/check-limit",
    ANYBODY,
    headers=CheckLimit,
    replies={
        204: (NO_BODY, "It does.", LimitPassed),
        403: (
            NO_BODY,
            "It does not; or Redis is unavailable, and the rule refuses then; or it is unknown.",
            LimitRefused,
        ),
    },
    is_cacheable=True,
    is_hand_made=True,
)
async def check_limit(request: web.Request) -> web.Response:
    """Does a rate limit let this request pass?

    For nginx's `auth_request`. A rule that paces holds the answer until the request may go, for at
    most 25 s; what would be later is refused. Nothing has a body.
    """
    headers = request.headers
    name = headers.get("X-Waitroom-Limit", "")
    limit = request.app[LIMITS].find(name)
    if limit is None:
        log_unknown(name, "limit")
        request.app[METRICS].requests.count("", "check-limit", "unknown-limit")
        return _answer(request, 403, {"X-Waitroom-State": "unknown-limit"})
    if is_preflight(headers, original_method(headers)):
        return _answer(request, 204, _PASSED)
    if headers.get("X-Waitroom-Given") == name:
        return _answer(request, 204, _passed(name, headers))
    ask = Ask(key_of(headers.get("X-Waitroom-Key", "")))
    decision = await limit.acquire(ask)
    if decision.permit:
        decision = await _in_time(request, limit, ask, decision)
    rate = rate_headers(limit, decision)
    if decision.is_allowed:
        return _answer(request, 204, _passed(name, rate))
    return _answer(request, 403, {**rate, **_refused(decision)})


def key_of(text: str) -> str:
    """A key that the rule takes, of what nginx was given: a visitor must get no error, nor another
    limit, by an odd one. Anything but printable ASCII is percent-encoded, and what is too long then
    becomes its digest. An IPv6 address stands for its network of 64 bits: a household has it."""
    if ":" in text:
        text = network_of(text)
    key = quote(text, safe=_KEPT, errors="surrogateescape")
    if len(key) <= MAX_KEY_LENGTH:
        return key
    return "sha256:" + hashlib.sha256(key.encode()).hexdigest()


async def _in_time(request: web.Request, limit: Limit, ask: Ask, decision: Decision) -> Decision:
    """Holds the request until its moment; refuses it where that is too far off, or the replica
    stops meanwhile. Whatever does not pass gives its permit back."""
    hold_s = MAX_HOLD_S if decision.wait_s <= MAX_HOLD_S else 0
    decision = await hold(request, limit, ask, decision, hold_s)
    if decision.wait_s > 0:
        limit.give_back(ask.key, decision.permit)
        return replace(decision, outcome=Outcome.REFUSED, remaining=0)
    return decision


def _passed(name: str, headers: Mapping[str, str]) -> dict[str, str]:
    """nginx asks about a request again where it redirects it within (index, try_files), and then
    sends what it got: it counts once."""
    rate = {header: headers[header] for header in _RATE if header in headers}
    return {**_PASSED, "X-Waitroom-Limit": name, **rate}


def _refused(decision: Decision) -> dict[str, str]:
    if decision.outcome is Outcome.REFUSED_ALONE:
        return {"X-Waitroom-State": "limit-away", "Retry-After": str(STORE_RETRY_S)}
    return {"X-Waitroom-State": "limited", "Retry-After": str(retry_after_s(decision))}


def _answer(request: web.Request, status: int, headers: dict[str, str]) -> web.Response:
    return close_if_body(request, web.Response(status=status, headers=headers))
