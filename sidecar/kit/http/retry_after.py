"""Reads a Retry-After."""

from __future__ import annotations

from datetime import UTC
from email.utils import parsedate_to_datetime


def seconds_in(retry_after: str, now_s: float) -> float:
    """What a Retry-After asks for, which is a number of seconds or a date; 0 when neither."""
    text = retry_after.strip()
    if text.isascii() and text.isdecimal():
        return float(text[:9])
    try:
        date = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return 0.0
    return max(0.0, date.replace(tzinfo=date.tzinfo or UTC).timestamp() - now_s)
