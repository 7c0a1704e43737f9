"""What a program's token may do, by its scopes: the table that docs/security.md shows.

What is not here is the operator's: changes of settings, of limits' values, of anybody's leases.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sidecar.api.endpoints import JOBS, OPS
from sidecar.kit.http.auth.scopes import SCOPES

if TYPE_CHECKING:
    from aiohttp import web

    from sidecar.kit.http.auth.scopes import Scope

#: One of these scopes is needed, by method and path.
RIGHTS: dict[tuple[str, str], frozenset[Scope]] = {
    (each.method, each.canonical): each.access.scopes
    for each in (*OPS, *JOBS)
    if each.access.scopes
}
#: Where there are no targets: says so, to any token.
NO_JOBS = "/v1/{_}"


def needed(request: web.Request) -> frozenset[Scope]:
    """The scopes of which one opens this endpoint; none: it is the operator's. An address at which
    nothing is, is anybody's to find out."""
    resource = request.match_info.route.resource
    if resource is None or resource.canonical == NO_JOBS:
        return SCOPES
    method = "GET" if request.method == "HEAD" else request.method
    return RIGHTS.get((method, resource.canonical), frozenset())
