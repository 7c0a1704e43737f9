"""Roles of operators and scopes of programs' tokens."""

from typing import Literal, TypeAlias, get_args

#: What an operator may do. Each role includes those before it. A viewer changes nothing.
Role: TypeAlias = Literal["viewer", "operator", "admin"]
ROLES: tuple[Role, ...] = get_args(Role)
#: What a program's token may do. A token without an entry in `scopes` has all of them.
Scope: TypeAlias = Literal["jobs", "leases", "limits", "read"]
SCOPES: frozenset[Scope] = frozenset(get_args(Scope))
#: The owners' names behind service_token and admin_token.
OWNERS = ("service", "operator")


def covers(role: Role, needed: Role) -> bool:
    return ROLES.index(role) >= ROLES.index(needed)
