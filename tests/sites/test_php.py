"""Sites in PHP, configured as in docs/recipes/php.md, by the README, and by `waitroom init`."""

import json
from pathlib import Path

import pytest

from sidecar.cli.doctor.checks import diagnose
from sidecar.cli.doctor.findings import Level
from sidecar.cli.doctor.visit import Options
from sidecar.cli.setup.site_file import find_missing_lines
from tests.sites.php import AsGuidesHaveIt, FrontController
from tests.support.nginx_client import Visitor
from tests.support.processes import free_port, wait_until
from tests.support.site import ROOT, replace_each

FULL = {"shop": {"total_active_users": 1}}
#: Addresses that the front controller answers.
PAGES = ("/", "/cart", "/cart?a=b", "/index.php", "/index.php?page=cart", "/index.php/cart")


def fill(site) -> Visitor:
    inside = Visitor(site.url)
    inside.hold("/")
    return inside


def by_readme(guide: str) -> str:
    """Add the three lines of the README where it says."""
    guide = guide.replace("server {\n", "server {\n    include waitroom/server.conf;\n", 1)
    return guide.replace(
        "location / {\n",
        "location / {\n set $waitroom_room shop;\n include waitroom/location.conf;\n",
    )


def by_init(tmp_path):
    """Return a function that adds the lines that `init --site-file` prints."""

    def edit(guide: str) -> str:
        (tmp_path / "site").write_text(guide)
        lines = guide.splitlines()
        for step in reversed(find_missing_lines(tmp_path / "site", "shop")):
            assert lines[step.line - 1].strip().startswith(step.block.partition(" (")[0])
            lines[step.line : step.line] = step.lines
        return "\n".join(lines) + "\n"

    return edit


async def problems_of(site) -> list[str]:
    nowhere = Options(ops_port=free_port(), edge_port=free_port(), includes=Path("/nowhere"))
    findings = await diagnose(f"{site.url}/", nowhere)
    return [f"{found.what} -> {found.fix}" for found in findings if found.level is Level.PROBLEM]


async def test_the_recipe():
    """Every address of the front controller is behind the room, and works for a visitor inside."""
    with FrontController(rooms=FULL) as site:
        inside = fill(site)
        for path in PAGES:
            assert Visitor(site.url).get(path).waits, path
            assert f"made by PHP: {path}" in inside.get(path).text
        assert inside.get("/index.php/cart").text.endswith(" /cart")
        assert inside.get("/nothing.php").status == 404
        assert Visitor(site.url).get("/site.css").text.startswith("body")
        assert await problems_of(site) == []


class Reporting(FrontController):
    """Its nginx reports how PHP-FPM responds, and what it asks for by headers."""

    def changes(self) -> dict[str, str]:
        lines = "include waitroom/server.conf;\n"
        for file in ("health.conf", "site-headers.conf"):
            text = (ROOT / "nginx" / "waitroom" / file).read_text()
            lines += text.replace("127.0.0.1:8403", self.address)
        every = {"$waitroom_measured;": "$waitroom_measured;\n set $waitroom_sampled 100;"}
        lines = replace_each(lines, every)
        return {**super().changes(), "include waitroom/server.conf;": lines}


def test_the_responses_of_php_are_reported():
    """By `fastcgi_pass`: how long they took, and their headers, which visitors do not see."""
    Reporting.address = address = f"127.0.0.1:{free_port()}"
    adaptive = json.dumps({"mode": "advise", "p90": 1})
    rooms = {"shop": {**FULL["shop"], "adaptive": adaptive, "release_by_header": True}}
    with Reporting(rooms=rooms, settings={"health_listen": address}) as site:
        inside, next_one = fill(site), Visitor(site.url)
        assert next_one.get("/").waits
        reply = inside.get("/cart?say=X-Waitroom-Release:1")
        assert (reply.status, reply.headers.get("X-Waitroom-Release")) == (200, None)
        wait_until(lambda: not next_one.get("/").waits, "the slot", timeout_s=30)
        metrics = Visitor(site.ops[0]).get("/metrics").text
        counted = 'waitroom_site_reports_total{result="counted",room="shop"}'
        assert float(metrics.partition(counted)[2].split()[0]) >= 2


async def test_with_the_three_lines_of_the_readme_the_doctor_names_the_fourth():
    with AsGuidesHaveIt(by_readme, rooms=FULL) as site:
        fill(site)
        assert "made by PHP" in Visitor(site.url).get("/index.php?page=cart").text
        (problem,) = await problems_of(site)
        assert "/index.php bypasses the room" in problem
        assert "set $waitroom_room shop;" in problem


@pytest.mark.parametrize("path", PAGES)
async def test_with_the_lines_of_init_all_is_right(guided, path):
    inside, site = guided
    if path != "/index.php/cart":  # which this guide's location does not know
        assert f"made by PHP: {path}" in inside.get(path).text
    assert Visitor(site.url).get(path).waits
    assert await problems_of(site) == []


@pytest.fixture(scope="module")
def guided(tmp_path_factory):
    with AsGuidesHaveIt(by_init(tmp_path_factory.mktemp("guide")), rooms=FULL) as site:
        yield fill(site), site
