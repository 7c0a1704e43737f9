"""A room's figures in words, as a list and a live view show them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from waitroom import Room


@dataclass(frozen=True)
class Failure:
    """A look at which no replica answered as it should."""

    text: str
    since: datetime


def rows_of(room: Room) -> Iterator[tuple[object, ...]]:
    """The room and then its sub-queues: name, mode, waiting, inside, cap, wait."""
    phase = phase_of(room)
    wait = wait_of(room["wait_seconds"]) + (f"  {phase}" if phase else "")
    cap = room["settings"]["total_active_users"]
    yield room["room"], room["mode"], room["waiting"], room["active"], cap, wait
    for line in room["lines"]:
        yield f"  {line['line']}", "", line["waiting"], "", "", wait_of(line["wait_seconds"])


def phase_of(room: Room) -> str:
    """Nothing where the room is open, by its events or without any."""
    if room["phase"] == "open":
        return ""
    about = room["event"] or (room["coming"] and f"next: {room['coming']}")
    return room["phase"] + (f" ({about})" if about else "")


def wait_of(seconds: int | None) -> str:
    if seconds is None:
        return "unknown"
    return f"{seconds} s" if seconds < 120 else f"{seconds // 60} min"
