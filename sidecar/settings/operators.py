"""The types of the settings about operators and about the proxy that signs them in."""

import re
from ipaddress import ip_network
from typing import Annotated

from argon2 import extract_parameters
from argon2.exceptions import InvalidHashError
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from sidecar.http.auth.accounts import UNIX, Network
from sidecar.http.auth.operators import NAME_LENGTH
from sidecar.http.auth.rights import Role
from sidecar.kit.setting_types import split_list

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]*")
_HEADER = re.compile(r"[A-Za-z][A-Za-z0-9-]*")
#: Headers that `operator_header` may not name, because they have other uses.
_RESERVED_HEADERS = {
    "authorization",
    "cookie",
    "host",
    "origin",
    "connection",
    "x-waitroom-operator",
}


def _check_name(value: str) -> str:
    if len(value) > NAME_LENGTH or not _NAME.fullmatch(value):
        raise ValueError(
            f"a name has letters, digits, and . _ @ + - after the first, {NAME_LENGTH} at most"
        )
    return value


def _check_hash(value: str) -> str:
    """Check that a value is an Argon2 hash. The error omits the value, which may be a password."""
    try:
        if value:
            value.encode("ascii")
            extract_parameters(value)
    except (InvalidHashError, UnicodeEncodeError):
        raise ValueError(
            "this is no Argon2 hash; waitroom hash-password makes one ($argon2id$…)"
        ) from None
    return value


def _check_header(value: str) -> str:
    if value and (not _HEADER.fullmatch(value) or value.lower() in _RESERVED_HEADERS):
        raise ValueError("write the name of the header that your proxy sets, such as Remote-User")
    return value


def _parse_source(value: str) -> Network | str:
    if value == UNIX:
        return value
    try:
        network = ip_network(value)
    except ValueError:
        raise ValueError(f"write an address, a network such as 10.0.0.0/24, or {UNIX}") from None
    if not network.prefixlen:
        raise ValueError("with it, anyone who reaches ops_listen could be any operator")
    return network


class OperatorAccount(BaseModel):
    """The settings of one operator. `password` is never shown."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    role: Role
    """What the operator may do. `viewer`: see everything, but change nothing. `operator`: also
    change rooms, limits and targets, and release and move visitors. `admin`: also reset, export and
    import a room, and end the sessions of operators."""
    password: Annotated[str, AfterValidator(_check_hash)] = Field(default="", repr=False)
    """The Argon2 hash of the password, which `waitroom hash-password` prints. Empty: only the proxy
    of `operator_header` can sign the operator in."""


OperatorName = Annotated[str, AfterValidator(_check_name)]
Header = Annotated[str, AfterValidator(_check_header)]
Sources = Annotated[
    list[Annotated[str, AfterValidator(_parse_source)]], BeforeValidator(split_list)
]
