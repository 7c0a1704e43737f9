"""Fixtures for tests of the package `waitroom`: a replica on a redis-server, and its clients."""

import itertools
import sys

import pytest

from tests.support.service import TOKEN, Service
from tests.support.site import call
from waitroom import AsyncClient, Client
from waitroom.httpx_transport import AsyncHttpxTransport

RULES = """
[limits]
few = {algorithm = "token_bucket", limit = 2, window = "1h", key = "{n}"}
many = {algorithm = "sliding_window", limit = 300, window = "1h", key = "{n}"}
none = {algorithm = "fixed_window", limit = 0, window = "1h"}
export = {algorithm = "concurrency", limit = 1, lease = "2s", key = "{n}"}
brisk = {algorithm = "leaky_bucket", limit = 1, window = "1s", on_exceed = "pace", key = "{n}"}

[limits.slow]
algorithm = "leaky_bucket"
limit = 1
window = "1h"
on_exceed = "pace"
max_wait = "5h"
key = "{n}"

[leases]
title = {term = "60s"}
desk = {term = "60s", renewable = true}
full = {term = "60s", max_waiting = 0}
# No heartbeat is due while a test runs, so only the release can wake a holder.
rare = {term = "1h", heartbeat_interval = "1h", heartbeat_timeout = "1h"}
brief = {term = "4s", renewable = true}
last = {term = "4s", renewable = true, max_term = "5s"}
"""

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def service():
    with Service(RULES, replicas=1) as service:
        yield service


@pytest.fixture(scope="module")
def url(service):
    return service.urls[0]


@pytest.fixture
def room(url):
    with Client(url, token=TOKEN) as room:
        yield room


@pytest.fixture(params=["aiohttp", "httpx2"])
def new_aclient(request, monkeypatch):
    """AsyncClient, with aiohttp and as if it were not installed."""
    is_httpx = request.param == "httpx2"
    if is_httpx:
        monkeypatch.setitem(sys.modules, "waitroom.aiohttp_transport", None)

    def make(*arguments, **more):
        client = AsyncClient(*arguments, **more)
        assert isinstance(client._core._transport, AsyncHttpxTransport) is is_httpx
        return client

    return make


@pytest.fixture
async def aroom(new_aclient, url):
    async with new_aclient(url, token=TOKEN) as room:
        yield room


@pytest.fixture
def n():
    """Return a number that no other test uses, as a rate-limited key or a resource."""
    return next(_numbers)


@pytest.fixture
def in_use(url):
    """Return a function that returns the holders of a resource, and the number of its waiters."""

    def look(template, resource):
        for found in call("GET", f"{url}/v1/leases/{template}?limit=1000", TOKEN)["resources"]:
            if found["name"] == str(resource):
                return [held["holder"] for held in found["holders"]], found["waiting"]
        return [], 0

    return look
