"""Finds the lines that a site's own nginx file lacks. Writes nothing."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_PASS_DIRECTIVES = {"proxy_pass", "fastcgi_pass", "uwsgi_pass", "scgi_pass", "grpc_pass"}
_SERVER = "include waitroom/server.conf;"
_LOCATION = "waitroom/location.conf"
#: Directives that cancel the server's own in a location, with the include that repeats ours.
_REPEATED_BY = {"add_header": "waitroom/headers.conf", "error_page": "waitroom/errors.conf"}
#: Locations that need no room, because programs request them or they only have files.
_WITHOUT_ROOM = {
    *("/webhooks/", "/webhook/", "/health", "/healthz", "/metrics", "/.well-known/"),
    *("/static/", "/media/", "/assets/"),
}

Directive = dict[str, Any]


@dataclass(frozen=True, slots=True)
class MissingLines:
    """The lines that a block of the file lacks, and the reason. `why` alone is only a remark."""

    line: int
    block: str
    lines: list[str] = field(default_factory=list)
    why: str = ""


def find_missing_lines(file: Path, room: str) -> list[MissingLines]:
    """Return the missing lines in the order of the file, or nothing if it has all of them.

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
    steps = [step for server in servers for step in _check_server(server, room)]
    return sorted(steps, key=lambda step: step.line)


def _find_blocks(name: str, block: list[Directive]) -> Iterator[Directive]:
    """Yield the blocks with a name at any depth. An outer block comes before the blocks in it."""
    for each in block:
        if "block" in each:
            if each["directive"] == name:
                yield each
            yield from _find_blocks(name, each["block"])


def _check_server(server: Directive, room: str) -> Iterator[MissingLines]:
    block = server["block"]
    names = " ".join(arg for each in _find_directives("server_name", block) for arg in each["args"])
    title = f"server ({names})" if names else "server"
    locations = list(_find_blocks("location", block))
    if not any(map(_needs_room, locations)):
        yield MissingLines(server["line"], title, why="it has no page: no room")
        return
    if not _includes("waitroom/server.conf", block):
        yield MissingLines(server["line"], title, [_SERVER], "first in it")
    for code in ("401", "403"):
        if any(code in each["args"] for each in _find_directives("error_page", block)):
            why = f"its error_page {code} must stand above server.conf"
            yield MissingLines(server["line"], title, why=why)
    for location in locations:
        yield from _check_location(location, room)


def _check_location(location: Directive, room: str) -> Iterator[MissingLines]:
    block, title = location["block"], f"location {' '.join(location['args'])}"
    has_room = _includes(_LOCATION, block)
    if not (has_room or _needs_room(location)):
        if _has_any(_PASS_DIRECTIVES, block) and not _includes("waitroom/strict-path.conf", block):
            lines = ["include waitroom/strict-path.conf;"]
            yield MissingLines(
                location["line"], title, lines, "it has no room, and passes requests on"
            )
        return
    if _find_directives("auth_request", block):
        why = "its auth_request would be replaced: see docs/nginx.md, An auth_request of yours"
        yield MissingLines(location["line"], title, why=why)
    lines = [] if has_room else [f"set $waitroom_room {room};", f"include {_LOCATION};"]
    is_php = bool(lines and _find_directives("fastcgi_pass", block))
    reasons = ["PHP makes any page here"] if is_php else []
    for directive, include in _REPEATED_BY.items():
        if _find_directives(directive, block) and not _includes(include, block):
            lines.append(f"include {include};")
            reasons.append(f"it has an {directive} of its own")
    if lines:
        yield MissingLines(location["line"], title, lines, "; ".join(reasons))


def _needs_room(location: Directive) -> bool:
    """Return True if a location serves an application's pages to visitors, rather than files. An
    exact path other than /index.php probably is a health check."""
    block, args = location["block"], location["args"]
    if _has_any({"return", "internal"}, block) or args[-1] in _WITHOUT_ROOM:
        return False
    if args[0] == "=":
        return bool(_find_directives("fastcgi_pass", block)) and args[-1] == "/index.php"
    if args == ["/"] or _has_any(_PASS_DIRECTIVES, block):
        return True
    leads_to = (each["args"][-1] for each in _find_directives("try_files", block))
    return any(to.startswith(("/", "@")) for to in leads_to)


def _find_directives(name: str, block: list[Directive]) -> list[Directive]:
    return [each for each in block if each["directive"] == name]


def _has_any(names: set[str], block: list[Directive]) -> bool:
    return any(each["directive"] in names for each in block)


def _includes(path: str, block: list[Directive]) -> bool:
    return any(each["args"][0].endswith(path) for each in _find_directives("include", block))
