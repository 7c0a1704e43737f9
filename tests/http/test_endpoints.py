"""An endpoint's declaration: what its handler's annotations say need not be said again."""

import pytest
from aiohttp import web

from sidecar.http.endpoint import ANYBODY, Endpoints
from sidecar.http.models import Body, Parameters, Reply


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
