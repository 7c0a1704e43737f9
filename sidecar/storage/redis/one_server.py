"""One Redis server, for a person who waits at a terminal for what it says."""

from collections.abc import Callable
from typing import Any

import redis

from sidecar.kit.errors import StoreError

_SCHEMES = ("redis://", "rediss://", "unix://")
_TIMEOUT_S = 1


def ask_server(store: str, question: Callable[[redis.Redis], Any]) -> Any:
    """The answer; None where the address names no single server, such as Sentinel's. Raises
    StoreError where there is none within a second."""
    if not store.startswith(_SCHEMES):
        return None
    try:
        with redis.Redis.from_url(
            store, socket_connect_timeout=_TIMEOUT_S, socket_timeout=_TIMEOUT_S
        ) as client:
            return question(client)
    except redis.RedisError as error:
        raise StoreError(str(error)) from None
