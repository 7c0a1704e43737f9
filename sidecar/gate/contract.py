"""The common interface of rooms and leased resources, called gates, for proxies and browsers."""

from collections.abc import Iterable
from typing import Protocol

from aiohttp import web

from sidecar.kit.clock import StoreClock
from sidecar.kit.errors import UnknownNameError
from sidecar.kit.names import SEPARATOR
from sidecar.leases.visitor_leases import Resources
from sidecar.rooms.bearer import NOBODY, Bearer
from sidecar.rooms.service import WaitingRoom
from sidecar.rooms.settings import RoomSettings
from sidecar.rooms.store.replies import Snapshot
from sidecar.visitors.answer import Answer
from sidecar.visitors.grants import Grants
from sidecar.visitors.model import Token
from sidecar.visitors.tokens import Tokens


class Gate(Protocol):
    """A room or a leased resource, as the endpoints for proxies and visitors use it."""

    @property
    def name(self) -> str:
        """The name of a room, such as shop, or of a template with its resource, such as seat~17."""

    @property
    def settings(self) -> RoomSettings: ...
    @property
    def tokens(self) -> Tokens: ...
    @property
    def clock(self) -> StoreClock: ...
    @property
    def grants(self) -> Grants: ...
    @property
    def snapshot(self) -> Snapshot | None: ...

    @property
    def depends_on_client(self) -> bool:
        """True if a verdict depends on the client as well as on the cookie."""

    async def check(
        self,
        token: Token | None,
        *,
        may_join: bool,
        from_page: bool = False,
        bearer: Bearer = NOBODY,
    ) -> Answer:
        """Return the verdict about one request. With `may_join`, a newcomer joins the queue.
        `from_page` is True if the waiting page sent the request, False if a proxy checks it."""

    async def leave(self, token: Token | None, *, why: str = "left") -> None:
        """Give up the place, session or lease of the token's visitor. Raises StoreError."""


class Gates:
    """The rooms and the leased resources of a replica, by name."""

    def __init__(self, rooms: Iterable[WaitingRoom], resources: Resources | None = None) -> None:
        self._rooms = {room.name: room for room in rooms}
        self._resources = resources or Resources()

    def find(self, name: str) -> Gate | None:
        return self._rooms.get(name) or self._resources.find(name)

    def find_template_name(self, name: str) -> str:
        """Return the template's name in a name such as seat~17, or "" if no template has it."""
        return self._resources.find_template_name(name)


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
