"""The owner of what a request is about: the name of its token."""

from collections.abc import Callable
from dataclasses import dataclass

from aiohttp import web

from sidecar.http.auth.rights import OWNERS, SCOPES, Scope

#: Whose token a request brings; None: nobody's.
FIND_OWNER: "web.AppKey[Callable[[web.Request], Owner | None]]" = web.AppKey("find_owner")


@dataclass(frozen=True, slots=True)
class Owner:
    """The client at /v1/: the name of its token, which is kept with what it owns."""

    name: str
    #: What a program's token is for.
    scopes: frozenset[Scope] = SCOPES
    #: Sees what anybody owns, and may change all that can be changed.
    is_operator: bool = False


OPERATOR = Owner(OWNERS[1], is_operator=True)


def owner_of(request: web.Request) -> Owner:
    """Raises HTTPUnauthorized where `authorised` would have refused the request."""
    owner = request.app[FIND_OWNER](request)
    if owner is None:
        raise web.HTTPUnauthorized
    return owner
