"""Converts the errors of redis-py to StoreError."""

import asyncio
from types import TracebackType

from redis.exceptions import RedisClusterException, RedisError

from sidecar.kit.errors import StoreError


class driver_errors:  # noqa: N801 - reads as a statement
    """A block that raises StoreError for an error of redis-py, or if it takes too long."""

    def __init__(self, what: str, timeout_s: float) -> None:
        self._what = what
        self._timeout = asyncio.timeout(timeout_s)

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            await self._timeout.__aexit__(kind, error, trace)
        except TimeoutError:
            raise StoreError(f"{self._what}: the store did not answer in time") from None
        if isinstance(error, (RedisError, RedisClusterException, OSError)):
            raise StoreError(f"{self._what}: {error or type(error).__name__}") from error


def text(value: bytes | str) -> str:
    """Decode a value that Redis has returned."""
    return value.decode() if isinstance(value, bytes) else value
