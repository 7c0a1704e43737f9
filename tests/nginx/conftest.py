"""Fixtures for tests of a site with nginx.

A test module describes its site in SITE, or defines the fixture `site` itself.
"""

import pytest

from tests.nginx.stub import Stub
from tests.support.nginx_client import Visitor
from tests.support.site import Site


@pytest.fixture(scope="module")
def site(request):
    """Start the site that the test module describes in SITE, with the arguments of Site."""
    with Site(**request.module.SITE) as site:
        yield site


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


@pytest.fixture(scope="module")
def odd(stub, request):
    """Start nginx before the stub, with the test module's ODD_LOCATIONS."""
    locations = request.module.ODD_LOCATIONS
    with Site(replicas=0, edges=(stub.address,), locations=locations) as site:
        yield site


@pytest.fixture
def relay(site):
    """Return the relay in front of the first replica, which has forgotten earlier requests."""
    site.relays[0].forget()
    return site.relays[0]
