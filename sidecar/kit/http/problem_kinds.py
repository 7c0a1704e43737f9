"""What can go wrong at an endpoint. Each kind has a code, by which programs tell it from others.

Here are the kinds of any endpoint; a product's own are in its schemas.py.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of problem document."""

    #: For programs: it stays the same in later versions.
    code: str
    status: int
    title: str
    #: For the API's description and docs/api.md.
    meaning: str


UNREADABLE = Kind(
    "unreadable_body",
    400,
    "The body cannot be read",
    "The body is not of its Content-Encoding.",
)
TOKEN_NEEDED = Kind("token_needed", 401, "A token is needed", "No token was sent.")
TOKEN_WRONG = Kind("token_wrong", 401, "The token is wrong", "The token is none of this replica.")
ADMINISTRATION_OFF = Kind(
    "administration_off", 403, "Administration is off", "No `admin_token` is set."
)
SERVICE_OFF = Kind(
    "service_off",
    403,
    "The service API is off",
    "No token is set: neither `service_token` nor `admin_token` nor any of `tokens`.",
)
OPERATORS_ONLY = Kind(
    "operators_only", 403, "For operators", "Programs may not change this: send the `admin_token`."
)
SCOPE_MISSING = Kind(
    "scope_missing",
    403,
    "Not in the token's scopes",
    "The token's `scopes` are for something else.",
)
FOREIGN_SITE = Kind(
    "foreign_site", 403, "From another site", "A session's request came from another site."
)
CSRF_WRONG = Kind(
    "csrf_wrong",
    403,
    "Not from the dashboard",
    "A session's change came without its CSRF token.",
)
NOT_FOUND = Kind("not_found", 404, "Not Found", "Nothing is at this address.")
METHOD_NOT_ALLOWED = Kind(
    "method_not_allowed", 405, "Method Not Allowed", "The address knows others: `Allow` names them."
)
TOO_LARGE = Kind(
    "body_too_large",
    413,
    "Request Entity Too Large",
    "A body of more than 256 KB; on the edge listener, of more than 64 KB.",
)
INVALID_REQUEST = Kind(
    "invalid_request",
    422,
    "The request is not allowed",
    "Something in the request is not allowed; `errors` names each such thing.",
)
QUEUE_FULL = Kind("queue_full", 429, "The line is full", "So many wait that no more may join.")
TOO_MANY_WRONG_TOKENS = Kind(
    "too_many_wrong_tokens",
    429,
    "Too many wrong tokens",
    "Ten wrong tokens came from this address within a minute: for the rest of it none is looked "
    "at. Sessions of the dashboard go on.",
)
INTERNAL_ERROR = Kind(
    "internal_error", 500, "An error of the waiting room", "A mistake in Waitroom; it was logged."
)
STORE_UNAVAILABLE = Kind(
    "store_unavailable", 503, "The store does not answer", "Redis is unavailable."
)
DATABASE_UNAVAILABLE = Kind(
    "database_unavailable", 503, "The database does not answer", "The SQL database is unavailable."
)
#: By status: what has no kind of its own.
GENERAL = {
    kind.status: kind
    for kind in (
        Kind("bad_request", 400, "", "The request cannot be read."),
        Kind("unauthorized", 401, "", "Nobody is logged in."),
        Kind("forbidden", 403, "", "The client may not do that."),
        NOT_FOUND,
        METHOD_NOT_ALLOWED,
        Kind("conflict", 409, "", "The state does not allow it."),
        TOO_LARGE,
        Kind("expectation_failed", 417, "", "An `Expect` that is not `100-continue`."),
        INVALID_REQUEST,
        Kind("too_many_requests", 429, "", "Too many requests."),
        Kind("unavailable", 503, "", "It cannot be answered for the moment."),
    )
}


def unknown(name: str) -> Kind:
    """`name`: of what; an UnknownNameError's kind."""
    return Kind(f"unknown_{name}", 404, f"Unknown {name}", f"No {name} of that name is configured.")
