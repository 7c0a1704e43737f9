"""Names in the configuration, and collections keyed by them."""

import re
from collections.abc import Iterable, Iterator
from typing import ClassVar, Generic, Protocol, TypeVar

from sidecar.kit.errors import UnknownNameError

#: Separates a lease template's name from a resource's name, as in seat~17.
SEPARATOR = "~"

NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,47}\Z")
#: Names that no room or lease may have: two are paths of nginx, waitroom_now is a cookie of ours.
RESERVED_NAMES = {"internal", "static", "now"}


def is_plain_name(text: str) -> bool:
    return NAME.match(text) is not None


class HasName(Protocol):
    @property
    def name(self) -> str: ...


T = TypeVar("T", bound=HasName)


class Named(Generic[T]):
    """The configured items of one `kind`, in the order of the configuration."""

    kind: ClassVar[str]

    def __init__(self, items: Iterable[T] = ()) -> None:
        self._items = {item.name: item for item in items}

    def __iter__(self) -> Iterator[T]:
        return iter(self._items.values())

    def find(self, name: str) -> T | None:
        return self._items.get(name)

    def get(self, name: str) -> T:
        """Return the item of this name. Raises UnknownNameError."""
        item = self._items.get(name)
        if item is None:
            raise UnknownNameError(self.kind, name, self._items)
        return item
