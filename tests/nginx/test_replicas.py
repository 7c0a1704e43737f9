"""Which of several replicas nginx asks: that of a waiting visitor, or the next in turn."""

import http.client

import pytest

from tests.support.nginx_client import Visitor
from tests.support.relay import Relay
from tests.support.site import gated
from tests.support.tokens import signed_pass, signed_ticket

ROOM = "shop"
STATUS = f"/_waitroom/{ROOM}/status?a"  # with a query nginx keeps no answer


SITE = {
    "rooms": {ROOM: {"total_active_users": 0, "poll_limit": 1000}},
    "leases": {"seat": {"term": 60}},
    "replicas": 3,
    "relay": Relay,
    "locations": gated("/") + gated("/seat", room="seat~1"),
}


@pytest.fixture
def asked(site):
    """Return a function that sends requests and counts those that reach each replica."""

    def ask(path: str, cookie: str = "", times: int = 12) -> list[int]:
        for relay in site.relays:
            relay.forget()
        headers = {"Cookie": cookie} if cookie else {}
        connection = http.client.HTTPConnection("127.0.0.1", site.port, timeout=10)
        for _ in range(times):
            connection.request("GET", path, headers=headers)
            connection.getresponse().read()
        connection.close()
        return [len(relay.requests) for relay in site.relays]

    return ask


def ticket() -> str:
    return f"waitroom_{ROOM}={signed_ticket(ROOM)}"


def test_a_waiting_visitor_is_one_replicas(asked):
    """Whoever waits polls the same replica each time; all of them together poll every one."""
    found = [asked(STATUS, ticket(), times=4) for _ in range(20)]
    assert all(sorted(each) == [0, 0, 4] for each in found), found
    assert all(sum(each) for each in zip(*found, strict=True))


def test_newcomers_go_round(asked):
    """Without a cookie, or with one that is none of ours, replicas are asked in turn."""
    assert asked(STATUS) == [4, 4, 4]
    assert asked(STATUS, f"waitroom_{ROOM}=t") == [4, 4, 4]


def test_those_inside_go_round(asked):
    """Passes are checked at all replicas, so one that is cut off is soon contradicted."""
    assert asked(STATUS, f"waitroom_{ROOM}={signed_pass(ROOM)}") == [4, 4, 4]


def test_holders_of_leases_go_round(asked):
    """Each of their requests is asked about, so none waits for one replica that hangs."""
    assert asked("/seat", f"waitroom_seat={signed_ticket('seat')}") == [4, 4, 4]


def test_the_next_replica_takes_the_visitors_of_one_that_is_gone(site, asked):
    """Others answer its visitors, without an error, until it is back."""
    site.relays[1].__exit__()
    for _ in range(8):
        assert Visitor(site.url).get(STATUS, headers={"Cookie": ticket()}).status == 200
