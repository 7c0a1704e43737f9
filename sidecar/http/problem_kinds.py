"""The kinds of problem documents (RFC 9457) that several parts of Waitroom use. Other kinds are in
the schemas.py of rooms, leases, limits, jobs and so on."""

from dataclasses import dataclass

#: The beginning of the `type` of each problem document. The kind's code follows.
TYPE_PREFIX = "urn:waitroom:problem:"
#: The code of a problem that has no kind of its own, only an HTTP status.
OTHER_CODE = "other"


@dataclass(frozen=True, slots=True)
class Kind:
    #: The identifier for programs, which never changes.
    code: str
    status: int
    title: str
    #: When the problem occurs, for docs/problems.md and the OpenAPI document.
    meaning: str
    #: What to do about the problem, for docs/problems.md.
    remedy: str = ""

    @property
    def type(self) -> str:
        """Return the URI of the kind. It has no host, so it is the same at every installation."""
        return "about:blank" if self.code == OTHER_CODE else f"{TYPE_PREFIX}{self.code}"


UNREADABLE = Kind(
    "unreadable_body",
    400,
    "The body cannot be read",
    "The body is not JSON, or does not match its `Content-Encoding`. `detail` contains the error.",
    "Send JSON. Check `Content-Encoding`, and whether the client or a proxy changes the body.",
)
TOKEN_NEEDED = Kind(
    "token_needed",
    401,
    "A token is needed",
    "No token was sent.",
    "Send `Authorization: Bearer TOKEN`.",
)
TOKEN_WRONG = Kind(
    "token_wrong",
    401,
    "The token is wrong",
    "This replica does not accept the token.",
    "Send a token that is in the settings. All replicas need the same tokens.",
)
ADMINISTRATION_OFF = Kind(
    "administration_off",
    403,
    "Administration is off",
    "Neither `admin_token` nor an operator is set.",
    "Set `admin_token` or `operators`, and restart the replicas.",
)
SERVICE_OFF = Kind(
    "service_off",
    403,
    "The service API is off",
    "None of `service_token`, `admin_token` and `tokens` is set.",
    "Set `service_token` or one of `tokens`, and restart the replicas.",
)
OPERATORS_ONLY = Kind(
    "operators_only",
    403,
    "For operators",
    "The token of a program does not allow this change.",
    "Send `admin_token`.",
)
SCOPE_MISSING = Kind(
    "scope_missing",
    403,
    "Not in the token's scopes",
    "The token's `scopes` do not include the one that this request needs.",
    "Add the scope to the token's entry in `scopes`, or send another token.",
)
ROLE_TOO_LOW = Kind(
    "role_too_low",
    403,
    "Your role may not do this",
    "This request needs a higher `role` than the operator has.",
    "Ask an operator with that role, or change the role in `operators`.",
)
FOREIGN_SITE = Kind(
    "foreign_site",
    403,
    "From another site",
    "A request with a dashboard session came from another site.",
    "Use the dashboard's own address. In a program, send a token instead.",
)
CSRF_WRONG = Kind(
    "csrf_wrong",
    403,
    "Not from the dashboard",
    "A change with a dashboard session came without the session's CSRF token.",
    "Reload the dashboard. In a program, send a token instead.",
)
#: nginx sends this kind of problem (nginx/waitroom/server.conf).
PERMIT_NEEDED = Kind(
    "permit_needed",
    403,
    "A permit is needed",
    "A request to an online target had no permit, or an invalid one. `reason` says why.",
    "Send the permit of a called job in `X-Waitroom-Permit`, only once and before it expires.",
)
NOT_FOUND = Kind(
    "not_found",
    404,
    "Not Found",
    "This URL does not exist.",
    "Check the path. Administration and `/v1/` are on the ops listener.",
)
METHOD_NOT_ALLOWED = Kind(
    "method_not_allowed",
    405,
    "Method Not Allowed",
    "The endpoint does not support this method. `Allow` lists the methods that it supports.",
    "Use a method that `Allow` lists.",
)
TOO_LARGE = Kind(
    "body_too_large",
    413,
    "Request Entity Too Large",
    "The body is larger than 256 KB, or 64 KB on the edge listener.",
    "Send less data in one request.",
)
INVALID_REQUEST = Kind(
    "invalid_request",
    422,
    "The request is not allowed",
    "The request is invalid. `errors` lists each problem. Nothing was changed.",
    "Correct everything that `errors` lists, and send the request again.",
)
QUEUE_FULL = Kind(
    "queue_full",
    429,
    "The queue is full",
    "The queue is full.",
    "Retry after the time in `Retry-After`, or raise `max_waiting` or `max_pending`.",
)
TOO_MANY_WRONG_TOKENS = Kind(
    "too_many_wrong_tokens",
    429,
    "Too many wrong tokens",
    "This address sent ten wrong tokens within a minute. For the rest of the minute, its "
    "tokens are not checked. Dashboard sessions are not affected.",
    "Wait as long as `Retry-After` says, and send a valid token.",
)
INTERNAL_ERROR = Kind(
    "internal_error",
    500,
    "An error of the waiting room",
    "Waitroom has a bug, which it has logged.",
    "Find the event `unexpected` in the replica's log, and report it.",
)
STORE_UNAVAILABLE = Kind(
    "store_unavailable",
    503,
    "The store does not answer",
    "Redis is unavailable.",
    "Retry after the time in `Retry-After`. Operators: check Redis and `store`.",
)
DATABASE_UNAVAILABLE = Kind(
    "database_unavailable",
    503,
    "The database does not answer",
    "The SQL database is unavailable.",
    "Retry after the time in `Retry-After`. Operators: check the database.",
)
_TRY_AGAIN = "Retry after the time in `Retry-After`."
_NO_EXPECT = "Omit the `Expect` header."
#: The code, status, meaning and remedy of the kinds that have no fixed title.
_UNTITLED = (
    ("bad_request", 400, "The request cannot be read.", "Send a request that follows the API."),
    ("unauthorized", 401, "Nobody is logged in.", "Log in at `/dashboard`, or send a token."),
    ("forbidden", 403, "The client is not allowed to do this.", "Use credentials that allow it."),
    ("conflict", 409, "The current state forbids this.", "Read the state, then decide again."),
    ("expectation_failed", 417, "The `Expect` header is not `100-continue`.", _NO_EXPECT),
    (
        "too_many_requests",
        429,
        "There were too many requests. `title` says which kind.",
        _TRY_AGAIN,
    ),
    ("unavailable", 503, "The replica cannot answer at the moment. `title` says why.", _TRY_AGAIN),
)
#: Maps an HTTP status to the kind of a problem for which only the status is given.
GENERAL = {
    kind.status: kind
    for kind in (
        *(Kind(code, status, "", *texts) for code, status, *texts in _UNTITLED),
        *(NOT_FOUND, METHOD_NOT_ALLOWED, TOO_LARGE, INVALID_REQUEST),
    )
}


def unknown(noun: str) -> Kind:
    """Return the kind of problem for an unknown name of a "room", "limit" or other object."""
    meaning = f"No {noun} with that name is configured."
    remedy = "Check the name. After you change the settings file, restart the replicas."
    return Kind(f"unknown_{noun}", 404, f"Unknown {noun}", meaning, remedy)
