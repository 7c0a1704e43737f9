"""Finds the name under which an operator's change is logged."""

from aiohttp import web

from sidecar.http.auth.operators import clean_name
from sidecar.http.auth.session import OPERATORS, find_session_operator


def find_logged_name(request: web.Request) -> str:
    """Return the name of the session's operator, else the one in X-Waitroom-Operator, else "api".
    A client with the admin token may send any name. If an account has that name, add a suffix."""
    if operator := find_session_operator(request):
        return operator.name
    name = clean_name(request.headers.get("X-Waitroom-Operator", "")) or "api"
    return f"{name} (admin_token)" if request.app[OPERATORS].accounts.is_taken(name) else name
