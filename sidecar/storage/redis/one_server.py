"""Sends a command to one Redis server. Unlike connect.py, this module is quick to import."""

from collections.abc import Callable
from typing import Any

import redis

from sidecar.kit.errors import StoreError

_SCHEMES = ("redis://", "rediss://", "unix://")
_TIMEOUT_S = 1


def ask_server(url: str, send: Callable[[redis.Redis], Any]) -> Any:
    """Call `send` with a blocking client of the server, and return the result. Return None for a
    URL of Sentinel or Cluster. Raises StoreError if the server does not answer within a second."""
    if not url.startswith(_SCHEMES):
        return None
    try:
        with redis.Redis.from_url(
            url, socket_connect_timeout=_TIMEOUT_S, socket_timeout=_TIMEOUT_S
        ) as client:
            return send(client)
    except redis.RedisError as error:
        raise StoreError(str(error)) from None
