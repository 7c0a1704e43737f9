"""What a room does at the moment, in a word; and the operator's words for changing it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sidecar.rooms.settings import RoomSettings

#: The settings that each word stands for; None is the file's value.
ACTS: dict[str, dict[str, Any]] = {
    "pause": {"queue_all": True},
    "drain": {"max_waiting": 0, "queue_all": False},
    "resume": {"max_waiting": None, "queue_all": False},
}


def mode(settings: RoomSettings) -> str:
    """open: everybody passes; paused: nobody is called; draining: nobody new may wait, and those in
    line are called; running otherwise."""
    if settings.suspended or settings.queueing_method == "passthrough":
        return "open"
    if settings.queue_all:
        return "paused"
    return "draining" if settings.max_waiting == 0 else "running"


def changes(act: str, file: RoomSettings) -> dict[str, Any]:
    """What the word changes; a value that the file has is taken back rather than repeated."""
    return {
        name: None if value == getattr(file, name) else value for name, value in ACTS[act].items()
    }
