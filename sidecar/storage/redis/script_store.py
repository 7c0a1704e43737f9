"""What all script stores share: a breaker, a bound on the time, an
observer, and the scripts of their product."""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from sidecar.kit.errors import StoreError, StoreUnavailableError
from sidecar.storage.redis.breaker import Breaker
from sidecar.storage.redis.connect import Store
from sidecar.storage.redis.driver_errors import driver_errors
from sidecar.storage.redis.functions import Scripts


@dataclass(frozen=True, slots=True)
class Observer:
    """Called for every batch and error; by default nothing happens."""

    batch: Callable[[str, str, int, float], None] = lambda _name, _verb, _size, _seconds: None
    error: Callable[[str, str], None] = lambda _name, _verb: None


class ScriptStore:
    """The state of one name, by the scripts of sidecar/PRODUCT/lua.

    Every method raises StoreError when Redis does not answer.
    """

    def __init__(  # noqa: PLR0913
        self,
        redis: Store,
        product: str,
        name: str,
        *,
        observer: Observer | None,
        timeout_s: float,
        probe_timeout_s: float | None = None,
    ) -> None:
        """`probe_timeout_s`: how long a try of an unavailable Redis may take, if longer."""
        self._redis: Any = redis
        self._name = name
        self._observer = observer or Observer()
        self._timeout_s = timeout_s
        self._breaker = Breaker(timeout_s if probe_timeout_s is None else probe_timeout_s)
        self._scripts = Scripts(redis, product)

    @property
    def is_away(self) -> bool:
        """Whether Redis stopped answering: calls raise StoreUnavailableError at once, except for
        the breaker's probes."""
        return self._breaker.is_open

    def _stop_if_away(self, verb: str) -> None:
        """Before waiting behind a probe that may take long."""
        if self._breaker.refuses:
            raise StoreUnavailableError(f"{verb}: Redis is unavailable")

    async def _call(
        self,
        verb: str,
        command: Callable[..., Awaitable[Any]],
        *args: Any,
        batch: int = 0,
        is_probe: bool = False,
    ) -> Any:
        """The reply of a script or command. `batch`: its size, where it is to be observed."""
        if not is_probe:
            self._stop_if_away(verb)
        self._breaker.tries()
        began = time.perf_counter()
        try:
            async with driver_errors(verb, self._timeout_s):
                reply = await command(*args)
        except StoreError:
            self._observer.error(self._name, verb)
            self._breaker.failed()
            raise
        self._breaker.succeeded()
        if batch:
            self._observer.batch(self._name, verb, batch, time.perf_counter() - began)
        return reply
