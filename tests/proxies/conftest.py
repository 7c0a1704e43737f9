"""Fixtures for tests of proxies other than nginx. All tests of a proxy share one site."""

import pytest

from tests.proxies.site import CaddySite, HaproxySite
from tests.support.browser import browser, visitor

__all__ = ["browser", "visitor"]


@pytest.fixture(scope="package", params=[CaddySite, HaproxySite], ids=["caddy", "haproxy"])
def site(request):
    # Sessions are long, so that none expires by itself during a later test.
    rooms = {"shop": {"total_active_users": 1, "session_duration": 3600}}
    with request.param(rooms=rooms, replicas=2) as site:
        yield site


@pytest.fixture
def one_free(site):
    """Prepare the room: one slot is free, and nobody waits."""
    set_free(site, 1)


@pytest.fixture
def full(site):
    """Prepare the room: no slot is free, and nobody waits."""

    set_free(site, 0)


def set_free(site, slots: int) -> None:
    site.admin("POST", "/rooms/shop/reset")
    active = site.room()["active"]
    site.admin("PATCH", "/rooms/shop", {"total_active_users": active + slots})
