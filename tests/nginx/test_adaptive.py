"""An adaptive room behind nginx, which reports how the site responds."""

import json
import socket

import pytest

from tests.support.nginx_client import Visitor
from tests.support.processes import free_port, wait_until
from tests.support.site import Site, gated

ADAPTIVE = {"mode": "on", "p90": 0.5, "max_errors": 0.1, "min": 2}


@pytest.fixture
def site():
    address = f"127.0.0.1:{free_port()}"
    server = (
        f"access_log syslog:server={address},nohostname,tag=waitroom waitroom_site "
        "if=$waitroom_measured;"
    )
    rooms = {"shop": {"total_active_users": 50, "adaptive": json.dumps(ADAPTIVE)}}
    with Site(
        rooms=rooms,
        settings={"health_listen": address},
        server=server,
        locations=gated("/", "set $waitroom_sampled 100;")
        + gated("/poll/", 'set $waitroom_sampled "";'),
    ) as site:
        site.health = address
        yield site


def test_a_room_follows_its_site(site):
    """The room lets in `min` visitors, more while the site is fast, and nobody while it is slow.
    Pages and JSON are reported; files, and locations that are left out, are not."""
    host, port = site.health.split(":")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as forged:
        for data in (b"\xff" * 3000, b"<190>Nov 22 04:33:00 waitroom: nobody|25|200|0.1|0.1|200"):
            forged.sendto(data, (host, int(port)))
    inside = [Visitor(site.url) for _ in range(2)]
    assert [each.get("/page").status for each in inside] == [200, 200]
    third = Visitor(site.url)
    assert third.get("/page").waits
    for _ in range(40):
        for each in inside:
            assert each.get("/late/0").status == 200
    for each in inside:
        each.get("/poll/late/5")  # is left out
    wait_until(lambda: site.room()["site"] is not None, "the first tick", timeout_s=30)
    wait_until(lambda: site.room()["site"]["state"] == "healthy", "a healthy site", timeout_s=30)
    found = site.room()["site"]
    assert found["responses"] >= 80
    assert found["p90_seconds"] < 0.5
    reports = site.count_reports()
    assert reports["unreadable"] == 1
    assert reports["unknown_room"] == 1
    assert reports["counted"] == 82

    def is_overloaded():
        for each in inside:
            assert each.get("/late/900").status == 200
        return site.room()["site"]["state"] == "overloaded"

    wait_until(is_overloaded, "the overload", timeout_s=90)
    found = site.room()["site"]
    assert found["text"].startswith("holding: p90 0.")
    assert found["ceiling"] == 2
    assert third.get("/page").waits
    assert site.room()["state"] == "at_cap"
