"""The client that sends a cookie: its address, and the fingerprint that a pass is bound to."""

import hashlib
from base64 import urlsafe_b64encode
from dataclasses import dataclass

from sidecar.kit.addresses import ip_of, network_of
from sidecar.rooms.settings import RoomSettings
from sidecar.visitors.grants import Grant


@dataclass(frozen=True, slots=True)
class Bearer:
    """A client as nginx describes it.

    `address` is the one that nginx names, never one that the visitor names. `uri` is the requested
    address, `exempt` the reason why nginx exempts the request (`$waitroom_exempt`).
    """

    address: str = ""
    user_agent: str = ""
    uri: str = ""
    exempt: str = ""
    #: The class that nginx sets (`$waitroom_class`), one of the room's. nginx is trusted.
    class_name: str = ""
    #: A verified grant, if nginx sets no class.
    grant: Grant | None = None
    #: The result of reading the request's grant, for metrics; empty: it has none.
    grant_result: str = ""
    #: Whether the client joined with the token that the shield gave.
    has_waited: bool = False

    def fingerprint(self, room: str, settings: RoomSettings) -> str:
        """Return what a pass is bound to (`bind_pass`); "" if it is bound to nothing.

        Of an IPv6 address it is the network of 64 bits, since privacy addresses change within it.
        Earlier versions wrote whole addresses, with the letter i: such a pass is accepted from any
        client.
        """
        match settings.bind_pass:
            case "user_agent":
                return "u" + _digest(room, "user_agent", self.user_agent)
            case "ip":
                return "n" + _digest(room, "ip", network_of(self.address))
            case _:
                return ""

    def place(self, room: str, settings: RoomSettings) -> str:
        """Return a digest of the address to count for max_places_per_address; "" if it is not
        set."""
        if settings.max_places_per_address is None:
            return ""
        return _digest(room, "place", network_of(self.address))


NOBODY = Bearer()


def belongs_to_another(fingerprint: str, shown: str) -> bool:
    """Return True if a pass with this fingerprint was given to another client. A pass that was
    bound to nothing, or to something else before the setting was changed, may be anybody's."""
    return bool(fingerprint and shown) and fingerprint[0] == shown[0] and fingerprint != shown


def _digest(*parts: str) -> str:
    """Return 96 bits of a digest, so that the text is kept nowhere."""
    text = "\0".join(parts).encode("utf-8", "surrogateescape")
    return urlsafe_b64encode(hashlib.sha256(text).digest()[:12]).decode()


def is_global(address: str) -> bool:
    """Return True for an address of one client or network. A private address may be a load
    balancer's."""
    ip = ip_of(address)
    return ip is not None and ip.is_global
