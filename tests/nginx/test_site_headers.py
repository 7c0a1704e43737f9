"""The site ends and extends visits, by headers of its responses that only nginx reads."""

import socket
import time

import pytest

from tests.support.nginx_client import Visitor
from tests.support.processes import free_port, wait_until
from tests.support.site import Site, gated

RELEASE, EXTEND = "/any?say=X-Waitroom-Release:1", "/any?say=X-Waitroom-Extend:600"


@pytest.fixture
def site(tmp_path):
    address = f"127.0.0.1:{free_port()}"
    report = (
        f"access_log syslog:server={address},nohostname,tag=waitroom_visit waitroom_visit "
        "if=$waitroom_asked_by_site;"
        "proxy_hide_header X-Waitroom-Release; proxy_hide_header X-Waitroom-Extend;"
    )
    one = {"total_active_users": 1}
    rooms = {
        "shop": {**one, "release_by_header": True, "exempt_paths": "/free/"},
        "desk": {**one, "session_duration": 5, "max_extension": 30},
        "kept": {"total_active_users": 2, "release_by_header": True},
    }
    cache = (
        "proxy_cache own; proxy_cache_key $uri; proxy_cache_valid any 1m;"
        "proxy_ignore_headers Set-Cookie; add_header X-Cached $upstream_cache_status;"
    )
    with Site(
        rooms=rooms,
        settings={"health_listen": address},
        http=f"proxy_cache_path {tmp_path}/own keys_zone=own:1m;",
        locations=gated("/", report)
        + gated("/desk/", report, room="desk")
        + gated("/kept/", report, cache, room="kept"),
    ) as site:
        site.health = address
        yield site


def test_a_response_ends_the_visit(site):
    """The next visitor gets the slot. The visitor does not see the header. A header that the room
    does not allow has no effect, and neither has a report without a valid cookie."""
    first, second = Visitor(site.url), Visitor(site.url)
    assert first.get("/any").status == 200
    assert second.get("/any").waits
    reply = first.get(EXTEND)
    assert (reply.status, reply.headers.get("X-Waitroom-Extend")) == (200, None)
    host, port = site.health.split(":")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as forged:
        head = b"<190>Nov 22 04:33:00 waitroom_visit: "
        for data in (b"shop|waitroom_shop=k~made-up|1|", b"nobody|waitroom_x=1|1|", b"shop||1|1"):
            forged.sendto(head + data, (host, int(port)))
    wait_until(lambda: site.count_reports().get("unbelieved") == 2, "the forged reports")
    assert second.get("/any").waits
    assert second.get("/free" + RELEASE).status == 200  # exempt: the place in line stays
    wait_until(lambda: site.count_reports().get("unbelieved") == 3, "the report")
    reply = first.get(RELEASE)
    assert (reply.status, reply.headers.get("X-Waitroom-Release")) == (200, None)
    wait_until(lambda: second.get("/any").status == 200, "the slot", timeout_s=30)
    results = site.count_reports()
    assert (results["released"], results["not_allowed"], results["unreadable"]) == (1, 1, 1)


def test_the_first_page_of_a_visit_ends_it(site):
    """Its cookie comes with the same response."""
    assert Visitor(site.url).get(RELEASE).status == 200
    wait_until(lambda: site.count_reports().get("released") == 1, "the end")


def test_a_response_extends_the_visit(site):
    """The visitor comes back with a pass that expired long ago, and is still inside."""
    first, second = Visitor(site.url), Visitor(site.url)
    reply = first.get("/desk" + EXTEND)
    assert reply.status == 200
    [cookie] = [text for text in reply.all("Set-Cookie") if text.startswith("waitroom_desk")]
    assert 30 < int(cookie.partition("Max-Age=")[2].partition(";")[0]) <= 35
    assert second.get("/desk/any").waits
    wait_until(lambda: site.count_reports().get("extended") == 1, "the extension")
    time.sleep(12)  # a session of 5 s and its grace
    assert second.get("/desk/any").waits
    assert first.get("/desk/any").status == 200
    assert second.get("/desk/any").waits


def test_a_page_from_nginx_cache_asks_for_nothing(site):
    """Its header was the site's word about another visitor."""
    first, second = Visitor(site.url), Visitor(site.url)
    assert first.get("/kept/any" + RELEASE[4:]).status == 200
    wait_until(lambda: site.count_reports().get("released") == 1, "the end of the first visit")
    reply = second.get("/kept/any")
    assert (reply.status, reply.headers["X-Cached"]) == (200, "HIT")
    time.sleep(2)  # some rounds of the replica
    assert site.count_reports() == {"released": 1}
