"""What rooms, limits, targets and tokens may be called."""

from __future__ import annotations

import re

#: Between a template's name and a resource's, where one word names both: seat~17.
SEPARATOR = "~"


ROOM_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,47}\Z")


def is_plain_name(text: str) -> bool:
    """Whether a target, a limit or a webhook may be called so."""
    return ROOM_NAME.match(text) is not None
