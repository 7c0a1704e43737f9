"""Finds the lines that are missing in a site's nginx file. Does not change the file."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_PASS_DIRECTIVES = {"proxy_pass", "fastcgi_pass", "uwsgi_pass", "scgi_pass", "grpc_pass"}
_SERVER_INCLUDE = "include waitroom/server.conf;"
_LOCATION_INCLUDE = "waitroom/location.conf"
#: Directives that, in a location, cancel the same directives of the server block. Each value is the
#: include that repeats Waitroom's directives in the location.
_REPEATED_BY = {"add_header": "waitroom/headers.conf", "error_page": "waitroom/errors.conf"}
#: Locations that need no room, because only programs request them or they only serve files.
_PATHS_WITHOUT_ROOM = {
    *("/webhooks/", "/webhook/", "/health", "/healthz", "/metrics", "/.well-known/"),
    *("/static/", "/media/", "/assets/"),
}

Directive = dict[str, Any]


@dataclass(frozen=True, slots=True)
class MissingLines:
    """The lines that are missing in a block of the file. If `lines` is empty, there is nothing to
    add, and `reason` is a remark about the block."""

    #: The number of the block's first line, and its title, such as "location /".
    line: int
    block: str
    lines: list[str] = field(default_factory=list)
    reason: str = ""


def find_missing_lines(file: Path, room: str) -> list[MissingLines]:
    """Return the missing lines by block, in the order of the file.

    Raises ValueError if the file cannot be parsed or has no server block.
    """
    import crossplane  # noqa: PLC0415

    parsed = crossplane.parse(
        str(file), single=True, comments=False, check_ctx=False, check_args=False
    )
    for error in parsed["errors"]:
        raise ValueError(str(error["error"]))
    servers = list(_find_blocks("server", parsed["config"][0]["parsed"]))
    if not servers:
        raise ValueError(f"{file} has no server block")
    blocks = [missing for server in servers for missing in _check_server(server, room)]
    return sorted(blocks, key=lambda missing: missing.line)


def _find_blocks(name: str, block: list[Directive]) -> Iterator[Directive]:
    """Yield the blocks of the directive `name` at any depth, each before the blocks inside it."""
    for directive in block:
        if "block" in directive:
            if directive["directive"] == name:
                yield directive
            yield from _find_blocks(name, directive["block"])


def _check_server(server: Directive, room: str) -> Iterator[MissingLines]:
    block = server["block"]
    server_names = _select_directives("server_name", block)
    names = " ".join(arg for directive in server_names for arg in directive["args"])
    title = f"server ({names})" if names else "server"
    locations = list(_find_blocks("location", block))
    if not any(map(_needs_room, locations)):
        yield MissingLines(server["line"], title, reason="it has no page: no room")
        return
    if not _includes("waitroom/server.conf", block):
        yield MissingLines(server["line"], title, [_SERVER_INCLUDE], "first in it")
    for code in ("401", "403"):
        if any(code in page["args"] for page in _select_directives("error_page", block)):
            reason = f"its error_page {code} must stand above server.conf"
            yield MissingLines(server["line"], title, reason=reason)
    for location in locations:
        yield from _check_location(location, room)


def _check_location(location: Directive, room: str) -> Iterator[MissingLines]:
    block, title = location["block"], f"location {' '.join(location['args'])}"
    has_room = _includes(_LOCATION_INCLUDE, block)
    if not (has_room or _needs_room(location)):
        if _has_any(_PASS_DIRECTIVES, block) and not _includes("waitroom/strict-path.conf", block):
            lines = ["include waitroom/strict-path.conf;"]
            yield MissingLines(
                location["line"], title, lines, "it has no room, and passes requests on"
            )
        return
    if _select_directives("auth_request", block):
        reason = "its auth_request would be replaced: see docs/nginx-own-lines.md"
        yield MissingLines(location["line"], title, reason=reason)
    lines = [] if has_room else [f"set $waitroom_room {room};", f"include {_LOCATION_INCLUDE};"]
    is_php = bool(lines and _select_directives("fastcgi_pass", block))
    reasons = ["PHP makes any page here"] if is_php else []
    for directive, include in _REPEATED_BY.items():
        if _select_directives(directive, block) and not _includes(include, block):
            lines.append(f"include {include};")
            reasons.append(f"it has an {directive} of its own")
    if lines:
        yield MissingLines(location["line"], title, lines, "; ".join(reasons))


def _needs_room(location: Directive) -> bool:
    """Return True if a location serves an application's pages to visitors, rather than files. A
    location for one exact path other than /index.php probably is a health check."""
    block, args = location["block"], location["args"]
    if _has_any({"return", "internal"}, block) or args[-1] in _PATHS_WITHOUT_ROOM:
        return False
    if args[0] == "=":
        return bool(_select_directives("fastcgi_pass", block)) and args[-1] == "/index.php"
    if args == ["/"] or _has_any(_PASS_DIRECTIVES, block):
        return True
    fallbacks = (directive["args"][-1] for directive in _select_directives("try_files", block))
    return any(fallback.startswith(("/", "@")) for fallback in fallbacks)


def _select_directives(name: str, block: list[Directive]) -> list[Directive]:
    return [directive for directive in block if directive["directive"] == name]


def _has_any(names: set[str], block: list[Directive]) -> bool:
    return any(directive["directive"] in names for directive in block)


def _includes(path: str, block: list[Directive]) -> bool:
    return any(
        include["args"][0].endswith(path) for include in _select_directives("include", block)
    )
