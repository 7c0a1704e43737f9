"""Runs the Lua scripts of rooms, leases, limits or jobs in Redis.

The scripts of one folder are a library of Redis Functions, which Redis compiles only once. It is
loaded when a server does not have it: at the first call, after FUNCTION FLUSH, after some
failovers, and on each primary of a cluster. If a server refuses functions (Redis 6.2, an ACL,
FUNCTION renamed), the scripts run by EVALSHA, and functions are tried again after RETRY_S.
"""

import asyncio
import contextlib
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import structlog
from redis.asyncio.cluster import RedisCluster
from redis.commands.core import AsyncScript
from redis.exceptions import OutOfMemoryError, ReadOnlyError, ResponseError

from sidecar.kit.errors import StoreError, StoreUnavailableError
from sidecar.storage.redis.breaker import Breaker
from sidecar.storage.redis.connect import Store
from sidecar.storage.redis.driver_errors import driver_errors
from sidecar.storage.redis.lua_source import library, source

#: Seconds until Redis Functions are tried again on a server that has refused them.
RETRY_S = 60.0

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Observer:
    """Callbacks for metrics. `batch` is called after each batch, `error` after each failed call."""

    batch: Callable[[str, str, int, float], None] = lambda _name, _verb, _size, _seconds: None
    error: Callable[[str, str], None] = lambda _name, _verb: None


@dataclass(slots=True)
class FunctionSupport:
    """What is known about whether the Redis server of one client supports Redis Functions."""

    load_lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    #: The monotonic time until which scripts run by EVALSHA, because functions were refused.
    refused_until_s: float = 0
    is_refusal_logged: bool = False


_support: WeakKeyDictionary[Store, FunctionSupport] = WeakKeyDictionary()


def function_support(redis: Store) -> FunctionSupport:
    """Return the FunctionSupport that all RedisScripts with this client share."""
    is_memory = type(redis).__module__.startswith("fakeredis")
    return _support.setdefault(redis, FunctionSupport(refused_until_s=math.inf if is_memory else 0))


class RedisScripts:
    """Calls the scripts in sidecar/FOLDER/lua. `name` is the name of a room, limit or other object,
    for metrics. Every call raises StoreError if Redis fails or does not answer in time."""

    def __init__(  # noqa: PLR0913
        self,
        redis: Store,
        folder: str,
        name: str = "",
        *,
        timeout_s: float = 1.0,
        probe_timeout_s: float | None = None,
        observer: Observer | None = None,
        now: Callable[[], int] | None = None,
        on_time: Callable[[int], None] | None = None,
    ) -> None:
        """Args:
        probe_timeout_s: The time limit of a probe of an unavailable Redis; by default `timeout_s`.
        now: A function that returns a time, in the scripts' unit, in place of Redis's, for tests.
        on_time: A function that is called with the time of Redis after each `call`.
        """
        self.redis: Any = redis
        self.timeout_s = timeout_s
        self.observer = observer or Observer()
        self.breaker = Breaker(timeout_s if probe_timeout_s is None else probe_timeout_s)
        self._folder = folder
        self._name = name
        self._now = now
        self._on_time = on_time
        self._library = library(folder)
        self._support = function_support(redis)
        self._scripts: dict[str, AsyncScript] = {}

    @property
    def is_away(self) -> bool:
        """Return True if the circuit breaker is open, because Redis has stopped answering. Calls
        then raise StoreUnavailableError at once, except for the breaker's probes."""
        return self.breaker.is_open

    def raise_if_away(self, verb: str) -> None:
        """Raise StoreUnavailableError if the breaker refuses calls."""
        if self.breaker.is_refusing:
            raise StoreUnavailableError(f"{verb}: Redis is unavailable")

    async def call(  # noqa: PLR0913
        self,
        script: str,
        keys: Sequence[str],
        args: Sequence[Any],
        *,
        verb: str = "",
        batch: int = 0,
        is_probe: bool = False,
    ) -> Any:
        """Run a script and return its reply.

        Args:
            args: ARGV[2] and later. ARGV[1] is the time that replaces the time of Redis, or "".
            verb: The name of the call in errors and metrics, by default the script's.
            batch: The number of items in the batch, or 0 if the call is no batch.
            is_probe: Send the call even if the circuit breaker is open.
        """
        argv = ("" if self._now is None else self._now(), *args)
        reply = await self.command(
            verb or script, self.send, script, keys, argv, batch=batch, is_probe=is_probe
        )
        if self._on_time is not None:
            self._on_time(reply[0])
        return reply

    async def command(
        self,
        verb: str,
        command: Callable[..., Awaitable[Any]],
        *args: Any,
        batch: int = 0,
        is_probe: bool = False,
    ) -> Any:
        """Call `command`, a coroutine function, and return the reply. The circuit breaker and the
        time limit apply. For `batch` and `is_probe` see `call`."""
        if not is_probe:
            self.raise_if_away(verb)
        self.breaker.record_attempt()
        began_s = time.perf_counter()
        try:
            async with driver_errors(verb, self.timeout_s):
                reply = await command(*args)
        except StoreError:
            self.observer.error(self._name, verb)
            self.breaker.record_failure()
            raise
        self.breaker.record_success()
        if batch:
            self.observer.batch(self._name, verb, batch, time.perf_counter() - began_s)
        return reply

    async def send(self, script: str, keys: Sequence[str], args: Sequence[Any]) -> Any:
        """Run a script without the breaker and time limit. Raises the driver's exceptions."""
        if time.monotonic() >= self._support.refused_until_s:
            # While Redis refuses writes, for example because it is full, it runs no function that
            # may write. A script that runs by EVALSHA fails only at its first command that needs
            # memory, so scripts that read or free memory still work.
            try:
                return await self._fcall(script, keys, args)
            except _LibraryMissing:
                return await self._load_and_call(script, keys, args)
            except ResponseError as error:
                if _is_fcall_refused(error):
                    self._record_refusal(error)
                elif not _is_write_refused(error):
                    raise
        return await self._eval(script, keys, args)

    async def _fcall(self, script: str, keys: Sequence[str], args: Sequence[Any]) -> Any:
        function = self._library.functions[script]
        try:
            return await self.redis.execute_command("FCALL", function, len(keys), *keys, *args)
        except ResponseError as error:
            if "Function not found" in str(error):
                raise _LibraryMissing from None
            raise

    async def _eval(self, script: str, keys: Sequence[str], args: Sequence[Any]) -> Any:
        script_object = self._scripts.get(script)
        if script_object is None:
            text = source(f"{self._folder}/{script}")
            script_object = self._scripts[script] = self.redis.register_script(text)
        return await script_object(keys=keys, args=args)

    async def _load_and_call(self, script: str, keys: Sequence[str], args: Sequence[Any]) -> Any:
        """Load the library, once for all concurrent calls that need it, and call the script."""
        try:
            async with self._support.load_lock:
                with contextlib.suppress(_LibraryMissing):
                    return await self._fcall(script, keys, args)
                await self._load(keys[0])
            with contextlib.suppress(_LibraryMissing):
                return await self._fcall(script, keys, args)
            # Functions are refused, or a slot is moving to another server of a cluster.
        except ResponseError as error:
            if not _is_write_refused(error):
                raise
        return await self._eval(script, keys, args)

    async def _load(self, key: str) -> None:
        """Load the library into the server that has the key."""
        text, options = self._library.text, self._target_options(key)
        try:
            await self.redis.execute_command("FUNCTION LOAD", "REPLACE", text, **options)
        except ResponseError as error:
            if _is_write_refused(error):
                raise
            self._record_refusal(error)

    async def scan(
        self, key: str, cursor: int, *, match: str, count: int
    ) -> tuple[int, list[bytes]]:
        """Send SCAN to the server that has `key`. Return the next cursor, 0 at the end, and some
        names of keys. Raises the driver's exceptions."""
        if isinstance(self.redis, RedisCluster):
            await self.redis.initialize()
        options = self._target_options(key)
        next_cursor, names = await self.redis.scan(cursor, match, count, **options)
        # A cluster's driver returns the cursors by server.
        return next(iter(next_cursor.values())) if options else next_cursor, names

    def _target_options(self, key: str) -> dict[str, Any]:
        """Return the driver's options that choose the key's server, or {} without a cluster."""
        is_cluster = isinstance(self.redis, RedisCluster)
        return {"target_nodes": self.redis.get_node_from_key(key)} if is_cluster else {}

    def _record_refusal(self, error: ResponseError) -> None:
        self._support.refused_until_s = time.monotonic() + RETRY_S
        if not self._support.is_refusal_logged:
            self._support.is_refusal_logged = True
            hint = "scripts go by EVALSHA, which costs Redis more CPU: docs/operations.md"
            log.warning("functions_refused", error=str(error), hint=hint)


class _LibraryMissing(Exception):  # noqa: N818 - RedisScripts.send handles it
    """The server does not have the library."""


def _is_write_refused(error: ResponseError) -> bool:
    """Return True if Redis did not run the function because it accepts no writes now."""
    is_known = isinstance(error, OutOfMemoryError | ReadOnlyError)
    return is_known or str(error).startswith(("MISCONF", "NOREPLICAS"))


def _is_fcall_refused(error: ResponseError) -> bool:
    """Return True if Redis does not know FCALL or forbids it: no other error names the command."""
    return "fcall" in str(error).lower()
