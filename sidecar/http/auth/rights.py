"""Defines the roles of operators, and the scopes of the tokens that programs send."""

from typing import Literal, TypeAlias, get_args

#: The role of an operator. Each includes the rights of the roles before it. A viewer may only read.
Role: TypeAlias = Literal["viewer", "operator", "admin"]
ROLES: tuple[Role, ...] = get_args(Role)
#: A scope of a program's token.
Scope: TypeAlias = Literal["classes", "jobs", "leases", "limits", "read"]
SCOPES: frozenset[Scope] = frozenset(get_args(Scope))
#: The scopes of a token without an entry in `scopes`. A token with the scope `classes` may choose
#: who is served before others, so only an entry can grant this scope.
DEFAULT_SCOPES: frozenset[Scope] = SCOPES - {"classes"}
#: The names of the owners whose tokens are service_token and admin_token.
OWNERS = ("service", "operator")


def covers(role: Role, needed: Role) -> bool:
    """Return True if the role includes the rights of the needed role."""
    return ROLES.index(role) >= ROLES.index(needed)
