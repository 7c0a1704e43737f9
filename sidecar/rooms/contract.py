"""What proxies and browsers ask at: a room, or a resource that is leased. Both are a Door."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from sidecar.kit.names import SEPARATOR
from sidecar.rooms.bearer import NOBODY, Bearer

if TYPE_CHECKING:
    from sidecar.kit.clock import StoreClock
    from sidecar.queue.answer import Answer
    from sidecar.queue.grants import Grants
    from sidecar.queue.model import Token
    from sidecar.queue.tokens import Tokens
    from sidecar.rooms.settings import RoomSettings
    from sidecar.rooms.store.replies import Snapshot


class Door(Protocol):
    """What the edge doors know of a room; a resource has all of it too."""

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
    def asks_who(self) -> bool:
        """Whether it matters who brings a cookie."""

    async def check(
        self,
        token: Token | None,
        *,
        may_join: bool,
        is_asked: bool = False,
        bearer: Bearer = NOBODY,
    ) -> Answer:
        """The verdict about one request. `may_join`: whether a newcomer takes a place; `is_asked`:
        the waiting page asks, and not a proxy about some other request."""

    async def leave(self, token: Token | None, *, why: str = "left") -> None:
        """Gives up whatever the token's bearer has. Raises StoreError."""


class Resources(Protocol):
    """What is guarded beside rooms, to be found by name: resources that are leased."""

    def find(self, name: str) -> Door | None: ...

    def template_of(self, name: str) -> str:
        """Whose resource it would be; "" where it would be none."""


def is_resource(door: Door) -> bool:
    """A lease ends to the millisecond, so nothing that is said of one may be kept."""
    return SEPARATOR in door.name


def label(door: Door) -> str:
    """As metrics name it: a template has any number of resources."""
    return door.name.partition(SEPARATOR)[0]
