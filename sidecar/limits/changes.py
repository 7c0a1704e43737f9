"""Remembers the limits that were set at run time, so that a replica can restore them if Redis loses
them."""

from dataclasses import dataclass, field

#: The digest is the sum of all revisions modulo this (limits/lua/parts/revisions.lua).
_MODULUS = 2**50


@dataclass(frozen=True, slots=True)
class Change:
    """The last change of a key: its new limit, or None if it was reset to the configured one."""

    limit: int | None
    revision: int = 0


_UNCHANGED = Change(None)


@dataclass(slots=True)
class RememberedChanges:
    """The last change of each key that a replica knows."""

    by_key: dict[str, Change] = field(default_factory=dict)
    #: The highest revision.
    latest: int = 0
    #: The revision up to which the changes were read from Redis.
    read_until: int = 0
    digest: int = 0
    #: The number of keys that were not reset.
    value_count: int = 0

    def add(self, key: str, change: Change) -> None:
        """Remember a change, unless a later one of the key is known."""
        old = self.by_key.get(key, _UNCHANGED)
        if change.revision < old.revision:
            return
        self.by_key[key] = change
        self.latest = max(self.latest, change.revision)
        self.digest = (self.digest + change.revision - old.revision) % _MODULUS
        self.value_count += (change.limit is not None) - (old.limit is not None)

    def find_later(self, others: "RememberedChanges") -> dict[str, Change]:
        """Return the changes of which `others` has an earlier one, or none."""
        known = others.by_key
        return {
            key: change
            for key, change in self.by_key.items()
            if change.revision > known.get(key, _UNCHANGED).revision
        }
