"""What a program's token may be for."""

from typing import Literal, TypeAlias, get_args

#: The owners' names behind service_token and admin_token.
OWNERS = ("service", "operator")
#: What a program's token may be for; without a line in `scopes` it is for all of it.
Scope: TypeAlias = Literal["jobs", "leases", "limits", "read"]
SCOPES: frozenset[Scope] = frozenset(get_args(Scope))
