"""An endpoint's declaration: what its handler's annotations say need not be said again."""

from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from sidecar.http.endpoint import ANYBODY, Endpoints
from sidecar.http.models import Body, Parameters, Reply
from sidecar.http.problems import problems
from sidecar.kit.errors import UnknownNameError


class Address(Parameters):
    name: str


class Order(Body):
    count: int


class Receipt(Reply):
    total: int


async def buy(request: web.Request, at: Address, order: Order) -> Receipt:
    """Buy some."""


async def download(request: web.Request) -> web.Response:
    """Bytes."""


def declared(handler, **more):
    endpoints = Endpoints("shop")
    endpoints.post("/{name}", ANYBODY, **more)(handler)
    (endpoint,) = endpoints
    return endpoint


def test_models_are_those_of_the_annotations():
    """Of the path and the query, of the body, and of a reply that is what is returned."""
    endpoint = declared(buy, replies={200: "Sold.", 202: (Address, "Later.")})
    assert (endpoint.parameters, endpoint.body) == (Address, Order)
    assert endpoint.replies == {200: (Receipt, "Sold."), 202: (Address, "Later.")}


def test_what_is_declared_goes_before():
    """A handler may read more, or less, than it says."""
    assert declared(buy, body=None).body is None


@pytest.mark.parametrize("handler", [buy, download])
def test_a_handler_that_reads_and_writes_by_itself_says_all(handler):
    """Its annotations are its own matter."""
    endpoint = declared(handler, bypasses_models=True, replies={200: (Receipt, "Sold.")})
    assert (endpoint.parameters, endpoint.body) == (None, None)


class Note(Body):
    text: str
    more: Any = None


async def keep(request: web.Request, at: Address, note: Note) -> Receipt:
    """Keep a note."""
    return Receipt(total=len(note.text))


def find_shop(request):
    if request.match_info["name"] != "known":
        raise UnknownNameError("shop", request.match_info["name"])


async def post(raw: bytes, name: str = "known", **headers: str) -> tuple[int, dict[str, Any]]:
    """Send a body to an endpoint that takes any JSON. Return the status and the document."""
    app = web.Application(middlewares=[problems])
    app.add_routes([declared(keep, find=find_shop, replies={200: "Kept."}).route()])
    async with TestClient(TestServer(app)) as client:
        answer = await client.post(f"/{name}", data=raw, headers=headers)
        return answer.status, await answer.json(content_type=None)


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"", "Expecting value: line 1 column 1 (char 0)"),
        (b'{"text": "a",}', "line 1 column 1"),
        (b'{"text": nan}', "Expecting value: line 1 column 10"),
        (b"\xff\xfe", "utf-8"),
        (b"[" * 99_999, "nested too deeply"),
    ],
)
async def test_a_body_that_is_no_json_cannot_be_read(raw, why):
    """The status is 400, and the detail says where the JSON ends."""
    status, document = await post(raw)
    assert (status, document["code"]) == (400, "unreadable_body")
    assert document["detail"].startswith("It is not JSON: ")
    assert why in document["detail"]


async def test_an_unknown_name_goes_before_a_body_that_is_no_json():
    """As it does before every other mistake in a body."""
    assert (await post(b"{", name="other"))[0] == 404
    assert (await post(b"{"))[0] == 400
    assert (await post(b"{}", **{"Content-Type": "text/plain; charset=nonsense"}))[0] == 400


@pytest.mark.parametrize("number", ["1e999", "-1e999", "NaN", "Infinity", "-Infinity"])
async def test_numbers_that_json_cannot_hold(number):
    """They are not allowed anywhere in a body, as they could not be sent on as JSON."""
    for value in (number, f"[{number}]", f'{{"deep": [1, {number}]}}'):
        status, document = await post(f'{{"text": "a", "more": {value}}}'.encode())
        assert (status, document["code"]) == (422, "invalid_request")
        assert document["errors"] == [f"the body has the number {number}, which JSON cannot hold"]


async def test_numbers_that_json_can_hold():
    """The largest and the smallest float, and text that only looks like a number."""
    for value in (
        "1.7976931348623157e308",
        "5e-324",
        "1e-999",
        "-0.0",
        '"NaN"',
        "12345678901234567890",
    ):
        assert await post(f'{{"text": "a", "more": {value}}}'.encode()) == (200, {"total": 1})
