"""Who may do what on the ops listener: docs/access.md has the table, and it is true of every
route and of every kind of token."""

import re
from pathlib import Path
from typing import Any, cast

import pytest
from aiohttp import web

from sidecar.app.access import NO_JOBS, RIGHTS, authorise, list_tokens
from sidecar.app.access import TOKENS as TOKENS_KEY
from sidecar.app.routes import Services, create_ops_app
from sidecar.dashboard.live import LIVE
from sidecar.http.app_keys import SETTINGS
from sidecar.http.auth.accounts import Account, Accounts
from sidecar.http.auth.operators import COOKIE, Operators
from sidecar.http.auth.rights import DEFAULT_SCOPES, ROLES, SCOPES
from sidecar.http.auth.session import CSRF_HEADER, OPERATORS
from sidecar.http.metrics import Metrics
from sidecar.http.problems import problems
from sidecar.rooms.service import WaitingRooms
from sidecar.settings.model import Settings
from tests.support.replica import ADMIN_TOKEN, KEYS, SERVICE_TOKEN

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "access.md").read_text()
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
NO_TOKEN = "no token"
NAMED = {scope: f"{scope}-token-for-tests" for scope in sorted(SCOPES)}
TOKENS = {**NAMED, "all": "all-token-for-tests", "service": SERVICE_TOKEN}
#: One of each role, named like it. Their passwords are not asked for here.
ACCOUNTS = Accounts({role: Account(role, "x") for role in ROLES})
SETTINGS_OF_TEST = Settings(
    secret_keys=KEYS,
    admin_token=ADMIN_TOKEN,
    service_token=SERVICE_TOKEN,
    tokens={name: token for name, token in TOKENS.items() if name != "service"},
    scopes={scope: [scope] for scope in SCOPES},
    rooms={"shop": {"total_active_users": 1}},
)


def documented() -> dict[tuple[str, str], tuple[set[str], str]]:
    """Who may, by method and path, which may end with … for all below it: scopes, and the least
    role; or NO_TOKEN."""
    found = {}
    for line in PAGE.splitlines():
        if not line.startswith("| `"):
            continue
        calls, programs, role = (cell.strip() for cell in line.strip("|").split("|"))
        scopes = {word for word in SCOPES if f"`{word}`" in programs}
        assert role in {*ROLES, NO_TOKEN}, line
        for call in re.findall(r"`([^`]+)`", calls):
            method, _, path = call.rpartition(" ")
            for each in [method] if method else METHODS:
                assert (each, path) not in found, call
                found[each, path] = (scopes, role)
    return found


def routes() -> set[tuple[str, str]]:
    app = create_ops_app(
        Services(rooms=WaitingRooms([]), metrics=Metrics(), jobs=cast("Any", object())),
        SETTINGS_OF_TEST,
        [],
    )
    return {
        (route.method, resource.canonical)
        for resource in app.router.resources()
        for route in resource
        if route.method != "HEAD"
    }


def who_may(method: str, path: str) -> tuple[set[str], str]:
    table = documented()
    if (method, path) in table:
        return table[method, path]
    (prefix,) = {p for m, p in table if p.endswith("…") and path.startswith(p[:-1])}
    return table[method, prefix]


ROUTES = sorted(routes())


def test_each_route_is_in_the_table():
    """The table names none that is not there, and says what is enforced."""
    for route in ROUTES:
        assert who_may(*route), route
    private = {route for route in ROUTES if route[1].startswith(("/v1/", "/admin/"))}
    assert {route for route in documented() if route[1].startswith(("/v1/", "/admin/"))} == private
    assert RIGHTS.keys() == private
    for route in private:
        assert (RIGHTS[route].scopes, RIGHTS[route].role) == who_may(*route), route


@pytest.fixture
async def client(aiohttp_client):
    """Answers 200 at each of the routes to whoever is let in."""

    async def tell(_: web.Request) -> web.Response:
        return web.Response()

    app = web.Application(middlewares=[problems, authorise])
    app[SETTINGS] = SETTINGS_OF_TEST
    app[TOKENS_KEY] = list_tokens(SETTINGS_OF_TEST)
    app[OPERATORS] = Operators(KEYS, ADMIN_TOKEN, ACCOUNTS)
    app[LIVE] = cast("Any", type("Live", (), {"refresh": lambda _: None})())
    for method, path in ROUTES:
        app.router.add_route(method, path, tell)
    app.router.add_route("*", NO_JOBS, tell)
    app.router.add_route("GET", "/admin/forgotten", tell)
    return await aiohttp_client(app)


async def status(client, method: str, path: str, token: str | None = None, **headers: str) -> int:
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    answer = await client.request(method, re.sub(r"\{[^}]+\}", "x", path), headers=headers)
    if answer.status in {401, 403}:
        document = await answer.json()
        assert document["detail"]
    return answer.status


@pytest.mark.parametrize("route", ROUTES, ids=" ".join)
async def test_each_token_and_role_opens_what_the_table_says(client, route):
    """200 where it does. 401 for tokens that are none here, 403 for tokens and sessions that are
    not for this."""
    scopes, least = who_may(*route)
    if least == NO_TOKEN:
        assert await status(client, *route) == 200
        return
    assert await status(client, *route) == 401
    assert await status(client, *route, "wrong-token-for-tests") == 401
    assert await status(client, *route, ADMIN_TOKEN) == 200
    is_admin = route[1].startswith("/admin/")
    for name, token in TOKENS.items():
        has = {name} if name in SCOPES else set(DEFAULT_SCOPES)
        expected = 200 if has & scopes else 401 if is_admin else 403
        assert await status(client, *route, token) == expected, name
    for role in ROLES:
        expected = 200 if ROLES.index(role) >= ROLES.index(least) else 403
        assert await status(client, *route, **session(client, role)) == expected, role


def session(client, role: str) -> dict[str, str]:
    """Of the operator who is named like the role."""
    operators = client.app[OPERATORS]
    cookie = operators.log_in_by_password(role)
    return {
        "Cookie": f"{COOKIE}={cookie}",
        CSRF_HEADER: operators.csrf_token(operators.read(cookie)),
    }


async def test_an_undeclared_endpoint_is_an_admins(client):
    """So that a forgotten line opens nothing."""
    with_admin, without = session(client, "admin"), session(client, "operator")
    assert await status(client, "GET", "/admin/forgotten", **with_admin) == 200
    assert await status(client, "GET", "/admin/forgotten", **without) == 403


async def test_a_role_that_is_too_low_says_which_is_needed(client):
    headers = session(client, "viewer")
    answer = await client.post("/admin/rooms/shop/pause", headers=headers)
    said = await answer.json()
    assert (answer.status, said["code"]) == (403, "role_too_low")
    assert said["detail"] == "viewer has the role viewer. This needs the role operator."


async def test_a_refusal_says_what_is_needed(client):
    """The scope, or the operator's token; and never a token itself."""
    headers = {"Authorization": f"Bearer {NAMED['read']}"}
    said = await (await client.post("/v1/limits/x/acquire", headers=headers)).json()
    assert said["detail"] == "This needs the scope limits; the token read has read (scopes)."
    said = await (await client.put("/v1/limits/x/values/x", headers=headers)).json()
    assert said["detail"] == "Programs may not change this: send the admin_token."


async def test_where_nothing_is_any_token_hears_so(client):
    for path in ("/v1/nothing", "/v1/jobsx"):
        assert await status(client, "GET", path, NAMED["limits"]) in {200, 404}
        assert await status(client, "GET", path, "wrong-token-for-tests") == 401
