"""Tells public IP addresses from others, and limits requests by IP address."""

from collections import OrderedDict
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network

#: Networks that are not public. Python's own list, is_global, differs between releases of Python.
#: In IPv6: Teredo (2001::), documentation, and 6to4 (2002::), which embeds an IPv4 address.
_NON_PUBLIC_NETWORKS = [
    ip_network(text)
    for text in (
        *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16"),
        *("172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16"),
        *("198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4"),
        *("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20"),
    )
]
#: Public IPv6 addresses. All others are local, multicast, for tests, or embed an IPv4 address.
_GLOBAL_UNICAST = ip_network("2000::/3")
#: IPv6 addresses that embed an IPv4 address (NAT64). They are public if that address is.
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
    if isinstance(ip, IPv6Address) and (ip.scope_id is not None or ip not in _GLOBAL_UNICAST):
        return False
    return ip.is_global and not any(ip in network for network in _NON_PUBLIC_NETWORKS)


def parse_ip(text: str) -> IPv4Address | IPv6Address | None:
    """Parse an IP address, without an IPv6 zone. Return None if the text is not an address. An
    IPv4 address that is written as IPv6 (::ffff:192.0.2.1) is returned as IPv4."""
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return (isinstance(address, IPv6Address) and address.ipv4_mapped) or address


def find_network(text: str) -> str:
    """Return the /64 network of an IPv6 address, because one household has a whole /64. Return an
    IPv4 address, or text that is no address, as it is."""
    address = parse_ip(text)
    if isinstance(address, IPv6Address):
        return str(ip_network((address, 64), strict=False))
    return text if address is None else str(address)


#: The maximum number of addresses in an AddressLimit. The one idle longest is dropped first.
MAX_ADDRESSES = 10_000


class AddressLimit:
    """A rate limit with a token bucket for each IP address (for IPv6, each /64 network). A bucket
    gets `per_s` tokens a second and holds `burst`. Only the time when it will be full is stored."""

    def __init__(self, *, per_s: float, burst: int) -> None:
        self._per_s, self._burst = per_s, burst
        self._full_at_s: OrderedDict[str, float] = OrderedDict()

    def wait_s(self, address: str, now_s: float) -> float:
        """Take a token from the address's bucket and return 0. If the bucket is empty, return the
        seconds until there is a token. `now_s` is the time of a monotonic clock."""
        key = find_network(address)
        full_at_s = max(self._full_at_s.get(key, now_s), now_s)
        wait_s = full_at_s - now_s - (self._burst - 1) / self._per_s
        if wait_s > 0:
            return wait_s
        self._full_at_s[key] = full_at_s + 1 / self._per_s
        self._full_at_s.move_to_end(key)
        if len(self._full_at_s) > MAX_ADDRESSES:
            self._full_at_s.popitem(last=False)
        return 0.0
