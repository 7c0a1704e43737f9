"""Checks of the visitor's cookie (it is set, correct, not shared, recognised) and of stamps."""

from collections.abc import Iterator

from sidecar.cli.doctor.findings import Finding, find
from sidecar.cli.doctor.site_response import SetCookie
from sidecar.cli.doctor.visit import Visit

#: The age in seconds up to which a stamp must be valid: its lifetime is at least 2 s.
FRESH_STAMP_S = 1.5


def presence(visit: Visit) -> Iterator[Finding]:
    """Check that visitors get a cookie; without one, a visitor is a newcomer at every click."""
    first, joined = visit.first, visit.join
    if first.cookie is not None or visit.room_of_gate is None or visit.unknown_room is not None:
        return
    if not first.is_of_gate:
        if first.status and first.status not in {401, 403}:
            yield find("hidden_cookie" if _is_hidden(visit) else "no_cookie")
    elif first.position is not None:
        yield find("hidden_cookie" if _is_hidden(visit) else "no_cookie_to_wait")
    elif first.state == "not_queued" and joined.cookie is not None:
        yield find("joins")
    elif first.state == "not_queued" and joined.status >= 400 and not joined.is_of_sidecar:
        yield find("cannot_join", status=joined.status)


def _is_hidden(visit: Visit) -> bool:
    """Return True if even the response of the sidecar's own endpoint has no cookie."""
    return visit.join.is_of_sidecar and visit.join.status == 200 and visit.join.cookie is None


def attributes(visit: Visit) -> Iterator[Finding]:
    """Check that the cookie is sent where it is needed, and nowhere else."""
    cookie = visit.first.cookie or visit.join.cookie
    if cookie is None:
        return
    wrong = ", ".join(_wrong_attributes(cookie))
    if wrong:
        yield find("changed_cookie", name=cookie.name, wrong=wrong)
    is_secure, is_https = "secure" in cookie.attributes, visit.page.scheme == "https"
    if is_secure != is_https:
        yield find("secure" if is_secure else "not_secure")
    elif not wrong:
        yield find("cookie", name=cookie.name, secure=", Secure" if is_secure else "")


def _wrong_attributes(cookie: SetCookie) -> Iterator[str]:
    has = cookie.attributes
    if "httponly" not in has:
        yield "without HttpOnly"
    if has.get("samesite", "").lower() != "lax":
        yield f"with SameSite={has.get('samesite', '(none)')}"
    if has.get("path") != "/":
        yield f"with Path={has.get('path', '')}"
    if "domain" in has:
        yield f"with Domain={has['domain']}"


def cached(visit: Visit) -> Iterator[Finding]:
    """Check that no response for one visitor reaches another."""
    first, second = visit.first.cookie, visit.second.cookie
    if first is not None and second is not None and first.value == second.value:
        yield find("same_cookie")
        return
    if visit.prefetch.is_of_gate and visit.prefetch.is_cache_hit:
        yield find("cached", name="the waiting page")
    if visit.poll.is_of_sidecar and visit.poll.is_cache_hit:
        yield find("cached", name="the status under /_waitroom/")
    if visit.prefetch.is_of_gate and visit.late.status == 200 and not visit.late.is_of_gate:
        yield find("kept_page")
    if first is None:
        return
    header = ", ".join(visit.first.headers.getall("Cache-Control", [])).lower()
    is_private = any(word in header for word in ("private", "no-store", "no-cache"))
    if not is_private and ("public" in header or "s-maxage" in header):
        yield find("cacheable", header=header)
    elif second is not None:
        yield find("two_cookies")


def heartbeat(visit: Visit) -> Iterator[Finding]:
    """Check that the status endpoint of every replica recognises the cookie."""
    for beat in visit.heartbeats:
        if not beat.is_of_sidecar or beat.status >= 500:
            yield find("no_heartbeat", error=beat.status or beat.error)
            return
    states = [str(beat.document["state"]) for beat in visit.heartbeats if "state" in beat.document]
    if "not_queued" in states:
        yield find("unknown_cookie", states=", ".join(states))
    elif visit.heartbeats:
        yield find("heartbeat", state=states[-1] if states else "too many polls")


def recognition(visit: Visit) -> Iterator[Finding]:
    """Check that the gate recognises a visitor who is inside."""
    last = visit.heartbeats[-1].document.get("state") if visit.heartbeats else None
    is_known = visit.revisit.cookie is None and not visit.revisit.is_of_gate
    if visit.revisit.status and visit.first.cookie and last == "admitted" and not is_known:
        yield find("forgotten")


def stamps(visit: Visit) -> Iterator[Finding]:
    """Check that nginx itself lets a visitor inside pass. Skipped if this visitor is not inside."""
    back, again = visit.revisit, visit.stamp_visit
    is_inside = any(beat.document.get("state") == "admitted" for beat in visit.heartbeats)
    if not back.status or not is_inside or back.cookie is not None or back.is_waiting_page:
        return
    if back.stamp is None:
        yield find("unknown_key" if "unknown" in visit.nginx_keys else "no_stamps")
    elif not again.status or again.at_s > back.at_s + FRESH_STAMP_S:
        yield find("slow_stamps")
    else:
        is_refused = again.stamp is not None or again.is_waiting_page
        yield find("refused_stamp" if is_refused else "stamps")


def leaving(visit: Visit) -> Iterator[Finding]:
    """Check that the doctor has released its places."""
    failed = [reply for reply in visit.leaves if reply.status != 200 or not reply.is_of_sidecar]
    if failed:
        is_refused = failed[0].status and not failed[0].is_of_sidecar
        name = "no_post" if is_refused else "not_left"
        yield find(name, error=failed[0].status or failed[0].error)
    elif visit.leaves:
        yield find("left")
