"""The exceptions of the sidecar.

SidecarError
├── InputError        settings or input are wrong; has every problem
├── UnknownNameError   a name is not configured
├── StoreError         Redis did not answer, or refused
└── DatabaseError      SQL did not answer, or its tables are of another version
"""

from collections.abc import Iterable


class SidecarError(Exception):
    """The base of all exceptions of the sidecar."""


class InputError(SidecarError):
    """Invalid configuration or input. Each of `problems` names a setting and what is allowed."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class UnknownNameError(SidecarError):
    """A name that is not in the configuration. `known`: the names of this `kind` that are."""

    def __init__(self, kind: str, name: str, known: Iterable[str] = ()) -> None:
        super().__init__(f"no {kind} is named {name[:64]!r}")
        self.kind = kind
        self.name = name
        self.known = known


class StoreError(SidecarError):
    """Redis is unavailable, too slow, or refused; the text says which."""


class DatabaseError(SidecarError):
    """SQL is unavailable or refused, or its tables are of another version; the text says which."""


class DatabaseUnavailableError(DatabaseError):
    """No connection to SQL, or no answer in time."""


class StoreUnavailableError(StoreError):
    """Redis stopped answering, so nothing was sent."""
