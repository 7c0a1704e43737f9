"""Describes the client that sent a request, and computes the fingerprint that binds its pass."""

import hashlib
from base64 import urlsafe_b64encode
from dataclasses import dataclass

from sidecar.kit.addresses import find_network, parse_ip
from sidecar.rooms.settings import RoomSettings
from sidecar.visitors.grants import Grant


@dataclass(frozen=True, slots=True)
class Bearer:
    """The client that sent a request, as nginx describes it.

    `address` is the IP address that nginx sees, never one that the client claims. `uri` is the
    requested URL. `exempt` is the reason why nginx exempts the request (`$waitroom_exempt`)."""

    address: str = ""
    user_agent: str = ""
    uri: str = ""
    exempt: str = ""
    #: The class that nginx assigns to the visitor (`$waitroom_class`). It is trusted.
    class_name: str = ""
    #: The verified grant of the request, if nginx assigns no class.
    grant: Grant | None = None
    #: The result of verifying the request's grant, for metrics. Empty if it has no grant.
    grant_result: str = ""
    #: Whether the client joins with a valid token of a `join_url`, issued while the shield was up.
    has_waited: bool = False

    def compute_fingerprint(self, room: str, settings: RoomSettings) -> str:
        """Return the fingerprint that a pass is bound to (`bind_pass`); "" if passes are not bound.

        An IPv6 address counts as its /64 network, because privacy addresses change within it. In
        passes of older versions, i marks a full address. Any client may use such a pass."""
        match settings.bind_pass:
            case "user_agent":
                return "u" + _compute_digest(room, "user_agent", self.user_agent)
            case "ip":
                return "n" + _compute_digest(room, "ip", find_network(self.address))
            case _:
                return ""

    def compute_address_digest(self, room: str, settings: RoomSettings) -> str:
        """Return the address's digest, or "" if the room has no max_places_per_address."""
        if settings.max_places_per_address is None:
            return ""
        return _compute_digest(room, "place", find_network(self.address))


#: Stands for a client that nginx does not describe.
NOBODY = Bearer()


def belongs_to_other_client(pass_fingerprint: str, own_fingerprint: str) -> bool:
    """Return True if a pass is bound to a different fingerprint from the client's own. Return False
    if one is empty, or if their kinds differ because `bind_pass` was changed meanwhile."""
    if not pass_fingerprint or pass_fingerprint[:1] != own_fingerprint[:1]:
        return False
    return pass_fingerprint != own_fingerprint


def _compute_digest(*parts: str) -> str:
    """Return 96 bits of the SHA-256 digest of these texts, to store in place of them."""
    text = "\0".join(parts).encode("utf-8", "surrogateescape")
    return urlsafe_b64encode(hashlib.sha256(text).digest()[:12]).decode()


def is_public_address(address: str) -> bool:
    """Return True for a public IP address. A private one may be that of a proxy for all clients."""
    ip = parse_ip(address)
    return ip is not None and ip.is_global
