"""Findings about the visitor's cookie: given, right, one's own, and understood."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sidecar.doctor.finding import Finding, ok, problem, warning
from sidecar.doctor.gate import is_cache_hit, is_ours, state_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sidecar.doctor.reply import Given
    from sidecar.doctor.visit import Visit


def given(seen: Visit) -> Iterator[Finding]:
    """Visitors get their cookie; without it everybody is a newcomer at every click."""
    first = seen.first
    if first.cookie is not None or seen.room_of_gate is None or seen.unknown_room is not None:
        return
    if not first.status or (first.status in {401, 403} and not is_ours(first)):
        return
    if not is_ours(first):
        yield problem(
            "the gate let this visit in, but its cookie does not arrive: every click of a "
            "visitor takes another slot",
            "This location has an `add_header` of its own, which switches ours off: add "
            "`include waitroom/headers.conf;` beside it.",
        )
        return
    state, position = state_of(first)
    if position is not None:
        yield problem(
            "the waiting page comes without a cookie: nobody keeps a place",
            "`include waitroom/headers.conf;` is missing at server level; "
            "`include waitroom/server.conf;` brings it.",
        )
    elif state == "not_queued" and seen.joined.cookie is not None:
        yield ok("newcomers come very fast: the waiting page joins by itself, cookies come then")
    elif state == "not_queued" and seen.joined.status >= 400 and not seen.joined.is_of_sidecar:
        yield problem(
            f"the waiting page cannot take a place (POST join: {seen.joined.status})",
            "A `limit_except` or a firewall's rule stands before /_waitroom/: let POST through.",
        )


def attributes(seen: Visit) -> Iterator[Finding]:
    """The cookie is sent where it is needed, and nowhere else."""
    cookie = seen.first.cookie or seen.joined.cookie
    if cookie is None:
        return
    wrong = _wrong_attributes(cookie)
    if wrong:
        yield warning(
            f"the cookie {cookie.name} came {', '.join(wrong)}",
            "Something changes it on the way, such as `proxy_cookie_path` or `proxy_cookie_flags` "
            "in nginx or a proxy before it: leave cookies named waitroom_… alone.",
        )
    is_secure, is_https = "secure" in cookie.attributes, seen.page.scheme == "https"
    if is_https and not is_secure:
        yield warning(
            "the site is on https, but the cookie lacks Secure: the sidecar is told http",
            'TLS ends before nginx: let `map "" $waitroom_scheme` in waitroom/settings.conf say '
            "`default $http_x_forwarded_proto;`, and the balancer send X-Forwarded-Proto.",
        )
    elif is_secure and not is_https:
        yield problem(
            "the cookie has Secure, but the site is on http: browsers throw it away",
            "`$waitroom_scheme` in waitroom/settings.conf says https: is X-Forwarded-Proto right, "
            "and should http lead to https?",
        )
    elif not wrong:
        secure = ", Secure" if is_secure else ""
        yield ok(f"the cookie {cookie.name} is right: HttpOnly, SameSite=Lax, Path=/{secure}")


def _wrong_attributes(cookie: Given) -> list[str]:
    has = cookie.attributes
    wrong = []
    if "httponly" not in has:
        wrong.append("without HttpOnly")
    if has.get("samesite", "").lower() != "lax":
        wrong.append(f"with SameSite={has.get('samesite', '(none)')}")
    if has.get("path") != "/":
        wrong.append(f"with Path={has.get('path', '')}")
    if "domain" in has:
        wrong.append(f"with Domain={has['domain']}")
    return wrong


def cached(seen: Visit) -> Iterator[Finding]:
    """No answer that is one visitor's reaches another."""
    first, second = seen.first.cookie, seen.second.cookie
    if first is not None and second is not None and first.value == second.value:
        yield problem(
            "two visitors were given the same cookie: a cache keeps answers with Set-Cookie",
            "Let the cache before nginx respect Set-Cookie and Cache-Control for pages, or keep "
            "pages out of it.",
        )
        return
    ours = [("the waiting page", seen.ahead)] if is_ours(seen.ahead) else []
    ours += [("the status under /_waitroom/", seen.door)] if seen.door.is_of_sidecar else []
    for name, reply in ours:
        if is_cache_hit(reply):
            yield problem(
                f"{name} came from a cache",
                "It says Cache-Control: no-store. Let the cache before nginx respect that, or "
                "keep /_waitroom/ and 503 answers out of it.",
            )
    if first is None:
        return
    said = ", ".join(seen.first.headers.getall("Cache-Control", [])).lower()
    private = any(word in said for word in ("private", "no-store", "no-cache"))
    if not private and ("public" in said or "s-maxage" in said):
        yield warning(
            f"a page that gives a cookie may be kept by caches (Cache-Control: {said})",
            "Let pages behind the room say `Cache-Control: private`; files that never change are "
            "best outside of the room.",
        )
    elif second is not None:
        yield ok("two visitors were given two cookies")


def heartbeat(seen: Visit) -> Iterator[Finding]:
    """The status understands the cookie, whichever replica is asked."""
    if not seen.beats:
        return
    for beat in seen.beats:
        if not beat.is_of_sidecar or beat.status >= 500:
            yield problem(
                f"the heartbeat fails ({beat.status or beat.error})",
                "Waiting visitors lose their place after `heartbeat_timeout`. See the logs of "
                "nginx and the sidecar.",
            )
            return
    states = [str(beat.document["state"]) for beat in seen.beats if "state" in beat.document]
    if "not_queued" in states:
        yield problem(
            f"the heartbeat does not know the cookie just given ({', '.join(states)})",
            "All replicas need the same `secret_keys`. A proxy before nginx must pass cookies "
            "on under /_waitroom/ too.",
        )
    else:
        yield ok(f"the heartbeat works: {states[-1] if states else 'too many polls'}")


def comes_back(seen: Visit) -> Iterator[Finding]:
    """The gate knows a visitor again."""
    if not seen.back.status or seen.cookie is None:
        return
    last = seen.beats[-1].document.get("state") if seen.beats else None
    was_in = last == "admitted" and seen.first.cookie is not None
    if was_in and (seen.back.cookie is not None or is_ours(seen.back)):
        yield problem(
            "the gate does not know its visitor again: the cookie does not come back to it",
            "Something before nginx drops cookies on pages, or replicas have different "
            "`secret_keys`.",
        )


def left(seen: Visit) -> Iterator[Finding]:
    """The doctor holds no place."""
    failed = [reply for reply in seen.left if reply.status != 200 or not reply.is_of_sidecar]
    if failed:
        yield warning(
            f"the doctor could not give up its place ({failed[0].status or failed[0].error})",
            "POST under /_waitroom/ does not reach the sidecar: is there a `limit_except`, or a "
            "firewall's rule? The waiting page's buttons need it.",
        )
    elif seen.left:
        yield ok("the doctor has left again and holds no place")
