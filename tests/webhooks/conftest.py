"""Fixtures for tests of webhooks: a receiver of deliveries, and a room with replicas (world.py)."""

import pytest

from tests.support.receiver import Receiver
from tests.webhooks.world import make_world


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    """Let requests to receivers bypass any HTTP proxy of this machine."""
    monkeypatch.setenv("NO_PROXY", "*")


@pytest.fixture
async def receiver():
    receiver = await Receiver().start()
    yield receiver
    await receiver.stop()


@pytest.fixture
async def world(redis_socket, turn):
    async for world in make_world(f"unix://{redis_socket}", turn):
        yield world
