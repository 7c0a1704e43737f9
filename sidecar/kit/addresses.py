"""Public and non-public network addresses."""

import ipaddress
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


def network_of(text: str) -> str:
    """Return the /64 network of an IPv6 address, which one household has; other text unchanged."""
    try:
        address = ipaddress.IPv6Address(text)
    except ValueError:
        return text
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((address, 64), strict=False))
