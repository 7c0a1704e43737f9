"""What hears of every batch of a script store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class Observer:
    """Called for every batch and error; by default nothing happens."""

    batch: Callable[[str, str, int, float], None] = lambda _name, _verb, _size, _seconds: None
    error: Callable[[str, str], None] = lambda _name, _verb: None
