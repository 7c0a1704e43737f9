"""The operator's call that makes grants, as `waitroom grant` does."""

from __future__ import annotations

from typing import Any

import structlog
from aiohttp import web

from sidecar.kit.clock import iso
from sidecar.kit.errors import ConfigError
from sidecar.kit.http.auth.session import operator
from sidecar.kit.http.problems import problem
from sidecar.kit.http.request_parameters import object_of
from sidecar.kit.setting_types import parse_duration
from sidecar.queue.grants import Grant, expiry, new_id
from sidecar.rooms.endpoints.request_parameters import room_of

MAX_COUNT = 1000
DEFAULT_LIFE_S = 86_400

_MEMBERS = {"class", "expires_in", "once", "count"}

log = structlog.get_logger()


async def issue(request: web.Request) -> web.Response:
    """{"class": "vip", "expires_in": "2h", "once": true, "count": 100}: all but the class may be
    left out."""
    room = room_of(request)
    body = await object_of(request)
    class_name, is_once = body.get("class"), body.get("once", False)
    problems = [f"{name}: unknown member" for name in body if name not in _MEMBERS]
    if not isinstance(class_name, str):
        problems.append('class: is needed, such as {"class": "vip"}')
    if not isinstance(is_once, bool):
        problems.append("once: true or false")
    life_s = _read_life(body.get("expires_in", DEFAULT_LIFE_S), problems)
    count = _read_count(body.get("count", 1), problems)
    if count > 1 and is_once is False:
        problems.append("count: all would be the same; say once too")
    if problems:
        raise ConfigError(problems)
    if class_name not in room.settings.classes:
        known = ", ".join(room.settings.classes) or "it has none"
        return problem(404, "Unknown class", detail=f"The classes of {room.name}: {known}.")
    expires_s = expiry(life_s, room.clock.now_ms())
    ids = [new_id() if is_once else "" for _ in range(count)]
    made = [room.grants.sign(Grant(class_name, expires_s, id_)) for id_ in ids]
    ends = iso(expires_s * 1000)
    log.info("granted", room=room.name, class_name=class_name, count=count, expires_at=ends,
             by=operator(request))  # fmt: skip
    return web.json_response(
        {"room": room.name, "class": class_name, "expires_at": ends, "grants": made}
    )


def _read_life(value: Any, problems: list[str]) -> float:
    """Seconds from a number or from text; what is wrong is added to the problems."""
    try:
        life_s = parse_duration(value)
    except ValueError as error:
        problems.append(f"expires_in: {error}")
        return 0
    if isinstance(life_s, int | float):
        return life_s
    problems.append('expires_in: write a number of seconds, or text such as "2h"')
    return 0


def _read_count(value: Any, problems: list[str]) -> int:
    # JSON has one kind of number: 1.0 is 1.
    is_whole = type(value) is int or (type(value) is float and value.is_integer())
    if is_whole and 1 <= value <= MAX_COUNT:
        return int(value)
    problems.append(f"count: a whole number from 1 to {MAX_COUNT}")
    return 0
