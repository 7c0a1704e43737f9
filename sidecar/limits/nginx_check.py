"""The check of a rate limit for nginx: 204 passes, 403 is refused.

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
from sidecar.limits.endpoints import hold
from sidecar.limits.model import Ask, Decision, Outcome
from sidecar.limits.schemas import CheckLimit, LimitPassed, LimitRefused
from sidecar.limits.service import LIMITS, Limit, retry_after_s
from sidecar.limits.service import headers as rate_headers
from sidecar.limits.settings import MAX_KEY_LENGTH

#: The longest that a request is held, seconds. nginx waits somewhat longer for the response.
MAX_HOLD_S = 25.0
#: The punctuation that a key keeps, % included: nginx may have percent-encoded the text already.
_PLAIN = string.punctuation
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
    """Check a request against a rate limit, for nginx.

    For nginx's `auth_request`. A limit that paces holds the response until the request may go, for
    at most 25 s; a request that would go later is refused. No response has a body.
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
        decision = await _hold(request, limit, ask, decision)
    rate = rate_headers(limit, decision)
    if decision.is_allowed:
        return _answer(request, 204, _passed(name, rate))
    return _answer(request, 403, {**rate, **_refused(decision)})


def key_of(text: str) -> str:
    """Make a valid key from nginx' text, so that odd text gives a visitor neither an error nor
    another limit. Everything but printable ASCII is percent-encoded; a key that is too long becomes
    its digest. An IPv6 address becomes its /64 network, which one household has."""
    if ":" in text:
        text = network_of(text)
    key = quote(text, safe=_PLAIN, errors="surrogateescape")
    if len(key) <= MAX_KEY_LENGTH:
        return key
    return "sha256:" + hashlib.sha256(key.encode()).hexdigest()


async def _hold(request: web.Request, limit: Limit, ask: Ask, decision: Decision) -> Decision:
    """Hold the request until it may go. Refuse it, and give its permit back, if that is later than
    MAX_HOLD_S or the replica stops meanwhile."""
    hold_s = MAX_HOLD_S if decision.wait_s <= MAX_HOLD_S else 0
    decision = await hold(request, limit, ask, decision, hold_s)
    if decision.wait_s > 0:
        limit.give_back(ask.key, decision.permit)
        return replace(decision, outcome=Outcome.REFUSED, remaining=0)
    return decision


def _passed(name: str, headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of a 204. nginx sends them again when it redirects the request internally
    (index, try_files) and checks it a second time, so that the request counts once."""
    rate = {header: headers[header] for header in _RATE if header in headers}
    return {**_PASSED, "X-Waitroom-Limit": name, **rate}


def _refused(decision: Decision) -> dict[str, str]:
    if decision.outcome is Outcome.REFUSED_ALONE:
        return {"X-Waitroom-State": "limit-away", "Retry-After": str(STORE_RETRY_S)}
    return {"X-Waitroom-State": "limited", "Retry-After": str(retry_after_s(decision))}


def _answer(request: web.Request, status: int, headers: dict[str, str]) -> web.Response:
    return close_if_body(request, web.Response(status=status, headers=headers))
