"""Remembers limits set at run time, so that a replica can restore them if Redis loses them."""

from dataclasses import dataclass, field

#: The digest is the sum of all revisions modulo this (limits/lua/parts/revisions.lua).
_MODULUS = 2**50


@dataclass(frozen=True, slots=True)
class Change:
    """The last change of a key: its new limit, or None if it was reset to the configured one."""

    limit: int | None
    revision: int = 0


_NO_CHANGE = Change(None)


@dataclass(slots=True)
class RememberedChanges:
    """The last change of each key that a replica knows."""

    by_key: dict[str, Change] = field(default_factory=dict)
    latest_revision: int = 0
    #: The revision up to which the changes were read from Redis.
    read_revision: int = 0
    digest: int = 0
    #: The number of keys whose last change set a limit, rather than resetting it.
    value_count: int = 0

    def add(self, key: str, change: Change) -> None:
        """Remember a change, unless a later change of the same key is known."""
        old = self.by_key.get(key, _NO_CHANGE)
        if change.revision < old.revision:
            return
        self.by_key[key] = change
        self.latest_revision = max(self.latest_revision, change.revision)
        self.digest = (self.digest + change.revision - old.revision) % _MODULUS
        self.value_count += (change.limit is not None) - (old.limit is not None)

    def find_newer_changes(self, other: "RememberedChanges") -> dict[str, Change]:
        """Return, by key, the changes that `other` lacks or has only in an earlier revision."""
        known = other.by_key
        return {
            key: change
            for key, change in self.by_key.items()
            if change.revision > known.get(key, _NO_CHANGE).revision
        }
