"""What nginx keeps of one visitor's verdict reaches nobody for whom the verdict is another one."""

import time
from itertools import count

import pytest

from sidecar.kit.clock import iso
from sidecar.rooms.exemptions import compute_rollout_number, is_outside
from sidecar.rooms.settings import RoomSettings
from tests.support.nginx_client import JSON, Visitor
from tests.support.processes import wait_until
from tests.support.relay import Relay
from tests.support.site import Site, gated

STAFF = "192.0.2.7"
#: What a room exempts, and how a request looks that is exempt there.
PATH, ADDRESS, HEADER = "path", "address", "header"
EXEMPT = {
    PATH: {"exempt_paths": ["/hooks/"]},
    ADDRESS: {"exempt_addresses": [STAFF]},
    HEADER: {"exempt_header": True},
}
EXEMPT_REQUEST = {
    PATH: ("/hooks/paid", {}),
    ADDRESS: ("/", {"X-Test-Address": STAFF}),
    HEADER: ("/", {"X-Badge": "secret"}),
}
FULL = {"total_active_users": 0}
FLOODED = {**FULL, "shield_above": 1}
CLOSED = [f"closed-{kind}" for kind in (*EXEMPT, "part", "to-all")]
PART = {"rollout_percent": 50}
ROOMS = {
    **{f"closed-{kind}": {**FULL, **exempt} for kind, exempt in EXEMPT.items()},
    **{f"flooded-{kind}": {**FLOODED, **exempt} for kind, exempt in EXEMPT.items()},
    "closed-part": {**FULL, **PART},
    "flooded-part": {**FLOODED, **PART},
    "closed-to-all": FULL,
    "full": {**FULL, "max_waiting": 0},
    "polled": {**FULL, **EXEMPT[ADDRESS]},
}
HTTP = 'map $http_x_badge $test_badge { default ""; secret staff; }'
SERVER = """
    set_real_ip_from 127.0.0.1;
    real_ip_header X-Test-Address;
    set $waitroom_exempt $test_badge;
    include waitroom/server.conf;
"""
PICTURE = {"Accept": "image/*", "Sec-Fetch-Mode": "no-cors"}


@pytest.fixture(scope="module")
def site(stamps):
    servers = {f"{room}.test": SERVER + gated("/", room=room) for room in ROOMS}
    with Site(
        rooms=ROOMS, http=HTTP, servers=servers, relay=Relay, locations="", stamps=stamps
    ) as site:
        opens = iso(int(time.time() * 1000) + 3_600_000)
        for room in CLOSED:
            event = {"name": "sale", "opens_at": opens}
            site.admin("PATCH", f"/rooms/{room}", {"events": [event]})
        for room in CLOSED:
            wait_until(lambda room=room: is_closed(site, room), f"{room} to be closed")
        yield site


def come(site, room, path="/", headers=None):
    """Request a page without a cookie."""
    return Visitor(site.url, {"Host": f"{room}.test"}).get(path, headers=headers)


def is_closed(site, room) -> bool:
    reply = Visitor(site.url, {"Host": f"{room}.test"}).get(f"/_waitroom/{room}/status?x")
    return bool(reply.json()["phase"] == "closed")


def status(site, room, headers=None, cookies=None) -> str:
    visitor = Visitor(site.url, {"Host": f"{room}.test", "Accept": JSON}, cookies or {})
    state: str = visitor.get(f"/_waitroom/{room}/status", headers=headers).json()["state"]
    return state


def raise_shield(site, room, headers=None) -> None:
    def is_up() -> bool:
        visitor = Visitor(site.url, {"Host": f"{room}.test"})
        visitor.get("/", headers=headers)
        return not visitor.cookies

    wait_until(is_up, "the shield")


def browser(room: str, *, is_wanted_outside: bool) -> dict[str, str]:
    """Return the headers of a browser to which the room is rolled out, or is not."""
    settings = RoomSettings(total_active_users=0, rollout_percent=50)
    for number in count():
        name = f"Mozilla/5.0 {number}"
        drawn = compute_rollout_number(room, address="127.0.0.1", user_agent=name)
        if is_outside(drawn, settings) is is_wanted_outside:
            return {"User-Agent": name}
    raise AssertionError


@pytest.mark.parametrize("kind", EXEMPT)
@pytest.mark.parametrize("state", ["closed", "flooded"])
def test_an_exempt_request_never_gets_anothers_refusal(site, state, kind):
    """Nor does somebody who is not exempt pass by what an exempt one was told."""
    room = f"{state}-{kind}"
    path, headers = EXEMPT_REQUEST[kind]
    if state == "flooded":
        raise_shield(site, room)
    for _ in range(5):
        assert come(site, room).waits
        assert come(site, room, path, headers).status == 200


def test_whom_a_closed_room_is_not_rolled_out_to_passes(site):
    room = "closed-part"
    inside = browser(room, is_wanted_outside=False)
    outside = browser(room, is_wanted_outside=True)
    for _ in range(5):
        assert come(site, room, headers=inside).waits
        assert come(site, room, headers=outside).status == 200
        assert come(site, room, headers=outside | PICTURE).status == 200


def test_while_the_shield_is_up_all_without_a_cookie_are_told_the_same(site, relay):
    """Whether the room is rolled out to them or not, so nginx may answer them alone."""
    room = "flooded-part"
    outside = browser(room, is_wanted_outside=True)
    raise_shield(site, room, outside)
    pictures = [come(site, room, headers=outside | PICTURE).waits for _ in range(3)]
    came = [come(site, room, headers=outside).waits for _ in range(3)]
    assert (pictures, came) == ([True] * 3, [True] * 3)
    relay.forget()
    for _ in range(10):
        come(site, room, headers=outside)
    assert len(relay.checks()) < 10


@pytest.mark.parametrize("room", ["closed-to-all", "closed-header"])
def test_a_refusal_of_all_is_still_kept(site, relay, room):
    """A closed room costs nginx alone: `$waitroom_exempt` is in the key."""
    relay.forget()
    for _ in range(20):
        assert come(site, room).waits
    assert len(relay.checks()) < 10


def test_a_full_room_is_asked_each_time(site, relay):
    """A place may be free for the next."""
    relay.forget()
    for _ in range(5):
        assert come(site, "full").waits
    assert len(relay.checks()) == 5


def test_an_exempt_address_never_polls_anothers_numbers(site):
    """Neither of all who have no place, nor their own of a moment ago from somewhere else."""
    room = "polled"
    waiting = Visitor(site.url, {"Host": f"{room}.test"})
    assert waiting.get("/").waits
    staff = {"X-Test-Address": STAFF}
    for _ in range(3):
        assert status(site, room) == "not_queued"
        assert status(site, room, headers=staff) == "admitted"
        assert status(site, room, cookies=waiting.cookies) == "waiting"
        assert status(site, room, headers=staff, cookies=waiting.cookies) == "admitted"
