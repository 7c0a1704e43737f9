"""Converts the errors of redis-py to StoreError."""

import asyncio
from types import TracebackType

from redis.exceptions import RedisClusterException, RedisError

from sidecar.kit.errors import StoreError


class driver_errors:  # noqa: N801 - reads as a statement
    """A context manager that raises StoreError if its block raises an error of redis-py or takes
    longer than `timeout_s`. The message begins with `operation`."""

    def __init__(self, operation: str, timeout_s: float) -> None:
        self._operation = operation
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
            raise StoreError(f"{self._operation}: the store did not answer in time") from None
        if isinstance(error, (RedisError, RedisClusterException, OSError)):
            raise StoreError(f"{self._operation}: {error or type(error).__name__}") from error


def text(value: bytes | str) -> str:
    """Convert a value from a reply of Redis to a string."""
    return value.decode() if isinstance(value, bytes) else value
