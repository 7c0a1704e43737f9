"""Read a site's own nginx file and name the lines that it lacks. Nothing is written."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_PASSES = {"proxy_pass", "fastcgi_pass", "uwsgi_pass", "scgi_pass", "grpc_pass"}
_SERVER = "include waitroom/server.conf;"
_LOCATION = "waitroom/location.conf"
#: Directives that in a location replace the server's, and the includes that repeat Waitroom's.
_REPEATS = {"add_header": "waitroom/headers.conf", "error_page": "waitroom/errors.conf"}
#: Paths of requests by machines, and of files: they need no room.
_OPEN = {
    *("/webhooks/", "/webhook/", "/health", "/healthz", "/metrics", "/.well-known/"),
    *("/static/", "/media/", "/assets/"),
}

Directive = dict[str, Any]


@dataclass(frozen=True, slots=True)
class MissingLines:
    """Lines to add in one block of the file, or none, and why."""

    line: int
    block: str
    lines: list[str] = field(default_factory=list)
    why: str = ""


def steps_for(file: Path, room: str) -> list[MissingLines]:
    """Return the lines to add, from top to bottom of the file. Empty: nothing is missing.

    Raises ValueError if the file cannot be parsed or has no server block.
    """
    import crossplane  # noqa: PLC0415

    read = crossplane.parse(
        str(file), single=True, comments=False, check_ctx=False, check_args=False
    )
    for error in read["errors"]:
        raise ValueError(str(error["error"]))
    servers = list(_find("server", read["config"][0]["parsed"]))
    if not servers:
        raise ValueError(f"{file} has no server block")
    steps = [step for server in servers for step in _steps_of_server(server, room)]
    return sorted(steps, key=lambda step: step.line)


def _find(name: str, block: list[Directive]) -> Iterator[Directive]:
    """Yield the blocks of that name at any depth, an outer one before those within it."""
    for each in block:
        if "block" in each:
            if each["directive"] == name:
                yield each
            yield from _find(name, each["block"])


def _steps_of_server(server: Directive, room: str) -> Iterator[MissingLines]:
    block = server["block"]
    names = " ".join(arg for each in _all("server_name", block) for arg in each["args"])
    title = f"server ({names})" if names else "server"
    locations = list(_find("location", block))
    if not any(map(_wants_room, locations)):
        yield MissingLines(server["line"], title, why="it has no page: no room")
        return
    if not _includes("waitroom/server.conf", block):
        yield MissingLines(server["line"], title, [_SERVER], "first in it")
    for code in ("401", "403"):
        if any(code in each["args"] for each in _all("error_page", block)):
            why = f"its error_page {code} must stand above server.conf"
            yield MissingLines(server["line"], title, why=why)
    for location in locations:
        yield from _steps_of_location(location, room)


def _steps_of_location(location: Directive, room: str) -> Iterator[MissingLines]:
    block, title = location["block"], f"location {' '.join(location['args'])}"
    has_room = _includes(_LOCATION, block)
    if not (has_room or _wants_room(location)):
        if _has(_PASSES, block) and not _includes("waitroom/strict-path.conf", block):
            lines = ["include waitroom/strict-path.conf;"]
            yield MissingLines(
                location["line"], title, lines, "it has no room, and passes requests on"
            )
        return
    if _all("auth_request", block):
        why = "its auth_request would be replaced: see docs/nginx.md, An auth_request of yours"
        yield MissingLines(location["line"], title, why=why)
    lines = [] if has_room else [f"set $waitroom_room {room};", f"include {_LOCATION};"]
    reasons = ["PHP makes any page here"] if _all("fastcgi_pass", block) and lines else []
    for directive, include in _REPEATS.items():
        if _all(directive, block) and not _includes(include, block):
            lines.append(f"include {include};")
            reasons.append(f"it has an {directive} of its own")
    if lines:
        yield MissingLines(location["line"], title, lines, "; ".join(reasons))


def _wants_room(location: Directive) -> bool:
    """Return True if visitors get pages from an application at a location. Exact paths are health
    checks and the like, except /index.php; files need no room."""
    block, args = location["block"], location["args"]
    if _has({"return", "internal"}, block) or args[-1] in _OPEN:
        return False
    if args[0] == "=":
        return bool(_all("fastcgi_pass", block)) and args[-1] == "/index.php"
    if args == ["/"] or _has(_PASSES, block):
        return True
    leads_to = (each["args"][-1] for each in _all("try_files", block))
    return any(to.startswith(("/", "@")) for to in leads_to)


def _all(name: str, block: list[Directive]) -> list[Directive]:
    return [each for each in block if each["directive"] == name]


def _has(names: set[str], block: list[Directive]) -> bool:
    return any(each["directive"] in names for each in block)


def _includes(path: str, block: list[Directive]) -> bool:
    return any(each["args"][0].endswith(path) for each in _all("include", block))
