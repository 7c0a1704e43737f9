"""A decorator for immutable dataclasses of which each request creates many instances."""

from dataclasses import dataclass
from typing import TypeVar, dataclass_transform

_Class = TypeVar("_Class")


@dataclass_transform(frozen_default=True)
def value(cls: type[_Class]) -> type[_Class]:
    """Make a dataclass that is frozen for the type checker only, because a dataclass that is frozen
    at run time takes four times as long to create."""
    return dataclass(slots=True, unsafe_hash=True)(cls)
