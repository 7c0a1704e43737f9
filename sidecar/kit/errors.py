"""One tree of errors.

WaitroomError
├── ConfigError        a setting is wrong; carries every problem found
├── UnknownNameError   nothing of that kind and name is configured
├── StoreError         the store did not answer, or refused
└── DatabaseError      the SQL database did not, or its tables are of another version
"""

from collections.abc import Iterable


class WaitroomError(Exception):
    """Anything that goes wrong here and has a name."""


class ConfigError(WaitroomError):
    """A configuration that cannot be used.

    `problems` holds one line for each, naming the setting and what is allowed.
    """

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class UnknownNameError(WaitroomError):
    """A name that is not in the configuration; `kind`: of what, `known`: those that are."""

    def __init__(self, kind: str, name: str, known: Iterable[str] = ()) -> None:
        super().__init__(f"no {kind} is named {name[:64]!r}")
        self.kind = kind
        self.name = name
        self.known = known


class StoreError(WaitroomError):
    """Redis is unavailable, too slow, or refused; the text says which."""


class DatabaseError(WaitroomError):
    """SQL is unavailable or refused, or its tables are of another version; the text says which."""


class DatabaseUnavailableError(DatabaseError):
    """No connection to SQL, or no answer in time."""


class StoreUnavailableError(StoreError):
    """Redis stopped answering, so nothing was sent."""
