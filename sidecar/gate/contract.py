"""What proxies and browsers query: a room or a leased resource. Both implement Gate."""

from collections.abc import Iterable
from typing import Protocol

from sidecar.kit.clock import StoreClock
from sidecar.kit.names import SEPARATOR
from sidecar.leases.resource import Resources
from sidecar.rooms.bearer import NOBODY, Bearer
from sidecar.rooms.service import Room
from sidecar.rooms.settings import RoomSettings
from sidecar.rooms.store.replies import Snapshot
from sidecar.visitors.answer import Answer
from sidecar.visitors.grants import Grants
from sidecar.visitors.model import Token
from sidecar.visitors.tokens import Tokens


class Gate(Protocol):
    """What the public endpoints need of a room; a leased resource has all of it too."""

    @property
    def name(self) -> str:
        """A room's own, such as shop; a resource's with its template's: seat~17."""

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
    def checks_bearer(self) -> bool:
        """Whether it matters who brings a cookie."""

    async def check(
        self,
        token: Token | None,
        *,
        may_join: bool,
        from_page: bool = False,
        bearer: Bearer = NOBODY,
    ) -> Answer:
        """The verdict about one request. `may_join`: whether a newcomer takes a place; `from_page`:
        the waiting page sent it, rather than a proxy on behalf of some other request."""

    async def leave(self, token: Token | None, *, why: str = "left") -> None:
        """Gives up whatever the token's bearer has. Raises StoreError."""


class Gates:
    """The rooms and the leased resources of a replica, by name."""

    def __init__(self, rooms: Iterable[Room], resources: Resources | None = None) -> None:
        self._rooms = {room.name: room for room in rooms}
        self._resources = resources or Resources()

    def find(self, name: str) -> Gate | None:
        return self._rooms.get(name) or self._resources.find(name)

    def template_of(self, name: str) -> str:
        """Of a resource that its template may not have; "" where that template is unknown."""
        return self._resources.template_of(name)


def is_resource(gate: Gate) -> bool:
    """A lease ends to the millisecond, so nothing that is said of one may be kept."""
    return SEPARATOR in gate.name


def label(gate: Gate) -> str:
    """As metrics name it: a template has any number of resources."""
    return gate.name.partition(SEPARATOR)[0]
