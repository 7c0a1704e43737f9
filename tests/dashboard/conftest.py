"""Fixtures of a replica with one room and its dashboard."""

import pytest

from tests.support.replica import Jar


@pytest.fixture
def settings():
    """Return the settings of the room. A test module may override this fixture."""
    return {"total_active_users": 3}


@pytest.fixture
async def site(replica, settings):
    site = await replica(**settings)
    site.ops.session._cookie_jar = Jar()  # It stores no cookies: tests say which are sent.
    return site
