"""What tests of a site with nginx do with it; each module has a `site` of its own."""

import pytest

from tests.support.nginx_client import Visitor


@pytest.fixture
def visit(site):
    """A newcomer to one of the servers."""

    def make(server, **headers) -> Visitor:
        return Visitor(site.url, {"Host": server, **headers})

    return make


@pytest.fixture
def relay(site):
    site.relays[0].forget()
    return site.relays[0]
