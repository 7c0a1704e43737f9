"""Wakes long polls, which are requests that wait for a change of a job or other named object."""

import asyncio
import contextlib
from collections.abc import Iterator


class Waiters:
    """The events that wake waiting requests, by the name of what the requests wait for."""

    def __init__(self) -> None:
        self._events: dict[str, list[asyncio.Event]] = {}

    def __len__(self) -> int:
        """Return the number of names that requests wait for."""
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
        """Wake those who wait for a name. Wake all for "", which means that messages were lost."""
        names = [name] if name else list(self._events)
        for event in [event for each in names for event in self._events.get(each, ())]:
            event.set()
