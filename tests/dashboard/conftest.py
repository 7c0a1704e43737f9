"""A room with its dashboard."""

import pytest

from tests.support.replica import Jar


@pytest.fixture
def settings():
    """The settings of the room; a file may have a fixture of its own for them."""
    return {"total_active_users": 3}


@pytest.fixture
async def site(replica, settings):
    site = await replica(**settings)
    site.ops.session._cookie_jar = Jar()  # tests say which cookie is sent
    return site
