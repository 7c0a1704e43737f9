"""Paths that two servers may read in two ways: which of them reach the site, and by which location.

tests/proxies/test_spellings.py has all spellings, before sites that read them so.
"""

import pytest

from tests.support.nginx_client import Visitor
from tests.support.site import Site, gated

OPEN = "location {} {{ include waitroom/strict-path.conf; proxy_pass http://origin; }}\n"
LOCATIONS = (
    gated("/")
    + OPEN.format("/open/")
    + OPEN.format("= /health")
    + "error_page 404 = @anybody; include waitroom/errors.conf;"
    + "location @anybody { proxy_pass http://origin; }"
)

#: No browser sends these, and no location accepts them.
CROOKED = (
    "/page/..\\open/x", "/page\\..\\x", "/page%5cx", "/page%255cx", "/../page", "/x/..;/page",
    "/x/%2e%2e/page", "/x/..%2fpage", "/x/%252e%252e%252fpage", "/page/..", "/page/..;x=y",
)  # fmt: skip
#: A location with the site's one room takes them: it is the room of all that they may mean.
UNCERTAIN = (
    "/{}page;jsessionid=1", "/{}map;zoom=3/x", "/{}50%25-off", "/{}group%2fname", "/{}a..b",
    "/{}v1%2e2", "//{}page",
)  # fmt: skip
PLAIN = (
    "/{}page?next=/../x;y=%2f",
    "/{}%C3%A9t%C3%A9/a%20b",
    "/{}a/.b/c.d.e",
    "/{}a//b",
    "/{}a,b=(c)",
)


@pytest.fixture(scope="module")
def site():
    with Site(locations=LOCATIONS, rooms={"shop": {"total_active_users": 10}}) as site:
        site.insider = Visitor(site.url)
        assert site.insider.get("/").status == 200
        yield site


@pytest.mark.parametrize("path", CROOKED)
def test_a_crooked_path_is_refused_everywhere(site, path):
    assert site.insider.get(path).status == 400
    assert Visitor(site.url).get("/open" + path).status == 400


@pytest.mark.parametrize("path", UNCERTAIN)
def test_an_uncertain_path_needs_the_room(site, path):
    """By the room's location it reaches the site as it is spelt."""
    assert site.insider.get(path.format("")).json()["path"].endswith(path.format("")[1:])
    assert Visitor(site.url).get(path.format("open/")).status == 400


@pytest.mark.parametrize("path", PLAIN)
def test_a_plain_path_is_taken(site, path):
    assert site.insider.get(path.format("")).status == 200
    assert Visitor(site.url).get(path.format("open/")).status == 200


def test_a_host_in_the_path_is_no_page_without_a_room(site):
    assert Visitor(site.url).get("//health").status == 400
    assert Visitor(site.url).get("/health").status == 200
