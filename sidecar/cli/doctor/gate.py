"""Checks of the gate: it is active, it answers, and visitors who must wait see the right page."""

from collections.abc import Iterator

from yarl import URL

from sidecar.cli.doctor.findings import Finding, find
from sidecar.cli.doctor.site_response import SiteResponse
from sidecar.cli.doctor.visit import Visit

_SCRIPT = "waiting.js"
#: Status codes with which nginx responds if the sidecar does not.
_UNREACHABLE = {502, 503, 504}


def site(visit: Visit) -> Iterator[Finding]:
    """Check that the site answers at all."""
    page, error = visit.page.with_user(None), visit.prefetch.error
    if not visit.prefetch.status:
        yield find("untrusted" if "certificate" in error else "silent", page=page, error=error)
    elif visit.page != visit.requested:
        yield find("redirected", page=page)


def sidecar(visit: Visit) -> Iterator[Finding]:
    """Check that nginx serves /_waitroom/ and that the sidecar answers there."""
    poll, has_script = visit.poll, visit.assets[_SCRIPT].is_waiting_script
    if poll.is_of_sidecar:
        if visit.is_without_redis:
            yield find("no_redis")
        else:
            yield find("sidecar_fails" if poll.status >= 500 else "sidecar", status=poll.status)
    elif not poll.status:
        yield find("no_answer", error=poll.error)
    elif poll.status in _UNREACHABLE:
        more = "" if has_script else " Is `include waitroom/server.conf;` in the server block?"
        yield find("no_sidecar", status=poll.status, more=more)
    elif poll.status in {401, 403}:
        yield find("refused", status=poll.status)
    else:
        is_other = poll.document.get("title") == "Not Found" or has_script
        yield find("wrong_upstream" if is_other else "no_server_conf", status=poll.status)


def limited(visit: Visit) -> Iterator[Finding]:
    """Check that no limit of nginx refuses the waiting page's requests."""
    if visit.is_limited:
        yield find("limited")


def replicas(visit: Visit) -> Iterator[Finding]:
    """Check that each replica answers. If one does not, nginx hides it by asking another one."""
    for address, error in visit.unreachable_replicas.items():
        yield find("dead_replica", address=address, error=error)


def room(visit: Visit) -> Iterator[Finding]:
    """Check that nginx names a room of the sidecar, and the one that --room names."""
    option = visit.options.room
    if visit.unknown_room is not None:
        yield find(
            "unknown_room" if visit.unknown_room else "nameless_room", room=visit.unknown_room
        )
        return
    if visit.poll.document.get("title") == "Unknown room" and visit.room:
        yield find("unknown_option", room=visit.room)
    if option and visit.room_of_gate not in {None, option}:
        yield find("other_room", room=visit.room_of_gate, option=option)


def gate(visit: Visit) -> Iterator[Finding]:
    """Check that the page is behind a room."""
    ahead, first = visit.prefetch, visit.first
    if ahead.status == 500 and ahead.is_nginx_error:
        yield find("odd_verdict")
    elif ahead.status in {401, 403} and not ahead.is_of_gate:
        only_gate_refuses = first.status not in {401, 403} or first.cookie is not None
        if "WWW-Authenticate" in ahead.headers:
            yield find("password")
        else:
            yield find("bare_refusal" if only_gate_refuses else "refused_page", status=ahead.status)
    elif visit.unknown_room is not None:
        return
    elif visit.room_of_gate is not None:
        yield find("gate", room=visit.room_of_gate, visit=_describe_visit(first))
        if not (first.is_waiting_page or first.status < 400):
            yield find("site_error", status=first.status)
    elif visit.poll.document.get("state") == "admitted":
        yield find("open_room", room=visit.room)
    elif visit.poll.is_of_sidecar or visit.poll.status not in _UNREACHABLE:
        why = "A `return` or `rewrite` in the same location answers before the gate."
        if first.is_cache_hit or ahead.is_cache_hit:
            why = "This answer came from a cache, which answers before the gate can."
        yield find("no_gate", room=visit.room or "shop", why=why)


def spellings(visit: Visit) -> Iterator[Finding]:
    """Check that no other spelling of the page's path bypasses the room."""
    for path, reply in visit.odd_paths.items():
        if reply.status == 200 and not reply.is_of_gate:
            yield find("odd_path", path=path)
            return


def front_controller(visit: Visit) -> Iterator[Finding]:
    """Check that PHP's front controller, which makes every page, has the room too."""
    if 200 <= visit.front.status < 400 and not visit.front.is_of_gate:
        yield find("front_controller", room=visit.room or "shop")


def error_page(visit: Visit) -> Iterator[Finding]:
    """Check that no error_page leads to a room, because nginx follows only one and ends at 401."""
    for path, reply in visit.missing.items():
        if reply.status == 401 and reply.is_nginx_error and "WWW-Authenticate" not in reply.headers:
            yield find("bare_error_page", path=path)
            return


def other_origins(visit: Visit) -> Iterator[Finding]:
    """Check that other origins may read the room's responses if they may read the site's."""
    header = "Access-Control-Allow-Origin"
    is_inside = visit.revisit.status and not visit.revisit.is_of_gate
    if is_inside and header in visit.revisit.headers and header not in visit.prefetch_json.headers:
        yield find("no_cors")


def _describe_visit(first: SiteResponse) -> str:
    if not first.status:
        return f"this visit got no answer: {first.error}"
    if not first.is_of_gate:
        return "this visit was let in"
    if first.position is not None:
        how = f"this visit waited as number {first.position}"
    else:
        texts = {"full": "its queue is full", "closed": "it lets nobody new in"}
        how = texts.get(first.state, "this visit was asked to wait")
    return f"{how}, so it has not seen the site behind"


def waiting_page(visit: Visit) -> Iterator[Finding]:
    """Check the waiting page, its status code and its Retry-After."""
    page = visit.prefetch
    if not page.is_of_gate or visit.unknown_room is not None:
        return
    seconds = page.headers.get("Retry-After")
    name = "no_retry_after" if seconds is None else "retry_after"
    yield find(name, status=page.status, seconds=seconds)
    if not visit.waiting.is_waiting_page:
        yield find("not_the_page")


def assets(visit: Visit) -> Iterator[Finding]:
    """Check the page's script, style and texts."""
    if not visit.poll.is_of_sidecar and not visit.assets[_SCRIPT].is_waiting_script:
        return  # nginx does not serve /_waitroom/ at all
    missing = [
        f"{name} ({reply.status or reply.error})"
        for name, reply in visit.assets.items()
        if reply.status != 200
    ]
    yield find("no_assets" if missing else "assets", names=", ".join(missing))


def policy(visit: Visit) -> Iterator[Finding]:
    """Check that a Content-Security-Policy of the site allows what the waiting page needs."""
    if not visit.waiting.is_waiting_page:
        return
    policies = ",".join(visit.waiting.headers.getall("Content-Security-Policy", [])).split(",")
    for directive in ("script-src", "style-src", "connect-src"):
        for header in policies:
            if _blocks(header, directive, visit.page):
                yield find("policy", directive=directive, policy=header.strip()[:120])


def _blocks(policy: str, directive: str, page: URL) -> bool:
    directives: dict[str, list[str]] = {}
    for name, *values in filter(None, map(str.split, policy.split(";"))):
        directives.setdefault(name.lower(), values)
    names = (f"{directive}-elem", directive, "default-src")
    sources = next((directives[name] for name in names if name in directives), None)
    if sources is None:
        return False
    if directive == "script-src" and "'strict-dynamic'" in sources:
        return True
    return not any(_allows(source.lower(), page) for source in sources)


def _allows(source: str, page: URL) -> bool:
    if source in {"'self'", "*", f"{page.scheme}:"}:
        return True
    host = source.rpartition("://")[2].partition("/")[0]
    if host.startswith("*."):
        return (page.host or "").endswith(host[1:])
    return host in {page.host, page.authority, f"{page.host}:{page.port}", f"{page.host}:*"}
