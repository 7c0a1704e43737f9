"""Wakes the requests that a replica keeps open for waiting holders (long polls)."""

import asyncio
import contextlib
from collections.abc import Iterator


class Waiters:
    """The open requests for one template's waiting holders. A holder may have several."""

    def __init__(self) -> None:
        #: The events of open requests, by "RESOURCE HOLDER", with the holder's name in Redis.
        self._events: dict[str, list[asyncio.Event]] = {}

    @contextlib.contextmanager
    def listen(self, resource: str, holder: str, event: asyncio.Event) -> Iterator[None]:
        """Set `event` when the holder is called, until the block ends."""
        name = f"{resource} {holder}"
        events = self._events.setdefault(name, [])
        events.append(event)
        try:
            yield
        finally:
            events.remove(event)
            if not events:
                del self._events[name]

    def wake(self, message: str) -> None:
        """Wake the holder that a message on the channel `calls` names. "" wakes all, because a
        message may have been missed."""
        names = [message] if message else list(self._events)
        for event in [event for name in names for event in self._events.get(name, ())]:
            event.set()
