"""Stops asking a store that does not answer."""

from __future__ import annotations

#: Failures in a row after which the store counts as away.
TRIES = 3


class Breaker:
    """Closed while the store answers. Open after TRIES failures in a row: nobody then waits
    for what will not come. One caller a second, the refresher, tries all the same, and the
    first success closes it.
    """

    __slots__ = ("_failures",)

    def __init__(self) -> None:
        self._failures = 0

    @property
    def is_open(self) -> bool:
        return self._failures >= TRIES

    def failed(self) -> None:
        self._failures += 1

    def succeeded(self) -> None:
        self._failures = 0
