"""What Redis keeps as JSON."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

if TYPE_CHECKING:
    from typing import Self


class Document:
    """Of a dataclass, its text."""

    __slots__ = ()

    @classmethod
    @cache
    def _adapter(cls) -> TypeAdapter[Any]:
        return TypeAdapter(cls)

    def text(self) -> str:
        return self._adapter().dump_json(self, by_alias=True).decode()

    @classmethod
    def read(cls, text: str | None) -> Self | None:
        """None: there is none, or another version wrote it, and it cannot be read."""
        try:
            return None if text is None else cls._adapter().validate_json(text)
        except ValidationError:
            return None
