"""Checks names in the configuration, and looks up configured items by name."""

import re
from collections.abc import Iterable, Iterator
from typing import ClassVar, Generic, Protocol, TypeVar

from sidecar.kit.errors import UnknownNameError

#: Separates a lease template's name from a resource's name, as in seat~17.
SEPARATOR = "~"

NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,47}\Z")
#: Names that no room or lease may have. `internal` and `static` are paths in nginx, and
#: waitroom_now is Waitroom's own cookie.
RESERVED_NAMES = {"internal", "static", "now"}


def is_plain_name(text: str) -> bool:
    return NAME.match(text) is not None


class HasName(Protocol):
    @property
    def name(self) -> str: ...


NamedItem = TypeVar("NamedItem", bound=HasName)


class Named(Generic[NamedItem]):
    """The configured items of one `kind`, such as all rooms, in the order of the configuration."""

    kind: ClassVar[str]

    def __init__(self, items: Iterable[NamedItem] = ()) -> None:
        self._items = {item.name: item for item in items}

    def __iter__(self) -> Iterator[NamedItem]:
        return iter(self._items.values())

    def find(self, name: str) -> NamedItem | None:
        return self._items.get(name)

    def get(self, name: str) -> NamedItem:
        """Return the item of this name. Raises UnknownNameError."""
        if (item := self._items.get(name)) is None:
            raise UnknownNameError(self.kind, name, self._items)
        return item
