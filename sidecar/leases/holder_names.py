"""The names of holders in Redis, which tell the holders of different owners apart."""


def make_stored_name(holder: str, owner: str) -> str:
    """Return a holder's name in Redis, which differs for each owner. `owner` is the name of a
    token, or "" for a browser. A space, which no name contains, separates the two."""
    return f"{owner} {holder}" if owner else holder


def split_stored_name(name: str) -> tuple[str, str]:
    """Split a holder's name in Redis into the holder and its owner."""
    owner, _, holder = name.rpartition(" ")
    return holder, owner
