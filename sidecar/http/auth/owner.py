"""Finds the owner of a request's jobs and leases: the client whose token the request has."""

from collections.abc import Callable
from dataclasses import dataclass

from aiohttp import web

from sidecar.http.auth.rights import DEFAULT_SCOPES, OWNERS, Scope

#: The key of the function that returns the owner of a request's token, or None if it is not valid.
FIND_OWNER: "web.AppKey[Callable[[web.Request], Owner | None]]" = web.AppKey("find_owner")


@dataclass(frozen=True, slots=True)
class Owner:
    """A client of the API below /v1/. Its jobs and leases are stored with its name."""

    name: str
    scopes: frozenset[Scope] = DEFAULT_SCOPES
    #: True if the client sees and may change the jobs and leases of all owners.
    is_operator: bool = False

    @property
    def may_choose_class(self) -> bool:
        """Return True if the client may choose a class without a grant."""
        return self.is_operator or "classes" in self.scopes


#: The client with the admin token.
OPERATOR = Owner(OWNERS[1], is_operator=True)


def owner_of(request: web.Request) -> Owner:
    """Return the owner of a request's token. Raises HTTPUnauthorized without a valid token."""
    owner = request.app[FIND_OWNER](request)
    if owner is None:
        raise web.HTTPUnauthorized
    return owner
