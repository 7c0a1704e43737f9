"""The exceptions of the sidecar. All of them are SidecarErrors."""

from collections.abc import Iterable


class SidecarError(Exception):
    """The base of all exceptions of the sidecar."""


class InputError(SidecarError):
    """Invalid settings or input. Each of `problems` names a setting and what is allowed."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class UnknownNameError(SidecarError):
    """A name that is not configured. `known` has the configured names of the same `kind`."""

    def __init__(self, kind: str, name: str, known: Iterable[str] = ()) -> None:
        super().__init__(f"no {kind} is named {name[:64]!r}")
        self.kind, self.name, self.known = kind, name, known


class StoreError(SidecarError):
    """Redis is unavailable, too slow, or refused a command. The message says which."""


class DatabaseError(SidecarError):
    """The SQL database is unavailable, refused a statement, or has tables of another version. The
    message says which."""


class DatabaseUnavailableError(DatabaseError):
    """The SQL database did not answer in time."""


class StoreUnavailableError(StoreError):
    """Redis stopped answering earlier, so nothing was sent."""
