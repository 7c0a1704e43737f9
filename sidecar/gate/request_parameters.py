"""The room, or the leased resource, that a request names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sidecar.gate.app_keys import GATES
from sidecar.kit.errors import UnknownNameError

if TYPE_CHECKING:
    from aiohttp import web

    from sidecar.gate.contract import Gate


def gate_of(request: web.Request) -> Gate:
    """The room, or the resource that is leased. Raises UnknownNameError."""
    name = request.match_info["room"]
    gate = request.app[GATES].find(name)
    if gate is None:
        raise UnknownNameError("room", name)
    return gate
