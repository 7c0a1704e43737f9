"""What the pages have in common: cells of tables."""

from __future__ import annotations


def cell(text: str) -> str:
    """Text as it may stand in a cell: on one line, without pipes or tags."""
    return text.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")
