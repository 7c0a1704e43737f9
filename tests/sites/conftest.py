"""Visitors with a real browser."""

from __future__ import annotations

from tests.support.browser import browser, visitor

__all__ = ["browser", "visitor"]
