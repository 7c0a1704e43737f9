"""The checks of `waitroom doctor`. Each yields findings about the site's responses in a visit.

The gate is the part of nginx's configuration that asks the sidecar whether to admit a request.
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from stat import S_IWGRP, S_IWOTH

from yarl import URL

from sidecar.cli.doctor.findings import Finding, get_finding
from sidecar.cli.doctor.site_response import SetCookie, SiteResponse
from sidecar.cli.doctor.visit import FALSE_ADDRESS, Options, Visit, visit_site
from sidecar.kit.addresses import parse_ip
from sidecar.storage.redis.eviction import SAFE, UNSEEN

_SCRIPT = "waiting.js"
#: The status codes with which nginx responds if the sidecar does not.
_UPSTREAM_ERRORS = {502, 503, 504}
#: The age in seconds up to which nginx must accept a stamp cookie, which is valid for 2 s or more.
FRESH_STAMP_S = 1.5
#: The largest difference between two clocks that is ignored, in seconds.
CLOCK_TOLERANCE_S = 30

# Checks of the sidecar, its room and store, the gate and the waiting page -------------------------


def check_site(visit: Visit) -> Iterator[Finding]:
    """Check that the site responds, and does not redirect to another URL."""
    page, error = visit.page.with_user(None), visit.prefetch.error
    if not visit.prefetch.status:
        name = "untrusted" if "certificate" in error else "silent"
        yield get_finding(name, page=page, error=error)
    elif visit.page != visit.requested:
        yield get_finding("redirected", page=page)


def check_sidecar(visit: Visit) -> Iterator[Finding]:
    """Check that nginx passes requests for /_waitroom/ to the sidecar, which responds."""
    poll, has_script = visit.poll, visit.assets[_SCRIPT].is_waiting_script
    if poll.is_of_sidecar and visit.is_without_redis:
        yield get_finding("no_redis")
    elif poll.is_of_sidecar:
        yield get_finding("sidecar_fails" if poll.status >= 500 else "sidecar", status=poll.status)
    elif not poll.status:
        yield get_finding("no_answer", error=poll.error)
    elif poll.status in _UPSTREAM_ERRORS:
        hint = "" if has_script else " Is `include waitroom/server.conf;` in the server block?"
        yield get_finding("no_sidecar", status=poll.status, more=hint)
    elif poll.status in {401, 403}:
        yield get_finding("refused", status=poll.status)
    else:
        is_misrouted = poll.document.get("title") == "Not Found" or has_script
        name = "wrong_upstream" if is_misrouted else "no_server_conf"
        yield get_finding(name, status=poll.status)


def check_rate_limits(visit: Visit) -> Iterator[Finding]:
    """Check that no rate limit in nginx refuses the waiting page's requests."""
    if visit.is_limited:
        yield get_finding("limited")


def check_replicas(visit: Visit) -> Iterator[Finding]:
    """Check that each replica is reachable. nginx would hide a failure by asking the next one."""
    for address, error in visit.unreachable_replicas.items():
        yield get_finding("dead_replica", address=address, error=error)


def check_room(visit: Visit) -> Iterator[Finding]:
    """Check that the sidecar has the room that nginx names, and that --room names the same room."""
    option = visit.options.room
    if visit.unknown_room is not None:
        yield get_finding(
            "unknown_room" if visit.unknown_room else "nameless_room", room=visit.unknown_room
        )
        return
    if visit.poll.document.get("title") == "Unknown room" and visit.room:
        yield get_finding("unknown_option", room=visit.room)
    if option and visit.room_of_gate not in {None, option}:
        yield get_finding("other_room", room=visit.room_of_gate, option=option)


def check_changes(visit: Visit) -> Iterator[Finding]:
    """Report settings of the room that were changed at run time. Such changes outlive restarts."""
    for what, back in visit.changes:
        yield get_finding("changed", what=what, back=back)


def check_site_reports(visit: Visit) -> Iterator[Finding]:
    """Check that nginx reports the responses of the site behind an adaptive room."""
    if visit.unreported:
        yield get_finding("unheard", room=visit.room, inside=visit.unreported)


def check_store(visit: Visit) -> Iterator[Finding]:
    """Check that the replicas share a store that survives their restart and evicts no keys."""
    stores = visit.stores
    in_memory = [name for name in stores if name.startswith("memory")]
    if len(stores) > 1:
        memory = ", each in a replica's memory" if len(in_memory) == len(stores) else ""
        yield get_finding("stores", count=len(stores), memory=memory)
    elif stores:
        yield get_finding("in_memory" if in_memory else "one_store")
    policy = visit.poll.document.get("eviction")
    if policy not in {None, SAFE}:
        yield get_finding("eviction_unseen" if policy == UNSEEN else "evicts", eviction=policy)


def check_gate(visit: Visit) -> Iterator[Finding]:
    """Check that the page is protected by a room."""
    prefetch, first = visit.prefetch, visit.first
    if prefetch.status == 500 and prefetch.is_nginx_error:
        yield get_finding("odd_verdict")
    elif prefetch.status in {401, 403} and not prefetch.is_of_gate:
        only_gate_refuses = first.status not in {401, 403} or first.cookie is not None
        if "WWW-Authenticate" in prefetch.headers:
            yield get_finding("password")
        else:
            yield get_finding(
                "bare_refusal" if only_gate_refuses else "refused_page", status=prefetch.status
            )
    elif visit.unknown_room is not None:
        return
    elif visit.room_of_gate is not None:
        yield get_finding("gate", room=visit.room_of_gate, visit=_describe_visit(first))
        if not (first.is_waiting_page or first.status < 400):
            yield get_finding("site_error", status=first.status)
    elif visit.poll.document.get("state") == "admitted":
        yield get_finding("open_room", room=visit.room)
    elif visit.poll.is_of_sidecar or visit.poll.status not in _UPSTREAM_ERRORS:
        reason = "A `return` or `rewrite` in the same location answers before the gate."
        if first.is_cache_hit or prefetch.is_cache_hit:
            reason = "This answer came from a cache, which answers before the gate can."
        yield get_finding("no_gate", room=visit.room or "shop", why=reason)


def check_spellings(visit: Visit) -> Iterator[Finding]:
    """Check that no other spelling of the page's path bypasses the room."""
    for path, reply in visit.odd_paths.items():
        if reply.status == 200 and not reply.is_of_gate:
            yield get_finding("odd_path", path=path)
            return


def check_front_controller(visit: Visit) -> Iterator[Finding]:
    """Check that the room covers PHP's front controller, which renders every page."""
    if 200 <= visit.front.status < 400 and not visit.front.is_of_gate:
        yield get_finding("front_controller", room=visit.room or "shop")


def check_error_pages(visit: Visit) -> Iterator[Finding]:
    """Check that no error_page leads to a location with a room. nginx would send a bare 401."""
    for path, reply in visit.missing.items():
        if reply.status == 401 and reply.is_nginx_error and "WWW-Authenticate" not in reply.headers:
            yield get_finding("bare_error_page", path=path)
            return


def check_other_origins(visit: Visit) -> Iterator[Finding]:
    """Check that the room's responses allow other origins (CORS) if the site's responses do."""
    header = "Access-Control-Allow-Origin"
    is_inside = visit.revisit.status and not visit.revisit.is_of_gate
    if is_inside and header in visit.revisit.headers and header not in visit.prefetch_json.headers:
        yield get_finding("no_cors")


def _describe_visit(first: SiteResponse) -> str:
    if not first.status:
        return f"this visit got no answer: {first.error}"
    if not first.is_of_gate:
        return "this visit was let in"
    if first.position is not None:
        outcome = f"this visit waited as number {first.position}"
    else:
        texts = {"full": "its queue is full", "closed": "it lets nobody new in"}
        outcome = texts.get(first.state, "this visit was asked to wait")
    return f"{outcome}, so it has not seen the site behind"


def check_waiting_page(visit: Visit) -> Iterator[Finding]:
    """Check the waiting page's content and its Retry-After header."""
    page = visit.prefetch
    if not page.is_of_gate or visit.unknown_room is not None:
        return
    seconds = page.headers.get("Retry-After")
    name = "no_retry_after" if seconds is None else "retry_after"
    yield get_finding(name, status=page.status, seconds=seconds)
    if not visit.waiting.is_waiting_page:
        yield get_finding("not_the_page")


def check_assets(visit: Visit) -> Iterator[Finding]:
    """Check that nginx serves the waiting page's script, style and texts."""
    if not visit.poll.is_of_sidecar and not visit.assets[_SCRIPT].is_waiting_script:
        return  # nginx does not serve /_waitroom/.
    missing = [
        f"{name} ({reply.status or reply.error})"
        for name, reply in visit.assets.items()
        if reply.status != 200
    ]
    yield get_finding("no_assets" if missing else "assets", names=", ".join(missing))


def check_content_policy(visit: Visit) -> Iterator[Finding]:
    """Check that the site's Content-Security-Policy allows the waiting page's own files."""
    if not visit.waiting.is_waiting_page:
        return
    policies = ",".join(visit.waiting.headers.getall("Content-Security-Policy", [])).split(",")
    for directive in ("script-src", "style-src", "connect-src"):
        for header in policies:
            if _is_blocked_by(header, directive, visit.page):
                yield get_finding("policy", directive=directive, policy=header.strip()[:120])


def _is_blocked_by(policy: str, directive: str, page: URL) -> bool:
    directives: dict[str, list[str]] = {}
    for name, *values in filter(None, map(str.split, policy.split(";"))):
        directives.setdefault(name.lower(), values)
    names = (f"{directive}-elem", directive, "default-src")
    sources = next((directives[name] for name in names if name in directives), None)
    if sources is None:
        return False
    if directive == "script-src" and "'strict-dynamic'" in sources:
        return True
    return not any(_matches_origin(source.lower(), page) for source in sources)


def _matches_origin(source: str, page: URL) -> bool:
    """Return True if a source in a Content-Security-Policy matches the page's origin."""
    if source in {"'self'", "*", f"{page.scheme}:"}:
        return True
    host = source.rpartition("://")[2].partition("/")[0]
    if host.startswith("*."):
        return (page.host or "").endswith(host[1:])
    return host in {page.host, page.authority, f"{page.host}:{page.port}", f"{page.host}:*"}


# Checks of the visitor's cookies -----------------------------------------------------------------


def check_cookie_presence(visit: Visit) -> Iterator[Finding]:
    """Check that visitors get a cookie. Without it, each request counts as a new visitor."""
    first, joined = visit.first, visit.join
    if first.cookie is not None or visit.room_of_gate is None or visit.unknown_room is not None:
        return
    # The endpoint `join` always sets a cookie, unless something on the way strips Set-Cookie.
    is_stripped = joined.is_of_sidecar and joined.status == 200 and joined.cookie is None
    if not first.is_of_gate:
        if first.status and first.status not in {401, 403}:
            yield get_finding("hidden_cookie" if is_stripped else "no_cookie")
    elif first.position is not None:
        yield get_finding("hidden_cookie" if is_stripped else "no_cookie_to_wait")
    elif first.state == "not_queued" and joined.cookie is not None:
        yield get_finding("joins")
    elif first.state == "not_queued" and joined.status >= 400 and not joined.is_of_sidecar:
        yield get_finding("cannot_join", status=joined.status)


def check_cookie_attributes(visit: Visit) -> Iterator[Finding]:
    """Check the attributes by which browsers send the cookie to the whole site and only to it."""
    cookie = visit.first.cookie or visit.join.cookie
    if cookie is None:
        return
    wrong = ", ".join(_find_wrong_attributes(cookie))
    if wrong:
        yield get_finding("changed_cookie", name=cookie.name, wrong=wrong)
    is_secure, is_https = "secure" in cookie.attributes, visit.page.scheme == "https"
    if is_secure != is_https:
        yield get_finding("secure" if is_secure else "not_secure")
    elif not wrong:
        yield get_finding("cookie", name=cookie.name, secure=", Secure" if is_secure else "")


def _find_wrong_attributes(cookie: SetCookie) -> Iterator[str]:
    attributes = cookie.attributes
    if "httponly" not in attributes:
        yield "without HttpOnly"
    if attributes.get("samesite", "").lower() != "lax":
        yield f"with SameSite={attributes.get('samesite', '(none)')}"
    if attributes.get("path") != "/":
        yield f"with Path={attributes.get('path', '')}"
    if "domain" in attributes:
        yield f"with Domain={attributes['domain']}"


def check_caching(visit: Visit) -> Iterator[Finding]:
    """Check that no cache serves one visitor's response to another."""
    first, second = visit.first.cookie, visit.second.cookie
    if first is not None and second is not None and first.value == second.value:
        yield get_finding("same_cookie")
        return
    if visit.prefetch.is_of_gate and visit.prefetch.is_cache_hit:
        yield get_finding("cached", name="the waiting page")
    if visit.poll.is_of_sidecar and visit.poll.is_cache_hit:
        yield get_finding("cached", name="the status under /_waitroom/")
    if (
        visit.prefetch.is_of_gate
        and visit.late_prefetch.status == 200
        and not visit.late_prefetch.is_of_gate
    ):
        yield get_finding("kept_page")
    if first is None:
        return
    header = ", ".join(visit.first.headers.getall("Cache-Control", [])).lower()
    is_private = any(word in header for word in ("private", "no-store", "no-cache"))
    if not is_private and ("public" in header or "s-maxage" in header):
        yield get_finding("cacheable", header=header)
    elif second is not None:
        yield get_finding("two_cookies")


def check_heartbeat(visit: Visit) -> Iterator[Finding]:
    """Check that the status endpoint of every replica accepts the cookie."""
    for beat in visit.heartbeats:
        if not beat.is_of_sidecar or beat.status >= 500:
            yield get_finding("no_heartbeat", error=beat.status or beat.error)
            return
    states = [str(beat.document["state"]) for beat in visit.heartbeats if "state" in beat.document]
    if "not_queued" in states:
        yield get_finding("unknown_cookie", states=", ".join(states))
    elif visit.heartbeats:
        yield get_finding("heartbeat", state=states[-1] if states else "too many polls")


def check_recognition(visit: Visit) -> Iterator[Finding]:
    """Check that the gate recognises an admitted visitor by the cookie."""
    last_state = visit.heartbeats[-1].document.get("state") if visit.heartbeats else None
    is_known = visit.revisit.cookie is None and not visit.revisit.is_of_gate
    if visit.revisit.status and visit.first.cookie and last_state == "admitted" and not is_known:
        yield get_finding("forgotten")


def check_stamps(visit: Visit) -> Iterator[Finding]:
    """Check that nginx accepts a stamp, the cookie by which it lets an admitted visitor pass
    without asking the sidecar. Skip this check if the doctor was not admitted."""
    revisit, stamped = visit.revisit, visit.stamp_visit
    is_inside = any(beat.document.get("state") == "admitted" for beat in visit.heartbeats)
    if not revisit.status or not is_inside or revisit.cookie is not None or revisit.is_waiting_page:
        return
    if revisit.stamp_cookie is None:
        yield get_finding("unknown_key" if "unknown" in visit.nginx_keys else "no_stamps")
    elif not stamped.status or stamped.at_s > revisit.at_s + FRESH_STAMP_S:
        yield get_finding("slow_stamps")
    else:
        is_refused = stamped.stamp_cookie is not None or stamped.is_waiting_page
        yield get_finding("refused_stamp" if is_refused else "stamps")


# Checks of encryption, ports, IP addresses, clocks and the doctor's own places --------------------


def check_encryption(visit: Visit) -> Iterator[Finding]:
    """Check that the site uses https."""
    if visit.page.scheme != "https" and not visit.is_loopback:
        yield get_finding("plain_http")


def check_ops_port(visit: Visit) -> Iterator[Finding]:
    """Check that the port for health, metrics and administration is closed to the outside."""
    is_open = visit.ops.document.get("status") == "ok"
    name = "ops_here" if visit.is_loopback else "ops_open"
    yield get_finding(name if is_open else "ops_closed", port=visit.options.ops_port)


def check_edge_port(visit: Visit) -> Iterator[Finding]:
    """Check that only nginx can reach the edge port, where a client may claim any IP address."""
    if "X-Waitroom-State" in visit.edge.headers and not visit.is_loopback:
        yield get_finding("edge_open", port=visit.options.edge_port)


def check_ops_through_site(visit: Visit) -> Iterator[Finding]:
    """Check that the site does not proxy requests to the ops listener."""
    titles = {"A token is needed", "Administration is off"}
    for path, reply in visit.through_site.items():
        if "\nwaitroom_" in reply.body or reply.document.get("title") in titles:
            yield get_finding("ops_through_site", path=path)


def check_client_address(visit: Visit) -> Iterator[Finding]:
    """Check that the sidecar gets the visitor's IP address, not a proxy's or a forged one."""
    client = visit.poll.document.get("client")
    if not isinstance(client, str):
        return
    parsed = parse_ip(client)
    is_public = parsed is not None and parsed.is_global
    if visit.false_address.document.get("client") == FALSE_ADDRESS:
        yield get_finding("believes_visitors" if is_public else "believes_us", client=client)
    elif client == visit.own_address:
        yield get_finding("own_address", client=client)
    else:
        # Visitors of a public site do not have private addresses.
        is_local = parsed is not None and parsed.is_loopback
        is_public_site = any(address.is_global for address in visit.addresses)
        is_implausible = not visit.is_loopback if is_local else is_public_site
        is_right = parsed is not None and (is_public or not is_implausible)
        yield get_finding("address" if is_right else "balancer", client=client)


def check_verdict_folder(visit: Visit) -> Iterator[Finding]:
    """Check that only root can write to the parents of the folder in which nginx caches verdicts,
    the sidecar's decisions about visitors."""
    for folder in visit.verdict_folder.parents if visit.verdict_folder else ():
        with contextlib.suppress(OSError):
            status = folder.stat()
            if status.st_uid or status.st_mode & (S_IWGRP | S_IWOTH):
                yield get_finding("verdicts", folder=visit.verdict_folder, parent=folder)
                return


def check_clocks(visit: Visit) -> Iterator[Finding]:
    """Check that the clocks of nginx and of the store agree with this machine's."""
    date, updated_at = visit.poll.headers.get("Date"), visit.poll.document.get("updated_at")
    times: dict[str, datetime] = {}
    with contextlib.suppress(ValueError):
        times["nginx"] = parsedate_to_datetime(str(date))
    with contextlib.suppress(ValueError):
        times["the store (Redis)"] = datetime.fromisoformat(str(updated_at))
    offsets = {
        name: time.replace(tzinfo=time.tzinfo or UTC).timestamp() - visit.poll.at_s
        for name, time in times.items()
    }
    wrong = {name: s for name, s in offsets.items() if abs(s) > CLOCK_TOLERANCE_S}
    if offsets and not wrong:
        yield get_finding("clocks")
    elif len(wrong) == 2 and max(wrong.values()) - min(wrong.values()) <= CLOCK_TOLERANCE_S:
        yield get_finding("all_clocks", by=_format_offset(wrong["nginx"]))
    else:
        for name, offset_s in wrong.items():
            yield get_finding("clock", name=name, by=_format_offset(offset_s))


def _format_offset(seconds: float) -> str:
    return f"{abs(seconds):.0f} s {'ahead of' if seconds > 0 else 'behind'}"


def check_leaving(visit: Visit) -> Iterator[Finding]:
    """Check that the site has released the places that the doctor took in the room."""
    failed = [reply for reply in visit.leaves if reply.status != 200 or not reply.is_of_sidecar]
    if failed:
        is_refused = failed[0].status and not failed[0].is_of_sidecar
        name = "no_post" if is_refused else "not_left"
        yield get_finding(name, error=failed[0].status or failed[0].error)
    elif visit.leaves:
        yield get_finding("left")


# The report ---------------------------------------------------------------------------------------

#: All checks, in the order of this file and of the report. A finding may explain later ones.
CHECKS: tuple[Callable[[Visit], Iterator[Finding]], ...] = tuple(
    check for name, check in globals().items() if name.startswith("check_")
)


async def diagnose(
    address: str, options: Options | None = None, *, now_s: Callable[[], float] = time.time
) -> list[Finding]:
    """Visit the page at a URL and return the findings. Raises ValueError if the URL is invalid."""
    url = URL(address if "://" in address else f"http://{address}")
    if url.scheme not in {"http", "https"} or not url.host:
        raise ValueError(f"{address} is no address of a page; write http://shop.example/")
    visit = await visit_site(url, options or Options(), now_s=now_s)
    checks = CHECKS
    if not visit.prefetch.status:
        checks = (check_site,)
    elif visit.is_limited:  # Other responses may be refusals of nginx.
        checks = (check_site, check_rate_limits)
    return [finding for check in checks for finding in check(visit)]
