"""Access to /v1/ with named tokens and with a session of the dashboard, and as which owner."""

from typing import Any, cast

import pytest
from aiohttp import web

from sidecar.app.access import RIGHTS, TOKENS, authorise, list_tokens
from sidecar.http.app_keys import SETTINGS
from sidecar.http.auth.operators import COOKIE, Operators
from sidecar.http.auth.owner import owner_of
from sidecar.http.auth.session import CSRF_HEADER, OPERATORS
from sidecar.http.auth.throttle import MAX_FAILURES
from sidecar.http.problems import problems
from sidecar.limits.settings import LimitSettings
from sidecar.settings.model import Settings

KEYS = ["k" * 32]
ADMIN, SERVICE, SHOP, PRESS = (
    f"{name}-token-for-tests" for name in ("admin", "service", "shop", "préss")
)
ALL: dict[str, Any] = {
    "admin_token": ADMIN, "service_token": SERVICE, "tokens": {"shop": SHOP, "press": PRESS},
}  # fmt: skip
#: Settings need a room or limit. No test uses this limit.
LIMIT = cast("LimitSettings", {"algorithm": "concurrency", "limit": 1})
DASHBOARD = ("/v1/jobs", "/v1/jobs/abc", "/v1/targets", "/v1/targets/images/history",
             "/v1/leases/seat/1", "/v1/limits")  # fmt: skip


@pytest.fixture
def door(aiohttp_client):
    """Return a function that starts a listener, which responds at any path with the owner."""

    async def tell(request: web.Request) -> web.Response:
        owner = owner_of(request)
        return web.json_response([owner.name, owner.is_operator])

    async def make(*middlewares: Any, **settings: Any):
        app = web.Application(middlewares=[problems, *(middlewares or [authorise])])
        app[SETTINGS] = Settings(secret_keys=KEYS, limits={"x": LIMIT}, **settings)
        app[TOKENS] = list_tokens(app[SETTINGS])
        app[OPERATORS] = Operators(KEYS, app[SETTINGS].admin_token)
        for path in sorted({path for _, path in RIGHTS}):
            app.router.add_route("*", path, tell)
        app.router.add_route("*", "/{any:.*}", tell)
        return await aiohttp_client(app)

    return make


async def asked(client, path: str, token: str | None = None, how="Bearer", **headers: str) -> Any:
    """Return the name of a request's owner and whether it is an operator, or a refusal's status."""
    if token is not None:
        headers["Authorization"] = f"{how} {token}"
    answer = await client.get(path, headers=headers)
    if answer.status == 401:
        assert answer.content_type == "application/problem+json"
    return await answer.json() if answer.status == 200 else answer.status


def session(name: str = "Night shift", token: str = ADMIN) -> dict[str, str]:
    """Return the headers that the dashboard sends: the session's cookie and its CSRF token."""
    operators = Operators(KEYS, token)
    cookie = operators.log_in(name)
    operator = operators.read(cookie)
    assert operator is not None
    return {"Cookie": f"{COOKIE}={cookie}", CSRF_HEADER: operators.csrf_token(operator)}


async def test_each_token_has_a_name(door):
    """Its jobs are stored under this name. The operator is not limited to jobs of their own."""
    client = await door(**ALL)
    for path in DASHBOARD:
        assert await asked(client, path, SERVICE) == ["service", False]
        assert await asked(client, path, SHOP, "bearer") == ["shop", False]
        assert await asked(client, path, PRESS) == ["press", False]
        assert await asked(client, path, ADMIN) == ["operator", True]


async def test_a_token_must_match_exactly(door):
    """A part of a token, a longer text, or another authentication scheme is refused."""
    client = await door(**ALL)
    for path in ("/v1/limits", "/v1/jobs", "/%76%31/jobs"):
        assert await asked(client, path) == 401
        for token in ("", "wrong", SHOP[:-1], SHOP + "x", SHOP.upper(), f"{SHOP} {SHOP}", "\xff"):
            assert await asked(client, path, token) == 401
        assert await asked(client, path, SHOP, "Basic") == 401


async def test_a_named_token_is_enough(door):
    """No other token needs to be set. It gives no access to /admin/."""
    client = await door(tokens={"shop": SHOP})
    assert await asked(client, "/v1/jobs", SHOP) == ["shop", False]
    assert await asked(client, "/v1/jobs", "") == 401
    assert await asked(client, "/admin/rooms", SHOP) == 403
    assert await asked(await door(**ALL), "/admin/rooms", SHOP) == 401
    assert await asked(await door(), "/v1/jobs", SHOP) == 403


async def test_one_token_for_both_is_the_operators(door):
    """Whoever has this token has the same rights at /admin/ anyway."""
    client = await door(admin_token=ADMIN, service_token=ADMIN)
    assert await asked(client, "/v1/jobs", ADMIN) == ["operator", True]


async def test_a_session_of_the_dashboard_reads_as_the_operator(door):
    """A token in the request takes precedence over the session."""
    client = await door(**ALL)
    cookie = {"Cookie": session()["Cookie"]}
    for path in DASHBOARD:
        assert await asked(client, path, **cookie) == ["operator", True]
    # A session does not make a wrong token valid.
    assert await asked(client, "/v1/jobs", "wrong", **cookie) == 401
    assert await asked(client, "/v1/jobs", SHOP, **cookie) == ["shop", False]


async def test_a_session_of_an_earlier_admin_token_is_invalid(door):
    """So is a session at a replica that has no admin token."""
    client = await door(**ALL)
    before = session(token="admin-token-of-before")
    assert await asked(client, "/v1/jobs", **before) == 401
    client = await door(service_token=SERVICE)
    cookie = f"{COOKIE}={Operators(KEYS, '').log_in('Night shift')}"
    assert await asked(client, "/v1/jobs", Cookie=cookie) == 401


@pytest.mark.parametrize("method", ["POST", "PATCH", "DELETE"])
async def test_a_session_changes_what_the_dashboard_sends(door, method):
    """The cookie alone, or with the CSRF token of another session, changes nothing. A request from
    another site is refused even if it only reads."""
    client = await door(**ALL)
    whole = session()
    for path in DASHBOARD:
        assert (await client.request(method, path, headers=whole)).status == 200
        alone = {"Cookie": whole["Cookie"]}
        others = {**alone, CSRF_HEADER: session("Eve")[CSRF_HEADER]}
        for headers in (alone, others, {**whole, "Origin": "https://evil.example"},
                        {**whole, "Sec-Fetch-Site": "cross-site"}):  # fmt: skip
            assert (await client.request(method, path, headers=headers)).status == 403
    assert await asked(client, "/v1/jobs", **alone, **{"Sec-Fetch-Site": "cross-site"}) == 403


async def test_a_request_that_was_not_authorised_has_no_owner(door):
    """If a listener should lack the middleware, its handlers respond with 401."""

    @web.middleware
    async def anybody(request: web.Request, handler: Any) -> Any:
        return await handler(request)

    client = await door(anybody, **ALL)
    for path in ("/v1/jobs", "/", "/v1/limits"):
        assert await asked(client, path) == 401
    assert await asked(client, "/v1/jobs", "wrong") == 401


async def test_guesses_at_programs_endpoints(door):
    """After ten wrong tokens the admin token is not accepted, or it could be guessed here. Tokens
    of programs still are: a program with an old token blocks no other, and no operator."""
    client = await door(**ALL)
    for _ in range(MAX_FAILURES):
        assert await asked(client, "/v1/jobs", "wrong") == 401
    answer = await client.get("/v1/jobs", headers={"Authorization": f"Bearer {ADMIN}"})
    assert (answer.status, "not looked at" in (await answer.json())["detail"]) == (401, True)
    assert await asked(client, "/v1/jobs", SHOP) == ["shop", False]
    assert await asked(client, "/v1/limits", SERVICE) == ["service", False]
    assert await asked(client, "/v1/jobs", Cookie=session()["Cookie"]) == ["operator", True]
    assert client.app[OPERATORS].guesses.refused_s("127.0.0.1") == 0
