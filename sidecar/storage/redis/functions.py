"""Runs a product's scripts: as Redis Functions, which are loaded once and make their closures
once, or by EVALSHA of the same source where there are none.

A server that does not know the library is given it: at the first call, after FUNCTION FLUSH, after
a failover to one that had not copied it, each primary of a cluster. Where it takes none (Redis 6.2,
an ACL, FUNCTION renamed), scripts go by EVALSHA, and it is asked again after RETRY_S.
"""

import asyncio
import contextlib
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import structlog
from redis.commands.core import AsyncScript
from redis.exceptions import OutOfMemoryError, ReadOnlyError, ResponseError

from sidecar.storage.redis.connect import Store
from sidecar.storage.redis.scripts import library, source
from sidecar.storage.redis.topology import Cluster

#: How often a store that refused functions is asked again.
RETRY_S = 60.0

log = structlog.get_logger()


@dataclass(slots=True)
class Known:
    """Of one client's store."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    refused_until: float = 0
    is_logged: bool = False


_known: WeakKeyDictionary[Store, Known] = WeakKeyDictionary()


def known_of(redis: Store) -> Known:
    """The same for all who ask by that client."""
    is_memory = type(redis).__module__.startswith("fakeredis")
    return _known.setdefault(redis, Known(refused_until=math.inf if is_memory else 0))


class Scripts:
    """The scripts of sidecar/PRODUCT/lua, by name: one library."""

    def __init__(self, redis: Store, product: str) -> None:
        self._redis: Any = redis
        self._product = product
        self._library = library(product)
        self._known = known_of(redis)
        self._scripts: dict[str, AsyncScript] = {}

    async def run(self, name: str, keys: Sequence[str], args: Sequence[Any]) -> Any:
        """The script's reply. Raises what the driver raises."""
        if time.monotonic() >= self._known.refused_until:
            # A store that takes no writes, being full, say, runs no function that may write,
            # whatever it would do; by EVALSHA it refuses the first command that writes, or takes
            # room, and lets through what reads, or gives some back.
            try:
                return await self._by_function(name, keys, args)
            except ResponseError as error:
                if not _is_of_writes(error):
                    raise
        return await self._eval(name, keys, args)

    async def _by_function(self, name: str, keys: Sequence[str], args: Sequence[Any]) -> Any:
        try:
            return await self._call(name, keys, args)
        except ResponseError as error:
            if _is_missing(error):
                return await self._load_and_call(name, keys, args)
            if not _is_refusal(error):
                raise
            self._refused(error)
        return await self._eval(name, keys, args)

    async def _call(self, name: str, keys: Sequence[str], args: Sequence[Any]) -> Any:
        function = self._library.functions[name]
        return await self._redis.execute_command("FCALL", function, len(keys), *keys, *args)

    async def _eval(self, name: str, keys: Sequence[str], args: Sequence[Any]) -> Any:
        script = self._scripts.get(name)
        if script is None:
            text = source(f"{self._product}/{name}")
            script = self._scripts[name] = self._redis.register_script(text)
        return await script(keys=keys, args=args)

    async def _load_and_call(self, name: str, keys: Sequence[str], args: Sequence[Any]) -> Any:
        """Of many calls that find the library missing at a time one loads it."""
        async with self._known.lock:
            with contextlib.suppress(_Missing):
                return await self._call_if_there(name, keys, args)
            try:
                await self._load(keys[0])
            except ResponseError as error:
                if _is_of_writes(error):
                    raise  # which says nothing of functions
                self._refused(error)
        with contextlib.suppress(_Missing):
            return await self._call_if_there(name, keys, args)
        # Refused; or the keys are on their way to another server of a cluster, which answered.
        return await self._eval(name, keys, args)

    async def _call_if_there(self, name: str, keys: Sequence[str], args: Sequence[Any]) -> Any:
        try:
            return await self._call(name, keys, args)
        except ResponseError as error:
            if _is_missing(error):
                raise _Missing from None
            raise

    async def _load(self, key: str) -> None:
        """Gives the library to the server that has the key."""
        where = self._server_of(key)
        await self._redis.execute_command("FUNCTION LOAD", "REPLACE", self._library.text, **where)

    async def scan(
        self, key: str, cursor: int, *, match: str, count: int
    ) -> tuple[int, list[bytes]]:
        """Where to go on (0: that is all), and a part of the names on the server that has the
        key. Raises what the driver raises."""
        if isinstance(self._redis, Cluster):
            await self._redis.initialize()
        where = self._server_of(key)
        found, names = await self._redis.scan(cursor, match, count, **where)
        # A cluster's driver names the servers that it asked.
        return next(iter(found.values())) if where else found, names

    def _server_of(self, key: str) -> dict[str, Any]:
        """Which server the driver of a cluster is to ask."""
        is_cluster = isinstance(self._redis, Cluster)
        return {"target_nodes": self._redis.get_node_from_key(key)} if is_cluster else {}

    def _refused(self, error: ResponseError) -> None:
        self._known.refused_until = time.monotonic() + RETRY_S
        if not self._known.is_logged:
            self._known.is_logged = True
            log.warning(
                "functions_refused",
                error=str(error),
                hint="scripts go by EVALSHA, which costs Redis more CPU: docs/operations.md",
            )


class _Missing(Exception):  # noqa: N818 - no error of anybody's
    """The server does not have the library."""


def _is_of_writes(error: ResponseError) -> bool:
    """The store takes no writes now; nothing was run."""
    is_known = isinstance(error, OutOfMemoryError | ReadOnlyError)
    return is_known or str(error).startswith(("MISCONF", "NOREPLICAS"))


def _is_missing(error: ResponseError) -> bool:
    return "Function not found" in str(error)


def _is_refusal(error: ResponseError) -> bool:
    """An unknown command, or one that this user may not run, is named by the error; a function
    that failed is not."""
    return "fcall" in str(error).lower()
