"""The endpoint at which nginx checks a request against a rate limit.

Like /check, the endpoint returns 204 (may pass) or 403 (refused), and never a body.
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
from sidecar.kit.addresses import find_network
from sidecar.limits.endpoints import hold_response
from sidecar.limits.model import Call, Decision, Outcome
from sidecar.limits.schemas import CheckLimit, LimitPassed, LimitRefused
from sidecar.limits.service import LIMITS, Limit, get_retry_after_s, make_rate_headers
from sidecar.limits.settings import MAX_KEY_LENGTH

#: How long a request is held at most, seconds. nginx waits somewhat longer for the response.
MAX_HOLD_S = 25.0
#: The punctuation that is not encoded in a key, % included, because nginx may have percent-encoded
#: the value already.
_PLAIN = string.punctuation
_PASSED = {"X-Waitroom-State": "admitted"}
_RATE = ("RateLimit-Policy", "RateLimit")

ENDPOINTS = Endpoints("proxy")


@ENDPOINTS.get(
    "/check-limit",
    ANYBODY,
    headers=CheckLimit,
    replies={
        204: (NO_BODY, "The request may pass.", LimitPassed),
        403: (
            NO_BODY,
            "Over the limit, or unknown limit, or Redis is unavailable and the limit refuses then.",
            LimitRefused,
        ),
    },
    is_cacheable=True,
    is_hand_made=True,
)
async def check_limit(request: web.Request) -> web.Response:
    """Check a request against a rate limit, for nginx.

    For nginx's `auth_request`. A limit that paces holds the response until the request may go, for
    at most 25 s. A request that would have to wait longer is refused. No response has a body.
    """
    headers = request.headers
    name = headers.get("X-Waitroom-Limit", "")
    limit = request.app[LIMITS].find(name)
    if limit is None:
        log_unknown(name, "limit")
        request.app[METRICS].requests.count("", "check-limit", "unknown-limit")
        return _make_response(request, 403, {"X-Waitroom-State": "unknown-limit"})
    if is_preflight(headers, original_method(headers)):
        return _make_response(request, 204, _PASSED)
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


def make_key(text: str) -> str:
    """Make a valid key from the value of nginx' header, so that an odd value causes no error and
    is not counted with another key. Percent-encode everything but printable ASCII, replace a long
    key by its digest, and an IPv6 address by its /64 network (that of a household)."""
    if ":" in text:
        text = find_network(text)
    key = quote(text, safe=_PLAIN, errors="surrogateescape")
    if len(key) <= MAX_KEY_LENGTH:
        return key
    return "sha256:" + hashlib.sha256(key.encode()).hexdigest()


async def _hold_request(
    request: web.Request, limit: Limit, call: Call, decision: Decision
) -> Decision:
    """Hold the request until it may go. Refuse the request and release its permit if it would be
    held for more than MAX_HOLD_S, or if the replica stops meanwhile."""
    hold_s = MAX_HOLD_S if decision.wait_s <= MAX_HOLD_S else 0
    decision = await hold_response(request, limit, call, decision, hold_s)
    if decision.wait_s > 0:
        limit.start_release(call.key, decision.permit)
        return replace(decision, outcome=Outcome.REFUSED, remaining=0)
    return decision


def _make_passed_headers(name: str, headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of a 204. If nginx redirects the request internally (index, try_files) and
    checks the request again, nginx sends these headers back, so that the request counts once."""
    rate = {header: headers[header] for header in _RATE if header in headers}
    return {**_PASSED, "X-Waitroom-Limit": name, **rate}


def _make_refused_headers(decision: Decision) -> dict[str, str]:
    if decision.outcome is Outcome.REFUSED_ALONE:
        return {"X-Waitroom-State": "limit-away", "Retry-After": str(STORE_RETRY_S)}
    return {"X-Waitroom-State": "limited", "Retry-After": str(get_retry_after_s(decision))}


def _make_response(request: web.Request, status: int, headers: dict[str, str]) -> web.Response:
    return close_if_body(request, web.Response(status=status, headers=headers))
