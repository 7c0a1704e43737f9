"""What may be a name in the configuration."""

from __future__ import annotations

import re

#: Between a name and what it contains, where one word names both: seat~17.
SEPARATOR = "~"


NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,47}\Z")


def is_plain_name(text: str) -> bool:
    """Whether it may be a name in the configuration."""
    return NAME.match(text) is not None
