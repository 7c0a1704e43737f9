"""Fixtures for tests in a real browser."""

import pytest

from tests.browser.played_page import play
from tests.support.browser import browser, visitor
from tests.support.dashboard import log_in

__all__ = ["browser", "play", "visitor"]


@pytest.fixture
def operator(site, visitor):
    """Return a function that opens the dashboard in a new tab, and logs in by this name."""
    return lambda name="Ada", **options: log_in(site, visitor(**options), name)


@pytest.fixture
def opened(site, visitor):
    """Return a function that logs in in a new tab, and opens a view of the dashboard."""
    return lambda address, **options: site.open(visitor(**options), address)
