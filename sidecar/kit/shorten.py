"""Shortens long values for logs and for pages that are sent each second."""

from typing import Any

#: Strings with more characters are cut.
MAX_CHARACTERS = 500


def shorten_values(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values, with long strings replaced by their beginning."""
    return {name: _shorten(value) for name, value in values.items()}


def _shorten(value: Any) -> Any:
    is_long = isinstance(value, str) and len(value) > MAX_CHARACTERS
    return f"{value[: MAX_CHARACTERS // 5]}… ({len(value):,} characters)" if is_long else value
