"""Finds the owner of a request's jobs and leases: the client whose token the request has."""

from dataclasses import dataclass

from aiohttp import web

from sidecar.http.auth.rights import DEFAULT_SCOPES, OWNERS, Scope


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
#: The key of a request's owner, which app/access.py sets.
OWNER = web.RequestKey("owner", Owner)


def owner_of(request: web.Request) -> Owner:
    """Return the owner of a request. Raises HTTPUnauthorized if the request was not authorised."""
    if OWNER not in request:
        raise web.HTTPUnauthorized
    return request[OWNER]
