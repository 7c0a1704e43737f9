"""The names of holders in Redis, which tell the holders of different owners apart."""

#: Separates the token's name from the holder's; neither contains it.
_OWNER_SEPARATOR = " "


def name_in_store(holder: str, owner: str) -> str:
    """Return a holder's name in Redis, which differs for each owner. `owner`: the name of a token,
    or "" for a browser."""
    return f"{owner}{_OWNER_SEPARATOR}{holder}" if owner else holder


def holder_and_owner(name: str) -> tuple[str, str]:
    """Split a name that name_in_store made into the holder and its owner."""
    owner, separator, holder = name.partition(_OWNER_SEPARATOR)
    return (holder, owner) if separator else (name, "")
