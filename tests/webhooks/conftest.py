"""Somebody to tell."""

import pytest

from tests.support.receiver import Receiver


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    """Whatever this machine's own way out is."""
    monkeypatch.setenv("NO_PROXY", "*")


@pytest.fixture
async def receiver():
    receiver = await Receiver().start()
    yield receiver
    await receiver.stop()
