"""Fixtures of visitors with a real browser."""

from tests.support.browser import browser, visitor

__all__ = ["browser", "visitor"]
