"""How often one address may: for each alone, and no memory that grows."""

import pytest

from sidecar.kit import addresses
from sidecar.kit.addresses import AddressLimit
from sidecar.rooms.bearer import find_network

PER_S, BURST = 5, 200


@pytest.fixture
def limit():
    return AddressLimit(per_s=PER_S, burst=BURST)


def left(limit, address, now_s, times):
    """How many of so many tries were allowed."""
    return sum(limit.wait_s(address, now_s) == 0 for _ in range(times))


def test_a_burst_and_then_so_many_a_second(limit):
    """Who was quiet for long enough has the whole burst again."""
    assert left(limit, "192.0.2.1", 100, BURST + 9) == BURST
    assert limit.wait_s("192.0.2.1", 100) == pytest.approx(1 / PER_S)
    assert left(limit, "192.0.2.1", 110, 999) == 10 * PER_S
    assert left(limit, "192.0.2.1", 110 + BURST / PER_S, 999) == BURST


def test_so_many_addresses_are_remembered(limit, monkeypatch):
    """The one that was quiet for longest is forgotten."""
    monkeypatch.setattr(addresses, "MAX_ADDRESSES", 3)
    for number in range(9):
        left(limit, f"192.0.2.{number}", number, BURST)
    assert left(limit, "192.0.2.8", 9, 99) == PER_S
    assert len(limit._full_at_s) == 3


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("192.0.2.1", "192.0.2.1"), ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3::4", "2001:db8:1:2::/64"), ("fe80::1%eth0", "fe80::/64"),
        ("unix:", "unix:"), ("", ""),
    ],
)  # fmt: skip
def test_networks(address, network):
    assert find_network(address) == network
