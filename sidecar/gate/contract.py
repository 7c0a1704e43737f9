"""The common interface of rooms and leased resources, called gates, for proxies and browsers."""

from collections.abc import Iterable
from typing import TypeAlias

from aiohttp import web

from sidecar.kit.errors import UnknownNameError
from sidecar.kit.names import SEPARATOR
from sidecar.leases.visitor_leases import GuardedResource, Resources
from sidecar.rooms.service import WaitingRoom

#: A room or a leased resource: both have what the endpoints for proxies and visitors use. The name
#: of a resource begins with its template's name: seat~17.
Gate: TypeAlias = WaitingRoom | GuardedResource


class Gates:
    """The rooms and the leased resources of a replica, by name."""

    def __init__(self, rooms: Iterable[WaitingRoom], resources: Resources) -> None:
        self._rooms = {room.name: room for room in rooms}
        self.resources = resources

    def find(self, name: str) -> Gate | None:
        return self._rooms.get(name) or self.resources.find(name)


GATES = web.AppKey("gates", Gates)


def get_gate(request: web.Request) -> Gate:
    """Return the room or leased resource in the request's path. Raises UnknownNameError."""
    name = request.match_info["room"]
    gate = request.app[GATES].find(name)
    if gate is None:
        raise UnknownNameError("room", name)
    return gate


def is_resource(gate: Gate) -> bool:
    """Return True if the gate is a leased resource. nginx must not cache responses about a lease,
    because a lease ends to the millisecond."""
    return SEPARATOR in gate.name


def get_label(gate: Gate) -> str:
    """Return the gate's label in metrics: the name of the room or of the resource's template."""
    return gate.name.partition(SEPARATOR)[0]
