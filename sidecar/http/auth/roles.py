"""What an operator may do."""

from typing import Literal, TypeAlias, get_args

#: Each may do what those before it may. A viewer changes nothing.
Role: TypeAlias = Literal["viewer", "operator", "admin"]
ROLES: tuple[Role, ...] = get_args(Role)


def covers(has: Role, needed: Role) -> bool:
    return ROLES.index(has) >= ROLES.index(needed)
