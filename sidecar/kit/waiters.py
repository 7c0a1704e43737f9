"""Wakes requests that wait for something with a name (long polls)."""

import asyncio
import contextlib
from collections.abc import Iterator


class Waiters:
    """The events of those who wait, by the name of what they wait for."""

    def __init__(self) -> None:
        self._events: dict[str, list[asyncio.Event]] = {}

    def __len__(self) -> int:
        """Return the number of names that somebody waits for."""
        return len(self._events)

    @contextlib.contextmanager
    def listen(self, name: str, event: asyncio.Event) -> Iterator[None]:
        """Set `event` at each call of wake() with this name, until the block ends."""
        events = self._events.setdefault(name, [])
        events.append(event)
        try:
            yield
        finally:
            events.remove(event)
            if not events:
                del self._events[name]

    def wake(self, name: str) -> None:
        """Wake those who wait for a name. "" wakes all, because a message may have been missed."""
        names = [name] if name else list(self._events)
        for event in [event for each in names for event in self._events.get(each, ())]:
            event.set()
