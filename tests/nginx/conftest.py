"""Fixtures for tests of a site with nginx. Each test module defines the fixture `site` itself."""

import pytest

from tests.nginx.stub import Stub
from tests.support.nginx_client import Visitor


@pytest.fixture
def visit(site):
    """Return a function that creates a visitor of one of the site's nginx servers."""

    def make(server, **headers) -> Visitor:
        return Visitor(site.url, {"Host": server, **headers})

    return make


@pytest.fixture(scope="module")
def stub():
    """Start a server in place of a replica."""
    with Stub() as stub:
        yield stub


@pytest.fixture
def relay(site):
    """Return the relay in front of the first replica, which has forgotten earlier requests."""
    site.relays[0].forget()
    return site.relays[0]
