"""What the gate's handlers find in their application."""

from aiohttp import web

from sidecar.gate.contract import Gate, Gates
from sidecar.gate.page.render import Page
from sidecar.gate.repeated_polls import Repeats
from sidecar.gate.stamps import Stamps
from sidecar.kit.addresses import AddressLimit
from sidecar.kit.errors import UnknownNameError

GATES = web.AppKey("gates", Gates)
#: The name of a store in this process' memory; empty: Redis is the store.
MEMORY = web.AppKey("memory", str)
PAGE = web.AppKey("page", Page)
REPEATS = web.AppKey("repeats", Repeats)
STAMPS = web.AppKey("stamps", Stamps)
LEAVE_LIMIT = web.AppKey("leave_limit", AddressLimit)


def gate_of(request: web.Request) -> Gate:
    """Return the room or leased resource in the address. Raises UnknownNameError."""
    name = request.match_info["room"]
    gate = request.app[GATES].find(name)
    if gate is None:
        raise UnknownNameError("room", name)
    return gate
