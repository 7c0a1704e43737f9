"""The pages about proxies that cannot be run here: what they show can at least be read."""

import re

import pytest
import yaml

from tests.proxies.site import EXAMPLES
from tests.support.site import ROOT

BLOCK = re.compile(r"^( *)```yaml\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
#: The visitor's headers that /gate and /check look at, and nobody else's.
ASKED_ABOUT = {
    "cookie", "accept", "accept-language", "user-agent", "purpose", "sec-purpose", "x-moz",
    "sec-fetch-dest", "sec-fetch-mode", "sec-fetch-site", "access-control-request-method",
    "origin", "referer",
}  # fmt: skip


def documents(page: str) -> list:
    """Return the documents in the YAML blocks of a page."""
    text = (ROOT / "docs" / page).read_text()
    return [each for _, block in BLOCK.findall(text) for each in yaml.safe_load_all(block)]


@pytest.mark.parametrize(("page", "count"),
                         [("traefik.md", 3), ("envoy.md", 1), ("ingress-nginx.md", 3)])  # fmt: skip
def test_the_examples_are_yaml(page, count):
    """Every block parses, and there are as many documents as the page shows."""
    found = documents(page)
    assert len(found) == count
    assert all(isinstance(each, dict) for each in found)


def test_traefik_names_what_it_uses():
    """Each router's service and middlewares exist, and the sidecar hears what it looks at."""
    for http in (each["http"] for each in documents("traefik.md") if "http" in each):
        for router in http["routers"].values():
            assert router["service"] in http["services"]
            assert set(router.get("middlewares", [])) <= set(http["middlewares"])
    auth = documents("traefik.md")[0]["http"]["middlewares"]["waitroom-shop"]["forwardAuth"]
    assert {name.lower() for name in auth["authRequestHeaders"]} == {*ASKED_ABOUT, "x-real-ip"}


def test_envoy_names_what_it_uses():
    """Each route's cluster exists, and the sidecar hears what it looks at."""
    static = documents("envoy.md")[0]["static_resources"]
    manager = static["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]
    routes = manager["route_config"]["virtual_hosts"][0]["routes"]
    clusters = {cluster["name"] for cluster in static["clusters"]}
    assert {route["route"]["cluster"] for route in routes} == clusters
    filter_ = manager["http_filters"][0]["typed_config"]
    patterns = filter_["allowed_headers"]["patterns"]
    assert all(any(name == pattern.get("exact") or name.startswith(pattern.get("prefix", "\0"))
                   for pattern in patterns) for name in ASKED_ABOUT)  # fmt: skip


def test_haproxy_passes_on_what_is_looked_at():
    """The Lua script's list, with the cookie beside it, is the sidecar's."""
    text = (EXAMPLES / "haproxy" / "waitroom.lua").read_text()
    block = re.search(r"PASSED_ON = \{(.*?)\}", text, re.DOTALL)[1]
    assert {*re.findall(r'"([\w-]+)"', block), "cookie"} == ASKED_ABOUT


def test_the_sidecar_looks_at_these_headers():
    """The list equals that of proxy.conf and visitor.conf, but for the language."""
    includes = ROOT / "nginx" / "waitroom"
    text = "".join((includes / f"{name}.conf").read_text() for name in ("proxy", "visitor"))
    named = {name.lower() for name in re.findall(r"proxy_set_header ([\w-]+) \$", text)}
    own = {"x-real-ip", "x-forwarded-proto"}
    assert named - own == ASKED_ABOUT - {"access-control-request-method", "accept-language"}
