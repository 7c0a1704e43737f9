"""Endpoints that list the configured operators and end their sessions, and the task that tells
other replicas which sessions have ended."""

import asyncio
from collections.abc import Awaitable, Callable

import structlog
from aiohttp import web

from sidecar.http.auth.rights import Role
from sidecar.http.auth.session import OPERATORS, find_logged_name
from sidecar.http.endpoint import ADMINS, Endpoints
from sidecar.http.models import Parameters, Reply
from sidecar.http.problem_kinds import unknown
from sidecar.http.problems import ProblemError
from sidecar.kit.errors import StoreError
from sidecar.visitors.verdict_lifetime import REFRESH_MS

UNKNOWN_OPERATOR = unknown("operator")
ENDPOINTS = Endpoints("administration")

log = structlog.get_logger()


class NamedOperator(Reply):
    name: str
    """The name with which the operator logs in."""
    role: Role
    """The operator's role."""
    has_password: bool
    """Whether the operator can log in with a password."""
    by_proxy: bool
    """Whether a proxy can sign the operator in."""


class NamedOperators(Reply):
    operators: list[NamedOperator]
    """The operators, sorted by name."""


class OperatorPath(Parameters):
    name: str
    """The operator's name in the settings."""


class EndedOperator(Reply):
    name: str
    """The operator whose sessions ended."""


@ENDPOINTS.get("/admin/operators", ADMINS, replies={200: "The operators."})
async def list_operators(request: web.Request) -> NamedOperators:
    """List the operators in the settings."""
    accounts = request.app[OPERATORS].accounts
    by_proxy = bool(accounts.proxy.header)
    operators = [
        NamedOperator(
            name=name, role=account.role, has_password=bool(account.password), by_proxy=by_proxy
        )
        for name, account in sorted(accounts.named.items())
    ]
    return NamedOperators(operators=operators)


@ENDPOINTS.delete(
    "/admin/operators/{name}/sessions",
    ADMINS,
    replies={200: "The sessions end on all replicas within a second."},
    problems=(UNKNOWN_OPERATOR,),
)
async def end_sessions(request: web.Request, path: OperatorPath) -> EndedOperator:
    """End all sessions of an operator, in every browser.

    The operator can log in again. To lock an operator out, remove the operator from the settings.
    Sessions of the `admin_token`, and of a proxy, do not end. Idempotent.
    """
    operators = request.app[OPERATORS]
    if path.name not in operators.accounts.named:
        raise ProblemError(UNKNOWN_OPERATOR, detail=f"No operator is named {path.name[:64]!r}.")
    operators.log_out_everywhere(path.name)
    log.info("sessions_ended", operator=path.name, by=find_logged_name(request))
    await operators.share()
    return EndedOperator(name=path.name)


async def share_forever(share: Callable[[], Awaitable[None]]) -> None:
    """Share ended sessions between replicas every second, until cancelled."""
    while True:
        await share_once(share)
        await asyncio.sleep(REFRESH_MS / 1000)


async def share_once(share: Callable[[], Awaitable[None]]) -> None:
    try:
        await share()
    except StoreError as error:
        log.debug("sessions_not_shared", error=str(error))
