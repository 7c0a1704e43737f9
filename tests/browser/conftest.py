"""Visitors with a real browser."""

from tests.support.browser import browser, visitor
from tests.support.played_page import told

__all__ = ["browser", "told", "visitor"]
