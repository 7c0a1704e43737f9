"""Server-sent events, and the link to another browser, through a real nginx."""

import json
import re
import signal
from http.client import HTTPConnection

import pytest

from sidecar.kit.clock import StoreClock
from sidecar.visitors.tokens import Tokens
from tests.support.nginx_client import Visitor, room_cookies
from tests.support.processes import wait_until
from tests.support.site import SECRET, Site, gated

#: In `slow` a poll comes after more than the doors' usual read timeout, which is 3 s.
ROOMS = {
    "shop": {"total_active_users": 0, "heartbeat_interval": 1},
    "phone": {"total_active_users": 0, "heartbeat_interval": 1},
    "slow": {"total_active_users": 0, "heartbeat_interval": 4},
    "last": {"total_active_users": 0, "heartbeat_interval": 60},
}


class Stream:
    """The stream of events that a browser's EventSource gets."""

    def __init__(self, site: Site, room: str, visitor: Visitor) -> None:
        self._connection = HTTPConnection("127.0.0.1", site.port, timeout=20)
        cookies = "; ".join(f"{name}={value}" for name, value in visitor.cookies.items())
        headers = {"Accept": "text/event-stream", "Accept-Encoding": "gzip", "Cookie": cookies}
        self._connection.request("GET", f"/_waitroom/{room}/events", headers=headers)
        self.response = self._connection.getresponse()

    def next(self) -> tuple[str, dict]:
        """Return the next event. Its kind is empty at the end of the stream."""
        kind = ""
        while line := self.response.readline().decode():
            name, _, value = line.strip().partition(": ")
            if name == "event":
                kind = value
            elif name == "data":
                return kind, json.loads(value)
        return "", {}

    def close(self) -> None:
        self.response.close()
        self._connection.close()


def waiting(site: Site, room: str) -> Visitor:
    """Create a visitor who waits in the queue."""
    visitor = Visitor(site.url)
    assert visitor.get(f"/{room}/").waits
    return visitor


def open_streams(site: Site, room: str) -> float:
    text = Visitor(site.ops[0]).get("/metrics").text
    found = re.search(rf'^waitroom_event_streams{{room="{room}"}} (\S+)$', text, re.MULTILINE)
    return float(found[1]) if found else 0.0


SITE = {
    "rooms": ROOMS,
    "locations": "".join(gated(f"/{room}/", room=room) for room in ROOMS),
    "settings": {"event_streams": 4},
    "http": "gzip on; gzip_types *; proxy_buffers 8 16k;",
}


@pytest.fixture(scope="module")
def silent(site):
    """Open a stream before the other tests, so that none of them has to wait for it."""
    stream = Stream(site, "slow", waiting(site, "slow"))
    yield stream
    stream.close()


def test_each_event_passes_at_once_and_the_next_request_is_let_in(site, silent):
    """No buffer, cache or gzip delays an event; after `called` the ticket admits."""
    visitor = waiting(site, "shop")
    stream = Stream(site, "shop", visitor)
    headers = stream.response.headers
    assert (stream.response.status, headers["Content-Encoding"]) == (200, None)
    assert headers["Content-Type"].startswith("text/event-stream")
    first, second = stream.next(), stream.next()
    assert {first[0], second[0]} == {"status"}
    assert (second[1]["state"], second[1]["position"]) == ("waiting", 1)
    assert first[1]["updated_at"] < second[1]["updated_at"]
    site.admin("PATCH", "/rooms/shop", {"total_active_users": 1})
    while (event := stream.next())[0] == "status":
        pass
    assert (event[0], event[1]["path"]) == ("called", "/_waitroom/shop/")
    assert stream.next() == ("", {})
    stream.close()
    ticket = dict(visitor.cookies)
    reply = visitor.get("/shop/cart")
    assert (reply.status, reply.waits) == (200, False)
    assert room_cookies(reply, "shop")[0].startswith("waitroom_shop=p~")
    # The page that `called` names does the same.
    page = Visitor(site.url, cookies=ticket).get("/_waitroom/shop/?next=/shop/cart")
    assert (page.status, page.headers["Location"]) == (303, "/shop/cart")
    assert site.room("shop")["active"] == 1


def test_two_streams_are_not_one(site):
    """Each hears of its own place."""
    streams = [Stream(site, "last", waiting(site, "last")) for _ in range(2)]
    assert [stream.next()[1]["position"] for stream in streams] == [1, 2]
    assert open_streams(site, "last") == 2
    # I expect the sidecar to hear of it when a browser hangs up on nginx.
    for stream in streams:
        stream.close()
    wait_until(lambda: open_streams(site, "last") == 0, "the end of both")


def test_the_link_takes_a_turn_to_another_browser(site):
    """nginx passes on the link's page, and the button's request with its token and `next`. What
    else a link may meet is in tests/gate/test_claim_link.py."""
    visitor = waiting(site, "phone")
    tokens = Tokens("phone", [SECRET], StoreClock())
    link = tokens.write_claim(tokens.read(visitor.cookies["waitroom_phone"]))
    path = f"/_waitroom/phone/claim?token={link}&next=/phone/cart?a=b"
    phone = Visitor(site.url)
    page = phone.get(path)
    assert (page.status, page.all("Set-Cookie"), "You are in line" in page.text) == (200, [], True)
    site.admin("PATCH", "/rooms/phone", {"total_active_users": 1})
    taken = phone.post(path)
    assert (taken.status, taken.headers["Location"]) == (303, "/phone/cart?a=b")
    assert phone.get("/phone/cart?a=b").status == 200
    assert not visitor.get("/phone/").waits
    assert site.room("phone")["active"] == 1


def test_a_long_silence_is_no_dead_line(site, silent):
    """nginx waits for longer than it does for an answer."""
    assert [silent.next()[0] for _ in range(2)] == ["status", "status"]


def test_a_replica_that_stops_ends_its_streams(site):
    """At once, and stops; the browser opens the next at another replica."""
    stream = Stream(site, "last", waiting(site, "last"))
    assert stream.next()[0] == "status"
    site.replicas[0].signal(signal.SIGTERM)
    assert stream.next() == ("", {})
    stream.close()
    wait_until(lambda: not site.replicas[0].running, "the replica ends by itself", timeout_s=20)
    assert site.replicas[0].stop() == 0
