"""System calls of nginx for the request of a visitor inside, as strace counts them."""

import http.client
import re
import shutil
import signal
import statistics
import subprocess
from pathlib import Path

import pytest

from tests.support.nginx_client import Visitor
from tests.support.processes import wait_until
from tests.support.site import Site, gated
from tests.support.tokens import stamp

REQUESTS = 50
#: More than nginx needs for a request that nobody gates: with a stamp none, with a kept verdict
#: that which reads its file.
#: And for a page that brings a new stamp: the question, and nothing on any disk.
STAMPED, KEPT, PAGE = 0, 1, 4
#: Of a page that is open still, on a connection that is kept.
PICTURE = {"Accept": "image/*", "Sec-Fetch-Mode": "no-cors"}
NAVIGATION = {"Accept": "text/html", "Sec-Fetch-Mode": "navigate"}

pytestmark = pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")


@pytest.fixture(scope="module")
def site(stamps):
    lines = ("proxy_http_version 1.1;", 'proxy_set_header Connection "";')
    plain = f"location /plain {{ {' '.join(lines)} proxy_pass http://origin; }}"
    rooms = {"shop": {"total_active_users": 1000}}
    origin = "location / { return 200 'the site'; }"
    with Site(
        rooms=rooms, locations=gated("/", *lines) + plain, origin=origin, stamps=stamps
    ) as site:
        yield site


def worker(master: int) -> int:
    found = [int(pid) for pid in Path(f"/proc/{master}/task/{master}/children").read_text().split()]
    names = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in found}
    return next(pid for pid, name in names.items() if b"worker process" in name)


def count(site, path: str, log: Path, kind=PICTURE, **given: str) -> float:
    """Return nginx's median number of system calls for a request of a visitor inside. On a busy
    machine some requests find an expired verdict, and so ask a replica again."""
    visitor = Visitor(site.url)
    for _ in range(3):  # the pass, the stamp, and what is kept
        assert visitor.get("/").status == 200
    cookies = "; ".join(f"{name}={value}" for name, value in (visitor.cookies | given).items())
    headers = {**kind, "Cookie": cookies}
    connection = http.client.HTTPConnection("127.0.0.1", site.port, timeout=10)

    def ask() -> None:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        assert (answer.status, answer.read()) == (200, b"the site")

    ask()
    command = ["strace", "-p", str(worker(site.nginx.pid)), "-o", str(log)]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as strace:
        assert strace.stderr is not None
        said = strace.stderr.readline()
        if b"attached" not in said:
            pytest.skip(f"strace may not look at nginx: {said.decode().strip()}")
        for _ in range(REQUESTS):
            ask()
        strace.send_signal(signal.SIGINT)
    connection.close()
    requests = re.split(r"^recvfrom\(.*\"GET /", log.read_text(), flags=re.MULTILINE)[1:]
    assert len(requests) == REQUESTS
    return statistics.median(request.count("\n") for request in requests)


def test_a_visitor_inside_costs_few_calls(site, stamps, tmp_path):
    """Compared to a location without a room, whose calls are those for the site and the client."""
    wait_until(lambda: Visitor(site.url).get("/").status == 200, "the site")
    plain = count(site, "/plain", tmp_path / "plain")
    inside = count(site, "/picture", tmp_path / "inside")
    bound = STAMPED if stamps else KEPT
    assert inside - plain <= bound, (inside, plain)


def test_a_page_leaves_no_file(site, stamps, tmp_path):
    """A verdict with a new stamp is not cached if the visitor sent the stamp before, because nobody
    would read the file."""
    if not stamps:
        pytest.skip("without stamps nginx keeps the verdict")
    plain = count(site, "/plain", tmp_path / "plain")
    page = count(site, "/page", tmp_path / "page", NAVIGATION, waitroom_now=stamp("shop", in_s=-5))
    assert page - plain <= PAGE, (page, plain)
