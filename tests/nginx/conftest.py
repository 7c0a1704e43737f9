"""What tests of a site with nginx do with it; each module has a `site` of its own."""

import pytest

from tests.support.nginx_client import Visitor
from tests.support.stub import Stub


@pytest.fixture
def visit(site):
    """Make a newcomer to one of the servers."""

    def make(server, **headers) -> Visitor:
        return Visitor(site.url, {"Host": server, **headers})

    return make


@pytest.fixture(scope="module")
def stub():
    """A stand-in for a replica."""
    with Stub() as stub:
        yield stub


@pytest.fixture
def relay(site):
    """The relay before the first replica, without earlier requests."""
    site.relays[0].forget()
    return site.relays[0]
