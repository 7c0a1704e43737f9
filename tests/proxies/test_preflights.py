"""OPTIONS before a site in PHP, which answers it with its page as it answers GET."""

import pytest

from tests.proxies.site import CaddySite, HaproxySite, NginxSite, WithPhp
from tests.support.nginx_client import Visitor

ORIGIN = {"Origin": "https://app.shop.example"}
METHOD = {"Access-Control-Request-Method": "GET"}
PARTS = {
    "rooms": {"shop": {"total_active_users": 0}, "tickets": {"total_active_users": 0}},
    "limits": {"search": {"algorithm": "sliding_window", "limit": 10, "window": 1}},
}


@pytest.fixture(
    scope="module", params=[NginxSite, CaddySite, HaproxySite], ids=lambda kind: kind.name
)
def site(request):
    with type("WithPages", (WithPhp, request.param), {})(**PARTS) as site:
        yield site


@pytest.mark.parametrize(
    ("headers", "options"),
    [
        (ORIGIN, {}),
        (METHOD, {}),
        ({**ORIGIN, **METHOD, "Cookie": "session=1"}, {}),
        ({**ORIGIN, **METHOD}, {"body": b"a=1"}),
        ({**ORIGIN, **METHOD}, {"body": b"a=1", "chunked": True}),
    ],
    ids=["no method", "no origin", "cookie", "body", "chunks"],
)
def test_what_is_no_preflight_gets_no_page(site, headers, options):
    reply = Visitor(site.url, headers).send("OPTIONS", "/cart", **options)
    assert b"the cart" not in reply.body
    assert reply.status == 503


@pytest.mark.parametrize("site", [NginxSite], ids=["nginx"], indirect=True)
def test_nginx_can_answer_a_preflight(site):
    """By the example's server for an API that pages on another host call."""
    api = {**ORIGIN, "Host": "api.shop.example"}
    reply = Visitor(site.url, {**api, **METHOD}).send("OPTIONS", "/api/cart")
    assert (reply.status, reply.body) == (204, b"")
    assert reply.all("Access-Control-Allow-Origin") == [ORIGIN["Origin"]]
    assert Visitor(site.url, api).send("OPTIONS", "/api/cart").status == 503
