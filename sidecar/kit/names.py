"""What may be a name in the configuration, and what is found by one."""

import re
from collections.abc import Iterable, Iterator
from typing import ClassVar, Generic, Protocol, TypeVar

from sidecar.kit.errors import UnknownNameError

#: Between a name and what it contains, where one word names both: seat~17.
SEPARATOR = "~"


NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,47}\Z")
#: Taken: two are addresses of nginx's own, and waitroom_now is the cookie of stamps.
RESERVED_NAMES = {"internal", "static", "now"}


def is_plain_name(text: str) -> bool:
    """Whether it may be a name in the configuration."""
    return NAME.match(text) is not None


class HasName(Protocol):
    @property
    def name(self) -> str: ...


T = TypeVar("T", bound=HasName)


class Named(Generic[T]):
    """All of one `kind` that the configuration has, in its order."""

    kind: ClassVar[str]

    def __init__(self, items: Iterable[T] = ()) -> None:
        self._items = {item.name: item for item in items}

    def __iter__(self) -> Iterator[T]:
        return iter(self._items.values())

    def find(self, name: str) -> T | None:
        return self._items.get(name)

    def get(self, name: str) -> T:
        """Raises UnknownNameError."""
        item = self._items.get(name)
        if item is None:
            raise UnknownNameError(self.kind, name, self._items)
        return item
