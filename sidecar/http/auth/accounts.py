"""Operators with a name of their own: by a password, or as a proxy in front says who they are."""

import asyncio
import hashlib
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import TypeAlias

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError
from multidict import CIMultiDictProxy

from sidecar.http.auth.rights import Role

Network: TypeAlias = IPv4Network | IPv6Network
#: Stands for all who come through a unix socket.
UNIX = "unix"
#: RFC 9106's parameters for little memory: 64 MiB, about a twentieth of a second.
HASHER = PasswordHasher()


@dataclass(frozen=True, slots=True)
class Account:
    role: Role
    #: An Argon2 hash; empty: no password opens it.
    password: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class ProxySignIn:
    """Whom a proxy in front has signed in, by a header that it sets."""

    header: str = ""
    #: From where the header counts: networks, and UNIX.
    sources: frozenset[Network | str] = frozenset()
    #: Of names that have no account; None: they are refused.
    role: Role | None = None

    def name(self, headers: CIMultiDictProxy[str], peer: str | None) -> str | None:
        """Who it is; "" where the proxy says nobody, or two. None: the header does not count."""
        if not self.header or self.header not in headers or not self._is_from(peer):
            return None
        given = headers.getall(self.header)
        return given[0] if len(given) == 1 else ""

    def _is_from(self, peer: str | None) -> bool:
        if not peer:
            return UNIX in self.sources
        try:
            address = ip_address(peer)
        except ValueError:
            return False
        if isinstance(address, IPv6Address) and address.ipv4_mapped:
            address = address.ipv4_mapped
        return any(not isinstance(net, str) and address in net for net in self.sources)


@dataclass(slots=True)
class Accounts:
    """By name."""

    named: Mapping[str, Account] = field(default_factory=dict)
    proxy: ProxySignIn = field(default_factory=ProxySignIn)
    #: Each takes 64 MiB: log-ins wait for each other.
    _one: asyncio.Lock = field(default_factory=asyncio.Lock)

    def __bool__(self) -> bool:
        return bool(self.named or self.proxy.header)

    def role_of(self, name: str) -> Role | None:
        if account := self.named.get(name):
            return account.role
        # A proxy may take `Anna` for the same person: it is not how anna gets another role.
        return self.proxy.role if self.proxy.header and not self.is_taken(name) else None

    def digest(self, name: str) -> str | None:
        """Changes with the role and the password, and voids what was signed before; None: there is
        nobody of that name."""
        account, role = self.named.get(name), self.role_of(name)
        if role is None:
            return None
        secret = f"{role}\n{account.password if account else ''}"
        return hashlib.sha256(secret.encode()).hexdigest()[:32]

    def is_taken(self, name: str) -> bool:
        """Whether a name is that of an account, in other letters or widths too."""
        return _alike(name) in map(_alike, self.named)

    async def is_password(self, name: str, given: str, is_refused: Callable[[], bool]) -> bool:
        """Takes as long for a name that there is not: somebody's hash is looked at. `is_refused`:
        asked when it is this one's turn, so that a flood from one address takes no turns."""
        account = self.named.get(name)
        known = account.password if account else ""
        others = (each.password for each in self.named.values() if each.password)
        async with self._one:
            if is_refused():
                return False
            is_right = await asyncio.to_thread(is_hash_of, known or next(others, ""), given)
        return is_right and bool(known)


def is_hash_of(known: str, given: str) -> bool:
    try:
        return HASHER.verify(known, given)
    except (VerificationError, InvalidHashError):
        return False


def _alike(name: str) -> str:
    return unicodedata.normalize("NFKC", name).casefold()
