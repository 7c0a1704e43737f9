"""Logs without query strings: the tokens of claim links and grants are in them."""

import re

import pytest

from tests.support.nginx_client import Visitor
from tests.support.processes import wait_until
from tests.support.site import ROOT

CONFIGURATIONS = {
    str(path.relative_to(ROOT)): path.read_text()
    for path in [
        *(ROOT / "nginx").rglob("*.conf"),
        ROOT / "deploy/docker/nginx.conf",
        ROOT / "demo/nginx.conf",
        ROOT / "deploy/kubernetes/nginx/nginx.conf",
        *(ROOT / "docs").rglob("*.md"),
    ]
}
#: All that nginx knows of what may be in a query string.
TELLING = re.compile(r"\$(request|request_uri|args|arg_\w+|query_string|http_referer)\b")


SITE = {
    "rooms": {"shop": {"total_active_users": 0}},
    "server": "access_log @folder@/access.log waitroom_access;",
}


def test_no_token_is_logged(site):
    """The format of ours is `combined` but for query strings, of the referrer too."""
    visitor = Visitor(site.url, {"User-Agent": "a browser"})
    visitor.get("/_waitroom/shop/claim?token=secret&next=/x")
    visitor.get("/a%20page?waitroom_grant=secret")
    visitor.post("/?x=1?waitroom_grant=secret", headers={"Referer": "http://shop/x?y=secret"})
    visitor.get("/_waitroom/shop/?next=/shop?waitroom_grant=secret")
    visitor.get("/plain", headers={"Referer": "http://shop/x"})
    log = site.folder / "access.log"
    wait_until(lambda: "/plain" in log.read_text(), "the log")
    lines = log.read_text().splitlines()[-5:]
    told = [re.sub(r"\[[^]]+\]|(?<= )\d+(?= )", "", line.partition(" ")[2]) for line in lines]
    assert told == [
        '- -  "GET /_waitroom/shop/claim HTTP/1.1"   "" "a browser"',
        '- -  "GET /a%20page HTTP/1.1"   "" "a browser"',
        '- -  "POST / HTTP/1.1"   "http://shop/x" "a browser"',
        '- -  "GET /_waitroom/shop/ HTTP/1.1"   "" "a browser"',
        '- -  "GET /plain HTTP/1.1"   "http://shop/x" "a browser"',
    ]


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_no_configuration_of_ours_logs_query_strings(name):
    """Nor does the documentation: every format is without them, and none is nginx's default."""
    text = re.sub(r"^ *#(?! access_log).*", "", CONFIGURATIONS[name], flags=re.MULTILINE)
    for form in re.findall(r"log_format \w+ ([^;]+);", text):
        assert not TELLING.search(form), form
    for place, words in re.findall(r"access_log (\S+?)((?: [^;]+)?);", text):
        assert place == "off" or (words and "combined" not in words), place


@pytest.mark.parametrize("name", [name for name in CONFIGURATIONS if name.endswith("nginx.conf")])
def test_every_whole_configuration_says_how_it_logs(name):
    """What says nothing would log with nginx's own format."""
    assert "access_log" in CONFIGURATIONS[name]


def test_the_example_says_how_it_logs():
    """Its server has a line of its own, so nginx.conf's does not count."""
    lines = CONFIGURATIONS["nginx/example.conf"].splitlines()
    assert any(line.strip().startswith("access_log /") for line in lines)
