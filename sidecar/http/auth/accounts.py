"""The accounts of operators, who log in with a password or are signed in by a proxy."""

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
#: The name of the source of all connections through a unix socket.
UNIX = "unix"
#: Hashes with RFC 9106's parameters for little memory: 64 MiB, about 50 ms for each hash.
HASHER = PasswordHasher()
#: The shortest password that `waitroom hash-password` takes, in characters.
MIN_PASSWORD_LENGTH = 8


@dataclass(frozen=True, slots=True)
class Account:
    role: Role
    #: An Argon2 hash. Empty: the operator cannot log in by a password.
    password: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class ProxySignIn:
    """Reads the header in which the proxy in front names the operator that it has signed in."""

    header: str = ""
    #: The networks from which the header is trusted; may include UNIX.
    sources: frozenset[Network | str] = frozenset()
    #: The role of a name without an account. None: such a name is refused.
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
    #: Held during the check of a password. A check takes 64 MiB, so there is one at a time.
    _check_lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def __bool__(self) -> bool:
        return bool(self.named or self.proxy.header)

    def role_of(self, name: str) -> Role | None:
        if account := self.named.get(name):
            return account.role
        # A name such as Anna gets no role if there is an account anna: the proxy may mean the same.
        return self.proxy.role if self.proxy.header and not self.is_taken(name) else None

    def digest(self, name: str) -> str | None:
        """Return a digest of an operator's role and password, or None if the name is unknown. A new
        role or password makes cookies with the old digest invalid."""
        account, role = self.named.get(name), self.role_of(name)
        if role is None:
            return None
        secret = f"{role}\n{account.password if account else ''}"
        return hashlib.sha256(secret.encode()).hexdigest()[:32]

    def is_taken(self, name: str) -> bool:
        """Return True if an account has this name, in any case and character width."""
        return _fold(name) in map(_fold, self.named)

    async def is_password(self, name: str, password: str, is_refused: Callable[[], bool]) -> bool:
        """Check an operator's password. An unknown name takes as long, with another account's hash.
        `is_refused` is called when it is this check's turn: once an address is refused, its waiting
        checks end at once."""
        account = self.named.get(name)
        password_hash = account.password if account else ""
        others = (each.password for each in self.named.values() if each.password)
        async with self._check_lock:
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


def _fold(name: str) -> str:
    return unicodedata.normalize("NFKC", name).casefold()
