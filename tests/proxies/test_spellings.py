"""A path that two servers may read in two ways is no way past a room that is full."""

from itertools import product

import pytest

from tests.proxies.site import CaddySite, HaproxySite, NginxSite, WithNode, WithPhp
from tests.support.nginx_client import Visitor

#: Without a room, of another room that has space, and of a limit.
ELSEWHERE = ("/health", "/webhooks", "/assets", "/tickets", "/api/search")
UP = (
    "..", "%2e%2e", ".%2E", "%252e%252e", "%25252e%25252e", "%u002e%u002e", "%c0%ae%c0%ae",
    "..;", "..;x=y", "..%3b", "..%253b", "%2e%2e;",
)  # fmt: skip
SLASHES = ("/", "\\", "%2f", "%5c", "%5C", "%252f", "%255c")
#: Before them, where a server that cannot read it stops reading.
STUMBLES = ("/%zz/..", "/%/..", "/;/..", "/.", "/%00/..", "/%23/..", "/%3f/..", "/\\/..")

SPELLINGS = (
    *(
        f"{folder}/{slash.join([up] * folder.count('/'))}{slash}cart"
        for folder, up, slash in product(ELSEWHERE, UP, SLASHES)
    ),
    *(
        f"{folder}{stumble}/..{slash}..{slash}cart"
        for folder, stumble, slash in product(ELSEWHERE, STUMBLES, SLASHES)
    ),
    # For who takes the cart as it is spelt, or takes what is before it for a host.
    *(
        f"/cart{slash}{up}{slash}{folder[1:]}/x"
        for folder, up, slash in product(ELSEWHERE, UP, SLASHES)
    ),
    *(
        f"{start}{folder[1:]}/cart"
        for start, folder in product(("//", "/\\", "///", "//x@", "/%2f"), ELSEWHERE)
    ),
    *(f"{folder};/../cart" for folder in ELSEWHERE),
    *(f"/cart{end}" for end in ("", "/", ";x", "%3b", "/.", "/..;/cart", "?/../x", "#/../x")),
)  # fmt: skip
#: Rooms and limits of all examples.
PARTS = {
    "rooms": {
        "shop": {"total_active_users": 1, "session_duration": 3600},
        "tickets": {"total_active_users": 100_000, "session_duration": 3600},
    },
    "limits": {"search": {"algorithm": "sliding_window", "limit": 100_000, "window": 1}},
}


@pytest.fixture(scope="module", params=[WithNode, WithPhp], ids=["node", "php"])
def origin(request):
    return request.param


@pytest.fixture(
    scope="module", params=[NginxSite, CaddySite, HaproxySite], ids=lambda kind: kind.name
)
def site(request, origin):
    kind = type("Spelt", (origin, request.param), {})
    with kind(**PARTS) as site:
        site.insider = Visitor(site.url)
        for _ in range(2):  # who never shows the cookie has the slot for claim_window
            assert site.insider.get("/cart").text == "the cart"
        yield site


def test_nobody_gets_past_by_a_spelling(site):
    """Also not who is inside of another room."""
    visitor = Visitor(site.url)
    visitor.get("/tickets/x")
    for form, spellings in {"": SPELLINGS, site.url: SPELLINGS[::7]}.items():
        past = [each for each in spellings if b"the cart" in visitor.get(form + each).body]
        assert past == []
    assert site.room()["active"] == 1


def test_the_spellings_are_of_the_cart_and_plain_paths_are_open(site):
    """The site itself reads enough of the spellings as the cart, or nobody could get past."""
    if isinstance(site, NginxSite):  # once for each origin
        direct = Visitor(f"http://127.0.0.1:{site.origin_port}")
        cart = [each for each in SPELLINGS if b"the cart" in direct.get(each).body]
        assert len(cart) >= len(SPELLINGS) // 20
    visitor = Visitor(site.url)
    for path in ("/webhooks/stripe_2", "/webhooks/a.b/c-d", "/health?probe=..%2f"):
        assert visitor.get(path).body == b"another page", path
