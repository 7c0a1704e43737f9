"""The accounts of operators, who log in with a password or are signed in by a proxy."""

import asyncio
import hashlib
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network
from typing import TypeAlias

from multidict import CIMultiDictProxy

from sidecar.http.auth.passwords import is_hash_of
from sidecar.http.auth.rights import Role
from sidecar.kit.addresses import parse_ip

Network: TypeAlias = IPv4Network | IPv6Network
#: The entry in ProxySignIn.sources that stands for all connections through a unix socket.
UNIX = "unix"


@dataclass(frozen=True, slots=True)
class Account:
    role: Role
    #: An Argon2 hash, or "" if the operator cannot log in with a password.
    password: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class ProxySignIn:
    """The header in which a proxy names the operator whom it has signed in."""

    header: str = ""
    #: The networks from which the header is trusted. They may include UNIX.
    sources: frozenset[Network | str] = frozenset()
    #: The role of an operator without an account, or None if such an operator is refused.
    role: Role | None = None

    def find_name(self, headers: CIMultiDictProxy[str], peer: str | None) -> str | None:
        """Return the operator's name, "" if the header is empty or comes several times, or None if
        the header is absent or not trusted. `peer` is the IP address of the connection."""
        if not self.header or self.header not in headers or not self._is_trusted(peer):
            return None
        names = headers.getall(self.header)
        return names[0] if len(names) == 1 else ""

    def _is_trusted(self, peer: str | None) -> bool:
        if not peer:
            return UNIX in self.sources
        address = parse_ip(peer)
        return address is not None and any(
            not isinstance(network, str) and address in network for network in self.sources
        )


@dataclass(slots=True)
class Accounts:
    """The operators from the settings, keyed by name."""

    named: Mapping[str, Account] = field(default_factory=dict)
    proxy: ProxySignIn = field(default_factory=ProxySignIn)
    #: Allows one password check at a time, because each takes 64 MiB of memory.
    _check_lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def __bool__(self) -> bool:
        return bool(self.named or self.proxy.header)

    def find_role(self, name: str) -> Role | None:
        """Return an operator's role, or None if the operator has none."""
        if account := self.named.get(name):
            return account.role
        # If there is an account anna, Anna gets no role, because both may be the same operator.
        return self.proxy.role if self.proxy.header and not self.is_taken(name) else None

    def digest(self, name: str) -> str | None:
        """Return a digest of an operator's role and password, or None if the operator has no role.
        Cookies contain the digest, so a new role or password makes them invalid."""
        account, role = self.named.get(name), self.find_role(name)
        if role is None:
            return None
        secret = f"{role}\n{account.password if account else ''}"
        return hashlib.sha256(secret.encode()).hexdigest()[:32]

    def is_taken(self, name: str) -> bool:
        """Return True if an account has this name, ignoring case and the width of characters."""
        return _fold(name) in map(_fold, self.named)

    async def is_password(self, name: str, password: str, is_refused: Callable[[], bool]) -> bool:
        """Return True if the password is right. An unknown name takes as long as a known one, since
        the password is then checked against the hash of some account. If `is_refused` returns True
        when the check begins, the client's IP address is refused: return False without a check."""
        account = self.named.get(name)
        password_hash = account.password if account else ""
        other_hashes = (other.password for other in self.named.values() if other.password)
        async with self._check_lock:
            if is_refused():
                return False
            is_right = await asyncio.to_thread(
                is_hash_of, password_hash or next(other_hashes, ""), password
            )
        return is_right and bool(password_hash)


def _fold(name: str) -> str:
    return unicodedata.normalize("NFKC", name).casefold()
