"""Public and non-public network addresses."""

from collections import OrderedDict
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network

#: Not public in any Python version: the list behind is_global has changed between releases.
_NOT_PUBLIC_V4 = [
    ip_network(text)
    for text in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
    )
]
#: All other IPv6 addresses are local, multicast, for tests, or wrap another address.
_GLOBAL_UNICAST = ip_network("2000::/3")
#: Special addresses within it: Teredo (2001::), documentation, and 6to4, which wraps any address.
_NOT_PUBLIC_V6 = [
    ip_network(text) for text in ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")
]
#: Wraps an IPv4 address in a network without IPv4; the wrapped address decides.
_NAT64 = IPv6Network("64:ff9b::/96")


def is_public(address: str) -> bool:
    """Return True for a public IP address, False for private, reserved and non-canonical ones."""
    try:
        ip = ip_address(address)
    except ValueError:
        return False
    if isinstance(ip, IPv6Address):
        ip = ip.ipv4_mapped or ip
    if isinstance(ip, IPv6Address) and ip in _NAT64:
        ip = IPv4Address(int(ip) & 0xFFFFFFFF)
    if isinstance(ip, IPv4Address):
        return ip.is_global and not any(ip in network for network in _NOT_PUBLIC_V4)
    if ip.scope_id is not None or ip not in _GLOBAL_UNICAST:
        return False
    return ip.is_global and not any(ip in network for network in _NOT_PUBLIC_V6)


def ip_of(text: str) -> IPv4Address | IPv6Address | None:
    """Read an IP address; None if the text is none. An IPv4 address that is written as IPv6 is read
    as IPv4, and a zone is left out."""
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def network_of(text: str) -> str:
    """Return the /64 network of an IPv6 address, which one household has; other text unchanged."""
    address = ip_of(text)
    if isinstance(address, IPv6Address):
        return str(ip_network((address, 64), strict=False))
    return text if address is None else str(address)


#: Addresses that an AddressLimit remembers. Those that were quiet for longest are forgotten first.
MOST_ADDRESSES = 10_000


class AddressLimit:
    """A token bucket for each address (of IPv6 the network of 64 bits), kept as the time at which
    the bucket will be full again. It fills with `per_s` tokens a second, and holds `burst`."""

    def __init__(self, *, per_s: float, burst: int) -> None:
        self._per_s, self._burst = per_s, burst
        self._full_at_s: OrderedDict[str, float] = OrderedDict()

    def wait_s(self, address: str, now_s: float) -> float:
        """Take a token and return 0, or return how long there will be none. `now_s` is of any clock
        that only goes forward."""
        key = network_of(address)
        full_at_s = max(self._full_at_s.get(key, now_s), now_s)
        wait_s = full_at_s - now_s - (self._burst - 1) / self._per_s
        if wait_s > 0:
            return wait_s
        self._full_at_s[key] = full_at_s + 1 / self._per_s
        self._full_at_s.move_to_end(key)
        if len(self._full_at_s) > MOST_ADDRESSES:
            self._full_at_s.popitem(last=False)
        return 0.0
