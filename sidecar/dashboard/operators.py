"""Endpoints that list the operators of the settings and end their sessions, and the sharing of
ended sessions between replicas."""

import asyncio
from collections.abc import Awaitable, Callable

import structlog
from aiohttp import web

from sidecar.http.auth.logged_name import find_logged_name
from sidecar.http.auth.rights import Role
from sidecar.http.auth.session import OPERATORS
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
    """As they log in."""
    role: Role
    """What they may do."""
    has_password: bool
    """Whether they can log in with a password."""
    by_proxy: bool
    """Whether a proxy can sign them in."""


class NamedOperators(Reply):
    operators: list[NamedOperator]
    """By name."""


class OperatorAddress(Parameters):
    name: str
    """As in the settings."""


class EndedOperator(Reply):
    name: str
    """Whose sessions ended."""


@ENDPOINTS.get("/admin/operators", ADMINS, replies={200: "The operators."})
async def list_operators(request: web.Request) -> NamedOperators:
    """List the operators that the settings name."""
    accounts = request.app[OPERATORS].accounts
    named = [
        NamedOperator(
            name=name,
            role=account.role,
            has_password=bool(account.password),
            by_proxy=bool(accounts.proxy.header),
        )
        for name, account in sorted(accounts.named.items())
    ]
    return NamedOperators(operators=named)


@ENDPOINTS.delete(
    "/admin/operators/{name}/sessions",
    ADMINS,
    replies={200: "They ended, on all replicas within a second."},
    problems=(UNKNOWN_OPERATOR,),
)
async def end_sessions(request: web.Request, at: OperatorAddress) -> EndedOperator:
    """End all sessions of an operator, in every browser.

    They can log in again: to lock somebody out, take them from the settings. Sessions of the
    `admin_token`, and of a proxy, do not end by this. Idempotent.
    """
    operators = request.app[OPERATORS]
    if at.name not in operators.accounts.named:
        raise ProblemError(UNKNOWN_OPERATOR, detail=f"No operator is named {at.name[:64]!r}.")
    operators.log_out_everywhere(at.name)
    log.info("sessions_ended", operator=at.name, by=find_logged_name(request))
    await operators.share()
    return EndedOperator(name=at.name)


async def share_forever(share: Callable[[], Awaitable[None]]) -> None:
    """Share ended sessions every second, until cancelled."""
    while True:
        await share_once(share)
        await asyncio.sleep(REFRESH_MS / 1000)


async def share_once(share: Callable[[], Awaitable[None]]) -> None:
    try:
        await share()
    except StoreError as error:
        log.debug("sessions_not_shared", error=str(error))
