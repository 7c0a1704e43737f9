"""Operators with an account, who log in by a password or through a proxy that signs them in."""

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
#: The source of all connections through a unix socket.
UNIX = "unix"
#: RFC 9106's parameters for little memory: 64 MiB, about a twentieth of a second.
HASHER = PasswordHasher()


@dataclass(frozen=True, slots=True)
class Account:
    role: Role
    #: An Argon2 hash. Empty: the operator cannot log in by a password.
    password: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class ProxySignIn:
    """Reads from a header whom the proxy in front has signed in."""

    header: str = ""
    #: The networks, and UNIX, from which the header is trusted.
    sources: frozenset[Network | str] = frozenset()
    #: The role of names without an account. None: they are refused.
    role: Role | None = None

    def name(self, headers: CIMultiDictProxy[str], peer: str | None) -> str | None:
        """Return the operator's name, "" if the header is empty or there are several, or None if
        the header is absent or not trusted."""
        if not self.header or self.header not in headers or not self._is_from(peer):
            return None
        names = headers.getall(self.header)
        return names[0] if len(names) == 1 else ""

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
    """The operators from the settings, keyed by name."""

    named: Mapping[str, Account] = field(default_factory=dict)
    proxy: ProxySignIn = field(default_factory=ProxySignIn)
    #: Checking one password takes 64 MiB, so log-ins wait for each other.
    _one: asyncio.Lock = field(default_factory=asyncio.Lock)

    def __bool__(self) -> bool:
        return bool(self.named or self.proxy.header)

    def role_of(self, name: str) -> Role | None:
        if account := self.named.get(name):
            return account.role
        # Or `Anna`, whom a proxy may take for anna, would get another role.
        return self.proxy.role if self.proxy.header and not self.is_taken(name) else None

    def digest(self, name: str) -> str | None:
        """Return a digest of an operator's role and password, or None for an unknown name. A new
        role or password voids cookies with the old digest."""
        account, role = self.named.get(name), self.role_of(name)
        if role is None:
            return None
        secret = f"{role}\n{account.password if account else ''}"
        return hashlib.sha256(secret.encode()).hexdigest()[:32]

    def is_taken(self, name: str) -> bool:
        """Return True if an account has this name, also in other case or width."""
        return _alike(name) in map(_alike, self.named)

    async def is_password(self, name: str, password: str, is_refused: Callable[[], bool]) -> bool:
        """Check an operator's password. An unknown name takes as long, with another account's hash.
        `is_refused` is called once the lock is held, so that a flood from one address takes no
        time."""
        account = self.named.get(name)
        password_hash = account.password if account else ""
        others = (each.password for each in self.named.values() if each.password)
        async with self._one:
            if is_refused():
                return False
            is_right = await asyncio.to_thread(
                is_hash_of, password_hash or next(others, ""), password
            )
        return is_right and bool(password_hash)


def is_hash_of(password_hash: str, password: str) -> bool:
    try:
        return HASHER.verify(password_hash, password)
    except (VerificationError, InvalidHashError):
        return False


def _alike(name: str) -> str:
    return unicodedata.normalize("NFKC", name).casefold()
