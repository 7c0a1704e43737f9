"""A blocking client of one Redis server for commands in a terminal, which is quick to import."""

from collections.abc import Callable
from typing import Any

import redis

from sidecar.kit.errors import StoreError

_SCHEMES = ("redis://", "rediss://", "unix://")
_TIMEOUT_S = 1


def ask_server(store: str, question: Callable[[redis.Redis], Any]) -> Any:
    """Call `question` with a client of the server, and return the result. Return None if the URL
    names no single server. Raises StoreError if the server does not answer within a second."""
    if not store.startswith(_SCHEMES):
        return None
    try:
        with redis.Redis.from_url(
            store, socket_connect_timeout=_TIMEOUT_S, socket_timeout=_TIMEOUT_S
        ) as client:
            return question(client)
    except redis.RedisError as error:
        raise StoreError(str(error)) from None
