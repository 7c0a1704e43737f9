"""Findings about the gate: is it there, does it answer, what do those see who must wait."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sidecar.doctor.finding import Finding, ok, problem, warning
from sidecar.doctor.visit import ASSETS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from yarl import URL

    from sidecar.doctor.reply import Reply
    from sidecar.doctor.visit import Visit

_GATE = "`set $waitroom_room {};` and `include waitroom/location.conf;`"
_STATE = re.compile(r'data-state="(\w*)"')
_POSITION = re.compile(r'id="position">(\d+)<')


def reached(seen: Visit) -> Iterator[Finding]:
    """The site answers at all."""
    page = seen.page.with_user(None)
    if not seen.ahead.status:
        fix = "Is nginx running, does it listen on this port, does the name lead to it?"
        if "certificate" in seen.ahead.error:
            fix = "`--insecure` looks at the site all the same."
        yield problem(f"{page} does not answer: {seen.ahead.error}", fix)
    elif seen.page != seen.asked:
        yield ok(f"the site leads to {page}")


def doors(seen: Visit) -> Iterator[Finding]:
    """The doors under /_waitroom/ are there, and the sidecar answers behind them."""
    door = seen.door
    if not door.is_of_sidecar:
        yield _closed_door(seen)
    elif seen.store_is_away:
        yield problem(
            "the sidecar runs, but its store does not answer; newcomers wait",
            "Is Redis running, and is `store` in the sidecar's settings its address?",
        )
    elif door.status >= 500:
        yield problem(f"the sidecar answers {door.status} under /_waitroom/", "Its log says why.")
    else:
        yield ok("the sidecar answers under /_waitroom/")


def _closed_door(seen: Visit) -> Finding:
    door = seen.door
    if not door.status:
        return problem(f"/_waitroom/ does not answer: {door.error}", "Look at nginx's error log.")
    if door.status in {502, 503, 504}:  # nginx's own, or what it says in the sidecar's place
        fix = (
            "Is `waitroom serve` running? `upstream waitroom` in waitroom/settings.conf must name "
            "its `edge_listen`."
        )
        if not _is_script(seen.assets["waiting.js"]):
            fix += " Is `include waitroom/server.conf;` in the server block?"
        return problem(f"nginx reaches no sidecar ({door.status} under /_waitroom/)", fix)
    if door.status in {401, 403}:
        return problem(
            f"the site refuses visitors at /_waitroom/ ({door.status})",
            "A `deny`, an `auth_basic` or a firewall's rule stands before it: let /_waitroom/ "
            "through. With a password of your own: `http://user:password@site/`.",
        )
    if door.document.get("title") == "Not Found" or _is_script(seen.assets["waiting.js"]):
        return problem(
            f"what nginx asks for the sidecar is none ({door.status} under /_waitroom/)",
            "`upstream waitroom` in waitroom/settings.conf must name the sidecar's `edge_listen` "
            "(port 8400), not `ops_listen`.",
        )
    return problem(
        f"/_waitroom/ is answered by the site itself ({door.status}), not by the sidecar",
        "`include waitroom/server.conf;` is missing in the server block, or a `rewrite` or "
        "`return` at server level takes /_waitroom/ first: put that into a location.",
    )


def room(seen: Visit) -> Iterator[Finding]:
    """Both nginx and the sidecar mean the same room."""
    if seen.unknown_room == "":
        yield problem(
            "the page's location does not name its room",
            "Write `set $waitroom_room shop;` before `include waitroom/location.conf;`.",
        )
        return
    if seen.unknown_room is not None:
        yield problem(
            f"nginx asks for a room {seen.unknown_room!r} that the sidecar does not know",
            "Give `set $waitroom_room` in nginx the name of a room in the sidecar's settings, "
            f"or add `[rooms.{seen.unknown_room}]` there.",
        )
        return
    if seen.door.document.get("title") == "Unknown room" and seen.room:
        yield problem(
            f"the sidecar knows no room {seen.room!r}",
            "`waitroom rooms list` shows those that it knows; a changed file needs a restart.",
        )
    if seen.options.room and seen.room_of_gate not in {None, seen.options.room}:
        yield warning(
            f"the page is in room {seen.room_of_gate!r}, not in {seen.options.room!r}",
            "Compare `set $waitroom_room` in the page's location.",
        )


def gate(seen: Visit) -> Iterator[Finding]:
    """The page is behind a room."""
    ahead, first = seen.ahead, seen.first
    if ahead.status == 500 and ahead.is_nginx_error:
        yield problem(
            "nginx answers 500: its question to the sidecar got an odd answer",
            'nginx\'s error log says "auth request unexpected status". A `rewrite` or `return` '
            "at server level catches /_waitroom/ too, or `include waitroom/server.conf;` is "
            "missing.",
        )
    elif ahead.status in {401, 403} and not is_ours(ahead):
        yield _bare_refusal(seen)
    elif seen.unknown_room is not None:
        return
    elif seen.room_of_gate is not None:
        yield ok(f"the page is behind room {seen.room_of_gate!r}; {_how_it_went(seen)}")
        if not (first.is_waiting_page or first.status < 400):
            yield warning(
                f"the site itself answers {first.status} at this address",
                "Give the doctor the address of a page that exists.",
            )
    elif seen.door.document.get("state") == "admitted":
        yield warning(
            f"room {seen.room!r} lets everybody through, so the gate cannot be seen",
            '`suspended = true` or `queueing_method = "passthrough"` is set; '
            "`waitroom rooms show` says so.",
        )
    elif seen.door.is_of_sidecar or seen.door.status not in {502, 503, 504}:
        yield _no_gate(seen)


def _bare_refusal(seen: Visit) -> Finding:
    status = seen.ahead.status
    if "WWW-Authenticate" in seen.ahead.headers:
        return problem(
            "the site asks for a password before anything else, so the gate cannot be seen",
            "Name it: `http://user:password@site/`.",
        )
    only_gate_refuses = seen.first.status not in {401, 403} or seen.first.cookie is not None
    if only_gate_refuses:
        return problem(
            f"who must wait gets nginx's bare {status} instead of the waiting page",
            "This location or server has an `error_page` of its own, which switches ours off: "
            "add `include waitroom/errors.conf;` beside it, before it if it names 401 or 403.",
        )
    return problem(
        f"the page is refused ({status}), by the site itself or without a waiting page",
        "If this location has an `error_page` of its own, add `include waitroom/errors.conf;` "
        "beside it. If the site refuses it, give the doctor another page.",
    )


def _no_gate(seen: Visit) -> Finding:
    fix = f"In the page's location write {_GATE.format(seen.room or 'shop')}."
    cached = is_cache_hit(seen.first) or is_cache_hit(seen.ahead)
    if cached:
        fix += " This answer came from a cache, which answers before the gate can."
    else:
        fix += " A `return` or `rewrite` in the same location answers before the gate."
    return problem("no waiting room at this address: everybody passes, and gets no cookie", fix)


def _how_it_went(seen: Visit) -> str:
    first = seen.first
    if not first.status:
        return f"this visit got no answer: {first.error}"
    if not is_ours(first):
        return "this visit was let in"
    state, position = state_of(first)
    if position is not None:
        return f"this visit waited as number {position}"
    return {"full": "its line is full", "closed": "it lets nobody new in"}.get(
        state, "this visit was asked to wait"
    )


def waiting_page(seen: Visit) -> Iterator[Finding]:
    """The page, its status, and when programs should come back."""
    page = seen.ahead
    if not is_ours(page) or seen.unknown_room is not None:
        return
    if "Retry-After" in page.headers:
        yield ok(
            f"who must wait gets {page.status} with Retry-After: {page.headers['Retry-After']}"
        )
    else:
        yield warning(
            f"the waiting page ({page.status}) comes without Retry-After",
            "`include waitroom/headers.conf;` is missing at server level; "
            "`include waitroom/server.conf;` brings it.",
        )
    if not seen.waiting.is_waiting_page:
        yield problem(
            "what comes is not the waiting page: it does not name its room",
            "`waitroom page > /etc/nginx/waitroom/waiting.conf` makes it from waiting.html; the "
            "first lines there must stay what they were.",
        )


def assets(seen: Visit) -> Iterator[Finding]:
    """The page's script, style and texts."""
    if not seen.door.is_of_sidecar and not _is_script(seen.assets["waiting.js"]):
        return  # there are no doors at all
    missing = [
        f"{name} ({seen.assets[name].status or seen.assets[name].error})"
        for name in ASSETS
        if seen.assets[name].status != 200
    ]
    if missing:
        yield problem(
            f"the waiting page lacks its files: {', '.join(missing)} under /_waitroom/static/",
            "`$waitroom_static` in waitroom/settings.conf must name the folder that has "
            "waiting.js, and nginx's user must be allowed to read it.",
        )
    else:
        yield ok("the waiting page's files are there")


def policy(seen: Visit) -> Iterator[Finding]:
    """A Content-Security-Policy of the site's adds up with ours: both must allow."""
    lines = seen.waiting.headers.getall("Content-Security-Policy", [])
    if not seen.waiting.is_waiting_page:
        return
    policies = [policy for line in lines for policy in line.split(",")]
    for directive in ("script-src", "style-src", "connect-src"):
        for one in policies:
            if _blocks(one, directive, seen.page):
                yield problem(
                    f"the site's Content-Security-Policy blocks the waiting page ({directive}): "
                    f"{one.strip()[:120]}",
                    f"Add 'self' to its {directive}, or set it in your locations instead of at "
                    "server level; the waiting page brings its own.",
                )


def _blocks(policy: str, directive: str, page: URL) -> bool:
    directives: dict[str, list[str]] = {}
    for part in policy.split(";"):
        words = part.split()
        if words:
            directives.setdefault(words[0].lower(), words[1:])
    for name in (f"{directive}-elem", directive, "default-src"):
        if name in directives:
            sources = directives[name]
            break
    else:
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


def is_cache_hit(reply: Reply) -> bool:
    """Whether something in between says that it kept this answer."""
    names = ("X-Cache", "X-Cache-Status", "X-Proxy-Cache", "CF-Cache-Status", "Cache-Status")
    return "Age" in reply.headers or any(
        "hit" in reply.headers.get(name, "").lower() for name in names
    )


def state_of(reply: Reply) -> tuple[str, int | None]:
    """The state and the position that a waiting page shows."""
    state, position = _STATE.search(reply.body), _POSITION.search(reply.body)
    return state[1] if state else "", int(position[1]) if position else None


def is_ours(reply: Reply) -> bool:
    """Whether it is an answer to somebody who must wait."""
    to_room = "/_waitroom/" in reply.headers.get("Location", "")
    own_policy = any(
        "connect-src 'self'; form-action 'self'" in line
        for line in reply.headers.getall("Content-Security-Policy", [])
    )
    return reply.is_waiting_page or to_room or own_policy or "status_url" in reply.document


def _is_script(reply: Reply) -> bool:
    is_javascript = "javascript" in reply.headers.get("Content-Type", "")
    return reply.status == 200 and is_javascript and "_waitroom" in reply.body
