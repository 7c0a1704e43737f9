"""What a problem document says of what was changed and what is kept: only what is so."""

import json

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from sidecar.http.problems import problems
from sidecar.kit.errors import DatabaseError, InputError, StoreError

NOTHING, AGAIN = "Nothing was changed.", "Try again in a moment."
KEPT, JOBS = "Places are kept.", "Jobs that were taken are kept."


@pytest.mark.parametrize(
    ("error", "request_", "detail"),
    [
        (InputError(["limit: too much"]), "GET /admin/rooms/shop/waiting", None),
        (InputError(["limit: too much"]), "GET /v1/jobs", None),
        (InputError(["cap: too much"]), "PATCH /admin/rooms/shop", NOTHING),
        (StoreError("gone"), "GET /admin/rooms", f"{KEPT} {AGAIN}"),
        (StoreError("gone"), "POST /_waitroom/shop/leave", f"{KEPT} {AGAIN}"),
        (StoreError("gone"), "POST /v1/jobs", f"The job was not taken. {AGAIN}"),
        (StoreError("gone"), "GET /v1/jobs", f"{JOBS} {AGAIN}"),
        (StoreError("gone"), "PATCH /v1/targets/images", f"{JOBS} {AGAIN}"),
        (StoreError("gone"), "POST /v1/limits/pay/acquire", AGAIN),
        (StoreError("gone"), "GET /v1/leases/seat", AGAIN),
        (DatabaseError("gone"), "GET /v1/jobs", f"{JOBS} {AGAIN}"),
        (DatabaseError("gone"), "POST /v1/jobs", f"{NOTHING} {JOBS} {AGAIN}"),
    ],
)
async def test_a_problem_says_what_is_so(error, request_, detail):
    """A question changes nothing anyway, and a job, a call or a lease has no place that is kept."""

    async def handler(_request: web.Request) -> web.Response:
        raise error

    reply = await problems(make_mocked_request(*request_.split()), handler)
    assert json.loads(reply.body).get("detail") == detail
