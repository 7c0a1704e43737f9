"""The keys of the gate's objects in the aiohttp application."""

from aiohttp import web

from sidecar.gate.contract import Gate, Gates
from sidecar.gate.page.render import Page
from sidecar.gate.repeated_polls import RecentPolls
from sidecar.gate.stamps import Stamps
from sidecar.kit.addresses import AddressLimit
from sidecar.kit.errors import UnknownNameError

GATES = web.AppKey("gates", Gates)
#: The name of the store in the memory of this process. Empty: Redis is the store.
MEMORY = web.AppKey("memory", str)
PAGE = web.AppKey("page", Page)
RECENT_POLLS = web.AppKey("recent_polls", RecentPolls)
STAMPS = web.AppKey("stamps", Stamps)
LEAVE_LIMIT = web.AppKey("leave_limit", AddressLimit)


def gate_of(request: web.Request) -> Gate:
    """Return the room or leased resource in the request's path. Raises UnknownNameError."""
    name = request.match_info["room"]
    gate = request.app[GATES].find(name)
    if gate is None:
        raise UnknownNameError("room", name)
    return gate
