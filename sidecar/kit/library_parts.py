"""Checks that a library has the undocumented parts that Waitroom uses."""

from collections.abc import Callable
from inspect import signature
from typing import TypeAlias

#: What a part has to be: the type of its value, or a function that checks the part, or the names of
#: a function's parameters.
PartKind: TypeAlias = type | tuple[type, ...] | Callable[[object], bool] | list[str]


def has_part(owner: object, name: str, kind: PartKind) -> bool:
    """Return True if an object or class of the library has an attribute of this kind."""
    try:
        part = getattr(owner, name)
        if isinstance(kind, list):
            return [*signature(part).parameters] == kind
    except (AttributeError, TypeError, ValueError):  # absent, no function, or without a signature
        return False
    return isinstance(part, kind) if isinstance(kind, type | tuple) else kind(part)
