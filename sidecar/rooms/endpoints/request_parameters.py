"""The room and the visitor that a request names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sidecar.kit.errors import ConfigError
from sidecar.queue.tokens import is_visitor
from sidecar.rooms.app_keys import ROOMS

if TYPE_CHECKING:
    from aiohttp import web

    from sidecar.rooms.service import Room


def room_of(request: web.Request) -> Room:
    """Raises UnknownNameError."""
    return request.app[ROOMS].get(request.match_info["room"])


def visitor_of(request: web.Request) -> str:
    visitor = request.match_info["visitor"]
    if not is_visitor(visitor):
        raise ConfigError(["that is no visitor's id: it has 22 letters, digits, - and _"])
    return visitor
