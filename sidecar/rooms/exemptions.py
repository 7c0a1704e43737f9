"""Decides who passes without being counted: exempt requests, and visitors outside the roll-out.

An exemption depends on the request, and is checked for each request. The roll-out, which limits the
room to a share of the visitors, depends on the visitor: at the first request a number is computed
from the IP address and the browser. A cookie keeps the number when the IP address changes."""

import hashlib
import ipaddress
from collections import defaultdict
from collections.abc import Mapping
from functools import lru_cache

from sidecar.kit.addresses import parse_ip
from sidecar.kit.setting_types import clean_path
from sidecar.rooms.bearer import Bearer
from sidecar.rooms.settings import RoomSettings
from sidecar.visitors.model import Outside

#: The prefixes of networks as integers, by (IP version, prefix length).
NetworkPrefixes = Mapping[tuple[int, int], frozenset[int]]
#: How many roll-out numbers there are: enough for percentages with four decimals.
ROLLOUT_NUMBERS = 1_000_000


def is_exempt(settings: RoomSettings, bearer: Bearer) -> bool:
    """Return True if nginx marked the request as exempt, or if its path or IP address is exempt."""
    return bool(
        (bearer.exempt and settings.exempt_header)
        or (settings.exempt_paths and is_below_any(bearer.uri, settings.exempt_paths))
        or (settings.exempt_addresses and is_in_networks(bearer.address, settings.exempt_addresses))
    )


def has_exemptions(settings: RoomSettings) -> bool:
    """Return True if the room has exempt IP addresses or paths. nginx's cache key contains neither,
    so in such a room nginx must not cache verdicts about requests without a cookie."""
    return bool(settings.exempt_addresses or settings.exempt_paths)


def has_partial_rollout(settings: RoomSettings) -> bool:
    """Return True if the room applies only to some visitors (`rollout_percent`)."""
    return 0 < settings.rollout_percent < 100


def is_below_any(uri: str, prefixes: tuple[str, ...]) -> bool:
    """Return True if a URL's path is one of the prefixes or below one. Return False for an
    ambiguous path, which the site might read in another way."""
    path = clean_path(uri)
    return path is not None and any(
        path == prefix or path.startswith(prefix if prefix.endswith("/") else prefix + "/")
        for prefix in prefixes
    )


def is_in_networks(address: str, networks: tuple[str, ...]) -> bool:
    ip = parse_ip(address)
    if ip is None:
        return False
    bits = ip.max_prefixlen
    return any(
        ip.version == version and int(ip) >> (bits - length) in numbers
        for (version, length), numbers in _group_by_length(networks).items()
    )


def compute_rollout_number(room: str, *, address: str, user_agent: str) -> int:
    """Compute a client's roll-out number, from 0 to ROLLOUT_NUMBERS - 1. The number is the same on
    every replica, evenly distributed, and independent of the client's numbers in other rooms. It is
    not secret: a client can try User-Agents until its number is outside the roll-out."""
    ip = parse_ip(address)
    if isinstance(ip, ipaddress.IPv6Address):  # a household has a /64 network
        address = str(int(ip) >> 64)
    elif ip is not None:
        address = str(ip)
    text = f"{room}\0rollout\0{address}\0{user_agent}"
    digest = hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()
    return int.from_bytes(digest[:8], "big") * ROLLOUT_NUMBERS >> 64


def is_outside(number: int, settings: RoomSettings) -> bool:
    """Return True if a visitor with this roll-out number is outside the roll-out. Raising the
    percentage only adds visitors to the roll-out."""
    return number >= settings.rollout_percent * (ROLLOUT_NUMBERS / 100)


def prove_outside(
    room: str, settings: RoomSettings, bearer: Bearer, number: int | None
) -> Outside | None:
    """Return the proof that a newcomer is outside the roll-out, or None if the room applies to the
    newcomer. `number` is the roll-out number in the newcomer's cookie, or None without a cookie."""
    if settings.rollout_percent == 100:
        return None
    if number is None:
        number = compute_rollout_number(room, address=bearer.address, user_agent=bearer.user_agent)
    return Outside(number) if is_outside(number, settings) else None


@lru_cache(maxsize=64)
def _group_by_length(networks: tuple[str, ...]) -> NetworkPrefixes:
    """Group networks by IP version and prefix length, so that each group needs only one look-up."""
    prefixes: dict[tuple[int, int], set[int]] = defaultdict(set)
    for text in networks:
        network = ipaddress.ip_network(text)
        length, address = network.prefixlen, network.network_address
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped and length >= 96:
            address, length = address.ipv4_mapped, length - 96
        prefixes[address.version, length].add(int(address) >> (address.max_prefixlen - length))
    return {key: frozenset(numbers) for key, numbers in prefixes.items()}
