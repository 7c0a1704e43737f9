"""Describes the client that sends a cookie, and computes the fingerprint that binds its pass."""

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
    requested URL. `exempt` is the reason why nginx exempts the request (`$waitroom_exempt`).
    """

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
    #: Whether the client joins with the token that it got while the shield was up.
    has_waited: bool = False

    def fingerprint(self, room: str, settings: RoomSettings) -> str:
        """Return the fingerprint that a pass is bound to (`bind_pass`); "" if passes are not bound.

        An IPv6 address counts as its /64 network, because privacy addresses change within it. Old
        passes, bound to full addresses with the prefix i, not n, are accepted from any client.
        """
        match settings.bind_pass:
            case "user_agent":
                return "u" + _digest(room, "user_agent", self.user_agent)
            case "ip":
                return "n" + _digest(room, "ip", find_network(self.address))
            case _:
                return ""

    def address_digest(self, room: str, settings: RoomSettings) -> str:
        """Return the digest of the address for max_places_per_address; "" if that is not set."""
        if settings.max_places_per_address is None:
            return ""
        return _digest(room, "place", find_network(self.address))


#: Stands for a client that nginx did not describe.
NOBODY = Bearer()


def belongs_to_another(fingerprint: str, own: str) -> bool:
    """Return True if the fingerprint in a pass is not the client's own. Return False if one is
    empty, or if their kinds differ, because `bind_pass` was changed since the pass was issued."""
    return bool(fingerprint and own) and fingerprint[0] == own[0] and fingerprint != own


def _digest(*parts: str) -> str:
    """Return 96 bits of a SHA-256 digest. It is stored in place of the parts."""
    text = "\0".join(parts).encode("utf-8", "surrogateescape")
    return urlsafe_b64encode(hashlib.sha256(text).digest()[:12]).decode()


def is_global(address: str) -> bool:
    """Return True for a public IP address. All clients may share a load balancer's private one."""
    ip = parse_ip(address)
    return ip is not None and ip.is_global
