"""docs/recipes: the nginx lines of each, as they stand, on a full site."""

import re

import pytest

from tests.support.nginx_client import JSON, Visitor
from tests.support.site import ROOT, Site

FOLDER = ROOT / "docs" / "recipes"
#: Those that a real site in tests/sites/ is configured by.
REAL = {"django", "php", "wordpress"}
#: Of each other page: host name, paths that have a room, and paths that have none.
SITES = {
    "staff": ("shop.example", ["/", "/a"], []),
    "machines": ("shop.example", ["/"], ["/health", "/webhooks/pay", "/.well-known/x"]),
    "crawlers": ("shop.example", ["/", "/a"], ["/robots.txt", "/sitemap.xml"]),
    "single-page-application": ("app.example", ["/", "/api/x"], ["/assets/app.js"]),
    "api-on-another-host": ("api.example", ["/", "/v1/x"], []),
    "two-host-names": ("tickets.example", ["/"], []),
    "mobile-app": ("api.example", ["/", "/v1/x"], []),
}  # fmt: skip


def lines_of(name: str) -> str:
    """Return the first nginx lines of a page, with this test's ports and addresses."""
    found, *_ = re.findall(r"```nginx\n(.*?)```", (FOLDER / f"{name}.md").read_text(), re.DOTALL)
    found = re.sub(r"listen 80;", "listen 127.0.0.1:@port@;", found)
    return found.replace("127.0.0.1:9000", "127.0.0.1:@origin@")


def test_each_page_is_tested():
    assert {page.stem for page in FOLDER.glob("*.md")} == REAL | set(SITES)


@pytest.fixture(scope="module", params=SITES)
def recipe(request):
    full = {"total_active_users": 0, "exempt_header": True}
    lines = "set_real_ip_from 127.0.0.1; real_ip_header X-Forwarded-For;\n" + lines_of(
        request.param
    )
    with Site(rooms={"shop": full, "tickets": full}, http=lines, locations="") as site:
        yield request.param, site


def visit(site: Site, host: str, path: str, **headers: str) -> int:
    return Visitor(site.url, {"Host": host}).get(path, headers={"Accept": JSON, **headers}).status


def test_a_recipe_does_what_it_says(recipe):
    """Paths with a room wait, since it is full; the others pass."""
    name, site = recipe
    host, gated, open_paths = SITES[name]
    assert {path: visit(site, host, path) for path in gated} == dict.fromkeys(gated, 503)
    assert {path: visit(site, host, path) for path in open_paths} == dict.fromkeys(open_paths, 200)


@pytest.mark.parametrize("recipe", ["staff", "crawlers"], indirect=True)
def test_whom_a_recipe_lets_pass(recipe):
    """By their address; nobody else, whatever they say of themselves."""
    name, site = recipe
    passes = {"staff": "192.0.2.7", "crawlers": "203.0.113.7"}[name]
    said = {"X-Waitroom-Exempt": "staff", "User-Agent": "Googlebot"}
    assert visit(site, "shop.example", "/", **{"X-Forwarded-For": passes}) == 200
    assert visit(site, "shop.example", "/", **{"X-Forwarded-For": "198.51.100.7"}, **said) == 503


@pytest.mark.parametrize("recipe", ["two-host-names"], indirect=True)
def test_one_name_leads_to_the_other(recipe):
    _, site = recipe
    assert visit(site, "www.shop.example", "/a") == 301
    assert visit(site, "shop.example", "/a") == 503
