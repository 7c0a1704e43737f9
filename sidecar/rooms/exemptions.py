"""Decides who passes without being counted: exempt requests, and visitors outside the roll-out.

An exemption depends on the request and is checked each time. The roll-out depends on the visitor:
at the first request a number is computed from the address and the browser. The cookie stores this
number, so it stays the same when the address changes.
"""

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

#: The prefixes of networks as integers, by IP version and prefix length.
NetworkPrefixes = Mapping[tuple[int, int], frozenset[int]]
#: How many roll-out numbers there are. A percentage may have four decimals.
ROLLOUT_NUMBERS = 1_000_000


def is_exempt(settings: RoomSettings, bearer: Bearer) -> bool:
    """Return True if nginx marked the request as exempt, or its path or address is exempt."""
    return bool(
        (bearer.exempt and settings.exempt_header)
        or (settings.exempt_paths and is_below(bearer.uri, settings.exempt_paths))
        or (settings.exempt_addresses and is_among(bearer.address, settings.exempt_addresses))
    )


def has_exemptions(settings: RoomSettings) -> bool:
    """Return True if the room has exempt addresses or paths. The key of nginx's cache has neither
    address nor path, so nginx must not cache a verdict about a request without a cookie."""
    return bool(settings.exempt_addresses or settings.exempt_paths)


def has_partial_rollout(settings: RoomSettings) -> bool:
    """Return True if the room applies only to a part of the visitors."""
    return 0 < settings.rollout_percent < 100


def is_below(uri: str, prefixes: tuple[str, ...]) -> bool:
    """Return True if a URL certainly leads to one of these paths or to a path below them."""
    path = clean_path(uri)
    return path is not None and any(
        path == prefix or path.startswith(prefix if prefix.endswith("/") else prefix + "/")
        for prefix in prefixes
    )


def is_among(address: str, networks: tuple[str, ...]) -> bool:
    """Return True if an IP address is in one of these networks."""
    ip = parse_ip(address)
    if ip is None:
        return False
    bits, version = ip.max_prefixlen, ip.version
    return any(
        version == kind and int(ip) >> (bits - length) in numbers
        for (kind, length), numbers in _group_by_length(networks).items()
    )


def compute_rollout_number(room: str, *, address: str, user_agent: str) -> int:
    """Compute a client's number from 0 to ROLLOUT_NUMBERS - 1: evenly distributed, the same on
    every replica, and independent of the client's number in other rooms.

    The number is not secret: a client can change its User-Agent until its number is outside.
    """
    ip = parse_ip(address)
    if isinstance(ip, ipaddress.IPv6Address):  # a household has a network of 64 bits
        address = str(int(ip) >> 64)
    elif ip is not None:
        address = str(ip)
    text = f"{room}\0rollout\0{address}\0{user_agent}"
    digest = hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()
    return int.from_bytes(digest[:8], "big") * ROLLOUT_NUMBERS >> 64


def is_outside(number: int, settings: RoomSettings) -> bool:
    """Return True if a visitor with this number is outside the roll-out. A higher percentage only
    adds visitors to the roll-out."""
    return number >= settings.rollout_percent * (ROLLOUT_NUMBERS / 100)


def prove_outside(
    room: str, settings: RoomSettings, bearer: Bearer, number: int | None
) -> Outside | None:
    """Return the proof that a newcomer is outside the roll-out, or None if the room applies to the
    newcomer. `number` is the number in the newcomer's cookie, None if there is no cookie yet."""
    if settings.rollout_percent == 100:
        return None
    if number is None:
        number = compute_rollout_number(room, address=bearer.address, user_agent=bearer.user_agent)
    return Outside(number) if is_outside(number, settings) else None


@lru_cache(maxsize=64)
def _group_by_length(networks: tuple[str, ...]) -> NetworkPrefixes:
    """Group networks by prefix length, so that a request costs one look-up for each length, however
    many networks there are."""
    prefixes: dict[tuple[int, int], set[int]] = defaultdict(set)
    for text in networks:
        network = ipaddress.ip_network(text)
        length, address = network.prefixlen, network.network_address
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped and length >= 96:
            address, length = address.ipv4_mapped, length - 96
        prefixes[address.version, length].add(int(address) >> (address.max_prefixlen - length))
    return {key: frozenset(numbers) for key, numbers in prefixes.items()}
