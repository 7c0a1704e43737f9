"""Asks one Redis server for a command in a terminal. Not async, and quick to import."""

from collections.abc import Callable
from typing import Any

import redis

from sidecar.kit.errors import StoreError

_SCHEMES = ("redis://", "rediss://", "unix://")
_TIMEOUT_S = 1


def ask_server(store: str, question: Callable[[redis.Redis], Any]) -> Any:
    """Return what the question finds out; None if the address names no single server, such as
    Sentinel's. Raises StoreError if the server does not answer within a second."""
    if not store.startswith(_SCHEMES):
        return None
    try:
        with redis.Redis.from_url(
            store, socket_connect_timeout=_TIMEOUT_S, socket_timeout=_TIMEOUT_S
        ) as client:
            return question(client)
    except redis.RedisError as error:
        raise StoreError(str(error)) from None
