"""A leased resource behind a proxy, with a turned clock."""

from dataclasses import dataclass
from typing import Any

import pytest
from aiohttp.test_utils import TestClient

from sidecar.http.metrics import METRICS
from sidecar.kit.clock import iso
from sidecar.leases.redis_keys import lease_key
from sidecar.leases.service import LEASES, TemplateLeases
from sidecar.leases.store import LeaseStore
from sidecar.visitors.tokens import Tokens
from tests.support.replica import HTML, KEYS, cookie_of
from tests.support.rooms import FollowingClock, RedisTime


@dataclass
class Seats:
    edge: TestClient
    template: TemplateLeases
    turn: RedisTime

    async def check(self, cookie: str = "", *, seat: str = "1", **headers: str):
        asked = {"X-Waitroom-Room": f"{self.template.name}~{seat}", **HTML, **headers}
        if cookie:
            asked["Cookie"] = cookie
        return await self.edge.get("/check", headers=asked)

    async def ask(self, door: str, cookie: str = "", *, seat: str = "1"):
        path = f"/_waitroom/{self.template.name}~{seat}/{door}"
        method = "GET" if door == "status" else "POST"
        return await self.edge.request(method, path, headers={"Cookie": cookie} if cookie else {})

    async def empty_redis(self) -> None:
        redis = self.template.store._redis
        await redis.delete(*await redis.keys(lease_key(self.template.name, "*")))


@pytest.fixture
def seats(service):
    async def make(name: str = "", **settings: Any) -> Seats:
        site = await service(lease={"term": 60, **settings}, name=name)
        return Seats(site.edge, site.ops.app[LEASES].get(site.name), site.turn)

    return make


async def test_a_lease_ends_to_the_millisecond(seats):
    """The holder passes until the exact end of the lease, and then the next one."""
    site = await seats()
    first = cookie_of(await site.check())
    second = cookie_of(await site.check())
    for forward_s, inside in ((59.999, (204, 401)), (0.001, (401, 204))):
        site.turn.forward(forward_s)
        # The other one first: whoever asks gets no more than is theirs.
        assert ((await site.check(first)).status, (await site.check(second)).status) == inside


async def test_no_answer_may_be_kept(seats):
    """No response lets nginx cache it."""
    site = await seats(max_waiting=1)
    replies = [await site.check() for _ in range(3)]
    first, second = cookie_of(replies[0]), cookie_of(replies[1])
    replies += [await site.check(first), await site.check(second), await site.check(Accept="*/*")]
    replies += [await site.ask("status", cookie) for cookie in ("", first, second)]
    assert [reply.status for reply in replies] == [204, 401, 403, 204, 401, 403, 200, 200, 200]
    assert not any("X-Accel-Expires" in reply.headers for reply in replies)


async def test_the_holder_and_their_number(seats):
    """The holder in Redis is the cookie's visitor. nginx gets the fencing number, and the page the
    end of the lease."""
    site = await seats()
    reply = await site.check()
    visitor = cookie_of(reply).partition("~")[2].partition("~")[0]
    [resource] = await site.template.store.list()
    [holder] = resource.holders
    assert (resource.name, holder.holder) == ("1", visitor)
    assert reply.headers["X-Waitroom-Fence"] == str(holder.fence)
    document = await (await site.ask("status", cookie_of(reply))).json()
    assert document["expires_at"] == iso(site.turn.now_ms + 60_000)
    assert document["visitor"] == visitor


async def test_the_status_document_of_somebody_in_line(seats):
    """The status document is that of a room; the expected wait is the rest of the holder's term."""
    site = await seats(message="Seat {resource}, {resource}!")
    await site.check()
    site.turn.forward(10)
    ticket = cookie_of(await site.check())
    site.turn.forward(2)
    document = await (await site.ask("status", ticket)).json()
    assert (document["state"], document["position"], document["waiting"]) == ("waiting", 1, 1)
    assert document["joined_at"] == iso(site.turn.now_ms - 2000)
    assert document["wait_seconds"] == 48
    assert 30 < document["wait_seconds_low"] < 48 < document["wait_seconds_high"] < 66
    assert document["message"] == "Seat 1, 1!"
    assert "expires_at" not in document


async def test_a_term_longer_than_a_ticket(seats):
    """The ticket is valid until the end of a long term."""
    site = await seats(term=3 * 86_400)
    reply = await site.check()
    assert f"Max-Age={4 * 86_400};" in reply.headers["Set-Cookie"]
    site.turn.forward(3 * 86_400 - 1)
    assert (await site.check(cookie_of(reply))).status == 204


async def test_a_place_comes_back_in_its_own_line_only(seats):
    """After Redis was emptied, an order of one seat's queue restores no place in another's."""
    site = await seats()
    for seat in ("A", "B"):
        await site.check(seat=seat)
    early = cookie_of(await site.check(seat="A"))
    site.turn.forward(1)
    late = cookie_of(await site.check(seat="B"))
    await site.empty_redis()
    site.turn.forward(1)
    assert (await (await site.ask("status", late, seat="B")).json())["state"] == "waiting"
    await site.ask("join", early, seat="B")
    [resource] = await site.template.store.list()
    assert (resource.name, resource.waiting) == ("B", 2)
    resource = await site.template.store.show("B", limit=1)
    assert resource.queue[0].holder == late.partition("~")[2].partition("~")[0]


async def test_only_resources_that_there_are(seats):
    """A resource that `resources` does not match as a whole is unknown."""
    site = await seats(resources="[1-9][0-9]?")
    assert [(await site.check(seat=seat)).status for seat in ("1", "99")] == [204, 204]
    for seat in ("100", "0", "07", "x1"):
        reply = await site.check(seat=seat)
        assert (reply.status, reply.headers["X-Waitroom-State"]) == (403, "unknown-resource")
        assert (await site.ask("join", seat=seat)).status == 404
    assert await site.template.store.count() == 2


@pytest.mark.parametrize(
    ("accept", "kind"),
    [("text/html", "text/html"), ("application/json", "application/problem+json")],
)
async def test_beside_other_proxies_too_a_resource_that_there_is_not_is_not_found(
    seats, accept, kind
):
    """Behind other proxies an unknown resource is a page or a problem, counted by the template."""
    site = await seats(resources="[1-9][0-9]?")
    name = site.template.name
    reply = await site.edge.get(f"/gate/{name}~100", headers={"Accept": accept})
    assert (reply.status, reply.content_type) == (404, kind)
    assert reply.headers["X-Waitroom-State"] == "unknown-resource"
    assert "Set-Cookie" not in reply.headers
    assert "Retry-After" not in reply.headers
    assert site.edge.app[METRICS].requests.counts[name, "gate", "unknown-resource"] == 1


async def test_a_renewable_lease_is_renewed_by_use(seats):
    """Pages, not polls, renew a renewable lease in the second half of its term, up to max_term."""
    site = await seats(renewable=True, max_term=100)
    first = cookie_of(await site.check())
    began_ms = site.turn.now_ms

    async def ends_s():
        document = await (await site.ask("status", first)).json()
        [resource] = await site.template.store.list()
        assert document["expires_at"] == iso(resource.holders[0].expires_ms)
        return (resource.holders[0].expires_ms - began_ms) / 1000

    site.turn.forward(29)
    await site.check(first)
    assert await ends_s() == 60
    site.turn.forward(2)
    assert await ends_s() == 60
    await site.check(first)
    assert await ends_s() == 31 + 60
    site.turn.forward(50)
    await site.check(first)
    assert await ends_s() == 100
    site.turn.forward(18.9)
    object.__setattr__(site.template.store, "renew", None)  # would change nothing: is not asked
    assert (await site.check(first)).status == 204
    assert (await site.ask("leave", first)).status == 200
    assert await site.template.store.list() == []


async def test_a_cookie_is_signed_anew(seats):
    """A cookie is signed anew when a visitor comes back after an hour, not at each request."""
    site = await seats(term=86_400)
    first = cookie_of(await site.check())
    assert "Set-Cookie" not in (await site.check(first)).headers
    site.turn.forward(3601)
    again = cookie_of(await site.check(first))
    assert again.partition("~")[2].partition("~")[0] == first.partition("~")[2].partition("~")[0]
    site.turn.forward(23 * 3600)
    reply = await site.check(again)
    assert (reply.status, cookie_of(reply)) == (204, cookie_of(reply))


@pytest.mark.parametrize("cookie", ["x", "t~a~1~1~0.x.y", "p" * 600, ""])
async def test_a_forged_cookie_is_none(seats, cookie):
    """A forged cookie makes a new visitor."""
    site = await seats()
    name = f"waitroom_{site.template.name}"
    reply = await site.check(f"{name}={cookie}")
    assert (reply.status, cookie_of(reply).startswith(f"{name}=t~")) == (204, True)


async def test_a_rooms_cookie_of_the_same_name_is_none(seats):
    """A ticket of a room of the same name is not valid for the template, nor the reverse."""
    site = await seats()
    room = Tokens(site.template.name, KEYS, FollowingClock(site.turn))
    theirs = Tokens(site.template.name + "~", KEYS, FollowingClock(site.turn))
    first = cookie_of(await site.check())
    text = first.partition("=")[2]
    assert room.read(text) is None
    assert theirs.read(text) is not None


async def test_places_come_back_to_a_store_that_was_emptied(seats):
    """After Redis was emptied open pages get their places back, in order. Nobody is let in until
    all old terms are over."""
    site = await seats(heartbeat_interval=5)
    holder = cookie_of(await site.check())
    second, third = cookie_of(await site.check()), cookie_of(await site.check())
    site.turn.forward(1)
    await site.empty_redis()
    # Another replica, which was not there before, learns of it by the cookies.
    site = await seats(site.template.name, heartbeat_interval=5)
    site.turn.forward(1)
    told = await (await site.ask("status", third)).json()
    assert (told["state"], told["position"], told["paused"]) == ("waiting", None, True)
    await site.ask("status", second)
    assert (await site.check(holder)).status == 401
    for _ in range(13):
        site.turn.forward(4.5)
        for cookie in (second, third, holder):
            await site.ask("status", cookie)
    site.turn.forward(1.5)
    assert (await site.check(third)).status == 401
    assert (await site.check(second)).status == 204


async def test_a_newcomer_to_an_emptied_store_takes_nothing_by_asking(seats):
    """A newcomer's poll takes no place while Redis recovers."""
    site = await seats()
    first = cookie_of(await site.check())
    site.template.store.record_existence(1)  # so that all replicas think it was emptied
    await site.ask("status", first, seat="2")
    assert [resource.name for resource in await site.template.store.list()] == ["1"]


async def test_a_store_that_is_away(seats, monkeypatch):
    """While Redis is unavailable a visitor with a cookie waits, and one without gets a cookie."""
    from sidecar.kit.errors import StoreError

    site = await seats()
    first = cookie_of(await site.check())

    async def fail(*_: object, **__: object) -> None:
        raise StoreError("away")

    monkeypatch.setattr(LeaseStore, "ask", fail)
    reply = await site.check(first)
    assert (reply.status, reply.headers["X-Waitroom-State"]) == (401, "waiting")
    newcomer = await site.check()
    assert (newcomer.status, newcomer.headers["X-Waitroom-State"]) == (401, "not_queued")
    assert (await site.ask("status", cookie_of(newcomer))).status == 503
    assert (await site.ask("join", cookie_of(newcomer))).status == 503
    monkeypatch.undo()
    assert (await site.check(first)).status == 204
    joined = await (await site.ask("join", cookie_of(newcomer))).json()
    assert (joined["state"], joined["position"]) == ("waiting", 1)


async def test_another_proxys_question(seats):
    """/gate/seat~17 answers another proxy with the page."""
    site = await seats(queueing_status_code=429)
    path = f"/gate/{site.template.name}~17"
    assert (await site.edge.get(path, headers=HTML)).status == 200
    reply = await site.edge.get(path, headers=HTML)
    assert reply.status == 429
    assert f'data-room="{site.template.name}~17"' in await reply.text()
    reply = await site.edge.get(path, headers={"Accept": "application/json"})
    assert (await reply.json())["status_url"] == f"/_waitroom/{site.template.name}~17/status"
