"""The exceptions that several parts of the sidecar raise. All of them derive from SidecarError."""

import errno
from collections.abc import Iterable


class SidecarError(Exception):
    """The base class of all exceptions of the sidecar."""


class InputError(SidecarError):
    """Settings or a request are invalid. Each line of `problems` names a setting or field, and says
    what is allowed."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class ListenError(InputError):
    """A setting or option names an address that this process cannot listen on."""

    def __init__(self, setting: str, address: str, error: OSError) -> None:
        reason = error.strerror or str(error)
        if error.errno == errno.EADDRINUSE:
            reason = "another program has taken it. Stop that program, or set another port"
        super().__init__([f"{setting}: cannot listen on {address}: {reason}"])


class UnknownNameError(SidecarError):
    """A room, limit or other object is not configured. `kind` is the kind of object, such as
    "room", and `known` has the configured names of this kind."""

    def __init__(self, kind: str, name: str, known: Iterable[str] = ()) -> None:
        super().__init__(f"no {kind} is named {name[:64]!r}")
        self.kind, self.name, self.known = kind, name, known


class StoreError(SidecarError):
    """Redis is unavailable or too slow, or has refused a command. The message says which."""


class DatabaseError(SidecarError):
    """The database is unavailable, refused a statement, or has tables of another version."""


class DatabaseUnavailableError(DatabaseError):
    """The SQL database did not answer in time."""


class DatabaseLockedError(DatabaseError):
    """Another transaction has kept a row of the SQL database locked for too long."""


class StoreUnavailableError(StoreError):
    """Redis did not answer several earlier calls, so this call was not sent."""
