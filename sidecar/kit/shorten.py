"""Shortens long strings for logs, and for the dashboard, which gets all values each second."""

from typing import Any

#: Strings with more characters are cut to a fifth of this number.
MAX_CHARACTERS = 500


def shorten_values(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values, with long strings replaced by their beginning."""
    return {
        name: f"{value[: MAX_CHARACTERS // 5]}… ({len(value):,} characters)"
        if isinstance(value, str) and len(value) > MAX_CHARACTERS
        else value
        for name, value in values.items()
    }
