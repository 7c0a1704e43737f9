"""Holders' names in Redis, which contain the owner, so that owners can use the same name."""


def make_stored_name(holder: str, owner: str) -> str:
    """Return the name in Redis: the owner, a space (no name has one) and the holder. `owner` is the
    name of the token that the holder sent, or "" for a browser."""
    return f"{owner} {holder}" if owner else holder


def split_stored_name(name: str) -> tuple[str, str]:
    """Split a name in Redis. Return the holder and the owner."""
    owner, _, holder = name.rpartition(" ")
    return holder, owner
