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
#: The name of the source of all connections through a unix socket.
UNIX = "unix"


@dataclass(frozen=True, slots=True)
class Account:
    """The account of an operator."""

    role: Role
    #: An Argon2 hash, or "" if the operator cannot log in with a password.
    password: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class ProxySignIn:
    """The header in which the proxy names the operator that the proxy has signed in."""

    header: str = ""
    #: The networks from which the header is trusted; may include UNIX.
    sources: frozenset[Network | str] = frozenset()
    #: The role of an operator without an account, or None if such an operator is refused.
    role: Role | None = None

    def find_name(self, headers: CIMultiDictProxy[str], peer: str | None) -> str | None:
        """Return the operator's name, "" if the header is empty or comes several times, or None if
        the header is absent or not trusted."""
        if not self.header or self.header not in headers or not self._is_source(peer):
            return None
        names = headers.getall(self.header)
        return names[0] if len(names) == 1 else ""

    def _is_source(self, peer: str | None) -> bool:
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
    #: Allows one check of a password at a time, because a check takes 64 MiB.
    _check_lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def __bool__(self) -> bool:
        return bool(self.named or self.proxy.header)

    def find_role(self, name: str) -> Role | None:
        """Return an operator's role, or None if the operator has none."""
        if account := self.named.get(name):
            return account.role
        # If there is an account anna, the name Anna gets no role: it may mean the same operator.
        return self.proxy.role if self.proxy.header and not self.is_taken(name) else None

    def digest(self, name: str) -> str | None:
        """Return a digest of an operator's role and password, or None if the operator has no role.
        A new role or password makes cookies with the old digest invalid."""
        account, role = self.named.get(name), self.find_role(name)
        if role is None:
            return None
        secret = f"{role}\n{account.password if account else ''}"
        return hashlib.sha256(secret.encode()).hexdigest()[:32]

    def is_taken(self, name: str) -> bool:
        """Return True if an account has this name, in any case and character width."""
        return _fold(name) in map(_fold, self.named)

    async def is_password(self, name: str, password: str, is_refused: Callable[[], bool]) -> bool:
        """Check an operator's password. The check of an unknown name uses another account's hash,
        so that it takes as long. `is_refused` is called when the lock is free: once an address is
        refused, the waiting checks of that address end at once."""
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


def _fold(name: str) -> str:
    return unicodedata.normalize("NFKC", name).casefold()
