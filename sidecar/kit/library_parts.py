"""Checks that a library has the undocumented attributes that Waitroom uses."""

from collections.abc import Callable
from inspect import signature
from typing import TypeAlias

#: What an attribute must be: an instance of a type, a value for which a function returns True, or a
#: function with these parameter names.
PartKind: TypeAlias = type | tuple[type, ...] | Callable[[object], bool] | list[str]


def has_part(owner: object, name: str, kind: PartKind) -> bool:
    """Return True if an object or class of the library has this attribute, and it is of `kind`."""
    try:
        part = getattr(owner, name)
        if isinstance(kind, list):
            return [*signature(part).parameters] == kind
    except (AttributeError, TypeError, ValueError):  # absent, no function, or without a signature
        return False
    return isinstance(part, kind) if isinstance(kind, type | tuple) else kind(part)
