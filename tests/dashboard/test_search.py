"""The search: rooms, leases and visitors over all rooms, for operators, with limited work."""

import pytest

from sidecar.app.routes import Services, create_ops_app
from sidecar.dashboard import search
from sidecar.http.metrics import Metrics
from sidecar.kit.errors import StoreUnavailableError
from sidecar.leases.metrics import LeaseMetrics
from sidecar.leases.service import Leases, TemplateLeases
from sidecar.leases.settings import LeaseSettings
from sidecar.leases.store import LeaseStore
from sidecar.rooms.service import WaitingRoom, WaitingRooms
from sidecar.rooms.settings import RoomSettings
from sidecar.rooms.store import lists
from sidecar.rooms.store.scripts import RoomStore
from sidecar.settings.model import Settings
from sidecar.storage.redis.connect import close, connect
from sidecar.visitors.tokens import Tokens, new_visitor
from sidecar.visitors.visitor_number import visitor_number
from tests.support.replica import ADMIN_TOKEN, KEYS
from tests.support.rooms import FollowingClock, new_room_name, without_outages
from tests.support.visitors import go_in, queue

BEARER = {"Authorization": f"Bearer {ADMIN_TOKEN}"}


class Desk:
    """A replica's ops listener with rooms and a lease template, whose names begin with `prefix`."""

    def __init__(self, ops, rooms, seats):
        self.ops, self.rooms, self.seats = ops, rooms, seats

    async def ask(self, q, **more):
        reply = await self.ops.get("/admin/search", params={"q": q, **more}, headers=BEARER)
        document = await reply.json()
        assert reply.status == 200, document
        return document

    async def find(self, q):
        """Return the hits of all pages as (kind, name, of, state), and the number of pages."""
        hits, after, pages = [], "", 0
        while after is not None:
            page = await self.ask(q, after=after)
            pages += 1
            hits += [tuple(hit[name] for name in ("kind", "name", "of", "state"))
                     for hit in page["hits"]]  # fmt: skip
            after = page["next"]
        return hits, pages


@pytest.fixture
async def desk(redis_socket, aiohttp_client, turn):
    redis = connect(f"unix://{redis_socket}", timeout_s=5)
    clock, metrics, name = FollowingClock(turn), Metrics(), new_room_name()
    settings = RoomSettings(total_active_users=1)
    rooms = []
    for i in range(3):
        store = RoomStore(
            redis, f"{name}-{i}", settings=without_outages(settings), clock=clock, now_ms=turn,
            timeout_s=5,
        )  # fmt: skip
        tokens = Tokens(f"{name}-{i}", KEYS, clock)
        rooms.append(WaitingRoom(f"{name}-{i}", settings, tokens, store, clock))
    rules = LeaseSettings(term=60)
    seats = TemplateLeases(
        f"{name}-seat", rules,
        LeaseStore(redis, f"{name}-seat", settings=rules, clock=clock, now_ms=turn, timeout_s=5),
        clock, metrics.of(LeaseMetrics),
    )  # fmt: skip
    services = Services(rooms=WaitingRooms(rooms), metrics=metrics, leases=Leases([seats]))
    files = {room.name: settings for room in rooms}
    whole = Settings(secret_keys=KEYS, admin_token=ADMIN_TOKEN, rooms=files)
    yield Desk(await aiohttp_client(create_ops_app(services, whole, [])), rooms, seats)
    await close(redis)


async def test_a_visitor_is_found_in_any_room(desk):
    """The reference of the waiting page is enough, however it is written. So is the id."""
    inside = await go_in(desk.rooms[1].store)
    waiting, gone = await queue(desk.rooms[1].store, 2)
    await desk.rooms[1].store.leave(gone.visitor)
    await go_in(desk.rooms[2].store)
    room = desk.rooms[1].name
    for visitor, state in ((inside, "inside"), (waiting, "waiting"), (gone, "revoked")):
        number = visitor_number(visitor.visitor)
        hit = ("visitor", number, room, state)
        for text in (number, number.lower().replace("-", ""), visitor.visitor, f" {number} "):
            assert (await desk.find(text))[0] == [hit]
        (found,) = (await desk.ask(number))["hits"]
        assert found["id"] == visitor.visitor
    assert await desk.find(visitor_number(new_visitor())) == ([], 1)
    assert await desk.find(new_visitor()) == ([], 1)


async def test_seats_are_found_by_reference_and_name(desk):
    """A visitor's reference finds the seats that the visitor holds or waits for."""
    holder, waits, template = new_visitor(), new_visitor(), desk.seats.name
    await desk.seats.take("row-17", holder)
    await desk.seats.take("row-17", waits)
    await desk.seats.take("row-18", waits)
    await desk.seats.take("row-19", "order-4711", owner="shop")
    seat17, seat18 = (("resource", f"row-{number}", template, "") for number in (17, 18))
    assert (await desk.find(visitor_number(holder)))[0] == [seat17]
    assert (await desk.find(holder))[0] == [seat17]
    assert (await desk.find(visitor_number(waits)))[0] == [seat17, seat18]
    assert (await desk.find("row-1"))[0] == [
        *(seat17, seat18),
        ("resource", "row-19", template, ""),
    ]
    headers = {"params": {"find": visitor_number(waits)}, "headers": BEARER}
    page = await (await desk.ops.get(f"/v1/leases/{template}", **headers)).json()
    assert [each["name"] for each in page["resources"]] == ["row-17", "row-18"]
    state = await desk.ops.get(f"/v1/leases/{template}/row-17/queue", headers=BEARER)
    document = await state.json()
    assert document["holders"][0]["number"] == visitor_number(holder)
    assert document["queue"][0]["number"] == visitor_number(waits)
    page = await (await desk.ops.get(f"/v1/leases/{template}?find=row-19", headers=BEARER)).json()
    assert page["resources"][0]["holders"][0]["number"] is None


async def test_names_are_found_while_redis_is_unavailable(desk, monkeypatch):
    """A part of a name is enough. The response says that Redis was not searched."""
    names = [room.name for room in desk.rooms]
    template = ("template", desk.seats.name, "", "")
    assert (await desk.find(names[0][:-2].upper()))[0] == [
        *(("room", name, "", "") for name in names),
        template,
    ]

    async def refuse(*_arguments, **_more):
        raise StoreUnavailableError("find", "away")

    monkeypatch.setattr(LeaseStore, "find", refuse)
    page = await desk.ask(names[1])
    assert [hit["name"] for hit in page["hits"]] == [names[1]]
    assert (page["unavailable"], page["next"]) == (["redis"], None)
    assert (await desk.ask(names[1][2:-1]))["unavailable"] == ["redis"]


async def test_one_request_does_limited_work(desk, monkeypatch):
    """A request reads a bounded number of visitors and ends. The next one goes on from there, also
    in the middle of a room, until all rooms were searched."""
    monkeypatch.setattr(lists, "SCAN_COUNT", 10)
    monkeypatch.setattr(search, "MAX_COST", 10)
    monkeypatch.setattr(search, "LEASE_COST", 2)
    await go_in(desk.rooms[2].store)
    last = (await queue(desk.rooms[2].store, 300))[-1]
    scans = 0
    scan = lists.Lists.scan_number

    async def count(self, *arguments):
        nonlocal scans
        scans += 1
        return await scan(self, *arguments)

    monkeypatch.setattr(lists.Lists, "scan_number", count)
    number = visitor_number(last.visitor)
    hits, pages = await desk.find(number)
    assert hits == [("visitor", number, desk.rooms[2].name, "waiting")]
    assert pages > 2
    assert scans <= 10 * pages
    scans = 0
    await desk.ask(number)
    assert 0 < scans <= 10


@pytest.mark.parametrize(
    ("parameters", "status"),
    [
        ({"q": "x"}, 422), ({"q": "x" * 129}, 422), ({}, 422),
        ({"q": "shop", "after": "first"}, 422), ({"q": "shop", "after": "9999999-"}, 200),
        ({"q": "7K2Q-9XDM", "after": "0-x"}, 200),
    ],
)  # fmt: skip
async def test_a_search_is_checked(desk, parameters, status):
    """A text that is too short or too long is refused, and so is a cursor of another form."""
    reply = await desk.ops.get("/admin/search", params=parameters, headers=BEARER)
    assert reply.status == status


async def test_outsiders_learn_nothing(desk):
    """Without a token the response is the same whether a reference exists or not."""
    visitor = await go_in(desk.rooms[0].store)
    replies = []
    for number in (visitor_number(visitor.visitor), "0000-0000"):
        reply = await desk.ops.get("/admin/search", params={"q": number})
        replies.append((reply.status, await reply.text()))
    assert replies[0] == replies[1]
    assert replies[0][0] == 401
