"""The client that sends a cookie: its address, and the fingerprint that a pass is bound to."""

import hashlib
from base64 import urlsafe_b64encode
from dataclasses import dataclass

from sidecar.kit.addresses import find_network, parse_ip
from sidecar.rooms.settings import RoomSettings
from sidecar.visitors.grants import Grant


@dataclass(frozen=True, slots=True)
class Bearer:
    """A client as nginx describes it.

    `address` is the IP address that nginx sees, never an address that the visitor claims. `uri` is
    the requested URL, `exempt` the reason why nginx exempts the request (`$waitroom_exempt`).
    """

    address: str = ""
    user_agent: str = ""
    uri: str = ""
    exempt: str = ""
    #: The room's class that nginx assigns (`$waitroom_class`). nginx is trusted.
    class_name: str = ""
    #: The verified grant of the request, if nginx assigns no class.
    grant: Grant | None = None
    #: The result of reading the request's grant, for metrics. Empty if the request has none.
    grant_result: str = ""
    #: Whether the client joins with the token that it got while the shield was up.
    has_waited: bool = False

    def fingerprint(self, room: str, settings: RoomSettings) -> str:
        """Return the fingerprint that a pass is bound to (`bind_pass`); "" if passes are not bound.

        An IPv6 address counts as its network of 64 bits, because privacy addresses change within
        that network. Earlier versions bound passes to whole addresses, with the letter i instead of
        n. A pass with an i is accepted from any client.
        """
        match settings.bind_pass:
            case "user_agent":
                return "u" + _digest(room, "user_agent", self.user_agent)
            case "ip":
                return "n" + _digest(room, "ip", find_network(self.address))
            case _:
                return ""

    def address_digest(self, room: str, settings: RoomSettings) -> str:
        """Return the digest of the address by which max_places_per_address counts; "" if
        max_places_per_address is not set."""
        if settings.max_places_per_address is None:
            return ""
        return _digest(room, "place", find_network(self.address))


#: Stands for a client that nginx did not describe.
NOBODY = Bearer()


def belongs_to_another(pass_: str, client: str) -> bool:
    """Return True if the fingerprint in a pass is not the client's. A pass without a fingerprint,
    or with another kind of fingerprint because `bind_pass` was changed, is accepted from any
    client."""
    return bool(pass_ and client) and pass_[0] == client[0] and pass_ != client


def _digest(*parts: str) -> str:
    """Return 96 bits of a SHA-256 digest, so that the parts themselves are stored nowhere."""
    text = "\0".join(parts).encode("utf-8", "surrogateescape")
    return urlsafe_b64encode(hashlib.sha256(text).digest()[:12]).decode()


def is_global(address: str) -> bool:
    """Return True for a public IP address. A private address may be that of a load balancer, which
    all clients share."""
    ip = parse_ip(address)
    return ip is not None and ip.is_global
