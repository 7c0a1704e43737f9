"""The endpoint at which nginx checks a request against a rate limit. Like /check, the endpoint
returns 204 (may pass) or 403 (refused), and never a body."""

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
from sidecar.kit.addresses import find_network
from sidecar.limits.endpoints import hold_response
from sidecar.limits.model import Call, Decision, Outcome
from sidecar.limits.schemas import CheckLimit, LimitPassed, LimitRefused
from sidecar.limits.service import LIMITS, Limit, get_retry_after_s, make_rate_headers
from sidecar.limits.settings import MAX_KEY_LENGTH

#: The longest time for which a request is held, in seconds. nginx times out a little later.
MAX_HOLD_S = 25.0
#: The punctuation that is not percent-encoded in a key. It includes %, because nginx may have
#: percent-encoded the value already.
_SAFE = string.punctuation
_PASSED_HEADERS = {"X-Waitroom-State": "admitted"}
_RATE_HEADERS = ("RateLimit-Policy", "RateLimit")

ENDPOINTS = Endpoints("proxy")


@ENDPOINTS.get(
    "/check-limit",
    ANYBODY,
    headers=CheckLimit,
    replies={
        204: (NO_BODY, "The request may pass.", LimitPassed),
        403: (
            NO_BODY,
            "The request is over the limit, or the limit is unknown or refuses without Redis.",
            LimitRefused,
        ),
    },
    is_cacheable=True,
    bypasses_models=True,
)
async def check_limit(request: web.Request) -> web.Response:
    """Check a request against a rate limit, for nginx.

    Use it with `auth_request`. A limit that paces holds the response until the request may proceed,
    for at most 25 s. A request that would have to wait longer is refused. No response has a body.
    """
    headers = request.headers
    name = headers.get("X-Waitroom-Limit", "")
    limit = request.app[LIMITS].find(name)
    if limit is None:
        log_unknown(name, "limit")
        request.app[METRICS].requests.count("", "check-limit", "unknown-limit")
        return _make_response(request, 403, {"X-Waitroom-State": "unknown-limit"})
    if is_preflight(headers, original_method(headers)):
        return _make_response(request, 204, _PASSED_HEADERS)
    if headers.get("X-Waitroom-Given") == name:
        return _make_response(request, 204, _make_passed_headers(name, headers))
    call = Call(make_key(headers.get("X-Waitroom-Key", "")))
    decision = await limit.acquire(call)
    if decision.permit:
        decision = await _hold_request(request, limit, call, decision)
    rate = make_rate_headers(limit, decision)
    if decision.is_allowed:
        return _make_response(request, 204, _make_passed_headers(name, rate))
    return _make_response(request, 403, {**rate, **_make_refused_headers(decision)})


def make_key(header: str) -> str:
    """Make a valid key from any value of the header X-Waitroom-Key: percent-encode everything but
    printable ASCII, and replace a key that is too long by its digest. Replace an IPv6 address by
    its /64 network, which usually is one household."""
    if ":" in header:
        header = find_network(header)
    key = quote(header, safe=_SAFE, errors="surrogateescape")
    if len(key) <= MAX_KEY_LENGTH:
        return key
    return "sha256:" + hashlib.sha256(key.encode()).hexdigest()


async def _hold_request(
    request: web.Request, limit: Limit, call: Call, decision: Decision
) -> Decision:
    """Hold the request until it may proceed. If it would be held for more than MAX_HOLD_S, or the
    replica stops meanwhile, refuse the request and release its permit."""
    hold_s = MAX_HOLD_S if decision.wait_s <= MAX_HOLD_S else 0
    decision = await hold_response(request, limit, call, decision, hold_s)
    if decision.wait_s > 0:
        limit.start_release(call.key, decision.permit)
        return replace(decision, outcome=Outcome.REFUSED, remaining=0)
    return decision


def _make_passed_headers(name: str, headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of a 204. After an internal redirect (index, try_files), nginx checks the
    same request again and sends these headers back, so that the request is counted only once."""
    rate = {header: headers[header] for header in _RATE_HEADERS if header in headers}
    return {**_PASSED_HEADERS, "X-Waitroom-Limit": name, **rate}


def _make_refused_headers(decision: Decision) -> dict[str, str]:
    if decision.outcome is Outcome.REFUSED_ALONE:
        return {"X-Waitroom-State": "limit-away", "Retry-After": str(STORE_RETRY_S)}
    return {"X-Waitroom-State": "limited", "Retry-After": str(get_retry_after_s(decision))}


def _make_response(request: web.Request, status: int, headers: dict[str, str]) -> web.Response:
    return close_if_body(request, web.Response(status=status, headers=headers))
