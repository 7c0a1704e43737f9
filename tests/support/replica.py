"""The edge and the ops listener over a real redis-server, with a clock to turn."""

from dataclasses import dataclass
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer
from yarl import URL

from sidecar.app.routes import Services, edge_app, ops_app
from sidecar.http.fast_path import FastRunner
from sidecar.http.metrics import Metrics
from sidecar.kit.errors import StoreError
from sidecar.kit.share import find_share
from sidecar.leases.metrics import LeaseMetrics
from sidecar.leases.service import Leases, Template
from sidecar.leases.settings import LeaseSettings
from sidecar.leases.store import LeaseStore
from sidecar.limits.metrics import LimitMetrics
from sidecar.limits.service import Limit, Limits
from sidecar.limits.settings import LimitSettings
from sidecar.limits.store import LimitStore
from sidecar.lottery.service import Draws
from sidecar.lottery.store import DrawsStore
from sidecar.rooms.service import Room, Rooms
from sidecar.rooms.settings import RoomSettings
from sidecar.rooms.store.scripts import RoomStore
from sidecar.settings.model import Settings
from sidecar.storage.redis.breaker import TRIES
from sidecar.storage.redis.connect import close, connect
from sidecar.visitors.tokens import Tokens
from tests.support.described import check_answer
from tests.support.rooms import Time, TurnedClock, attended, new_room_name

KEYS = ["k" * 32]
ADMIN_TOKEN = "admin-token-for-tests"
SERVICE_TOKEN = "service-token-for-tests"
HTML = {"Accept": "text/html"}


class FastServer(TestServer):
    """As a replica serves its edge."""

    async def _make_runner(self, **options: Any) -> FastRunner:
        return FastRunner(self.app, **options)


@dataclass
class Replica:
    edge: TestClient
    ops: TestClient
    room: Room
    metrics: Metrics
    turn: Time

    async def check(self, cookie: str | None = None, headers: dict[str, str] | None = None):
        """What nginx asks about a page that somebody wants to see."""
        asked = {"X-Waitroom-Room": self.room.name, **HTML, **(headers or {})}
        if cookie:
            asked["Cookie"] = cookie
        return await self.edge.get("/check", headers=asked)

    async def enters(self) -> str:
        """A visitor who is let in and keeps cookies: theirs."""
        cookie = cookie_of(await self.check())
        assert (await self.check(cookie)).status == 204
        return cookie

    async def status(self, cookie: str, headers: dict[str, str] | None = None):
        path = f"/_waitroom/{self.room.name}/status"
        return await self.edge.get(path, headers={"Cookie": cookie, **(headers or {})})


def cookie_of(response) -> str:
    """What a browser sends after this response."""
    return response.headers["Set-Cookie"].partition(";")[0]


@pytest.fixture
async def replica(redis_socket, aiohttp_client, turn):
    """Makes a replica with one room; settings by name. `beside`: another one of the same room."""
    redis = connect(f"unix://{redis_socket}", timeout_s=5)

    async def make(
        *, event_streams: int = 0, beside: Replica | None = None, **settings: Any
    ) -> Replica:
        file = RoomSettings(**{"total_active_users": 1, **settings})
        if beside:
            file = beside.room.file_settings
        name = beside.room.name if beside else new_room_name()
        clock = TurnedClock(turn)
        store = RoomStore(
            redis, name, settings=attended(file), clock=clock, now_ms=turn,
            replica=new_room_name(), timeout_s=5,
        )  # fmt: skip
        draws = Draws(name, KEYS, DrawsStore(redis, name, timeout_s=5))
        room = Room(name, file, Tokens(name, KEYS, clock), store, clock, draws=draws)
        if file.events:  # as it starts
            await room.refresh()
        metrics = Metrics()
        services = Services(rooms=Rooms([room]), metrics=metrics)
        whole = Settings(secret_keys=KEYS, admin_token=ADMIN_TOKEN, rooms={name: file})
        # A cookie jar would get in the way: tests say which cookie is sent.
        app = edge_app(services, find_share("static"), event_streams=event_streams)
        edge = await aiohttp_client(FastServer(app), cookie_jar=Jar())
        ops = await aiohttp_client(ops_app(services, whole, []))
        return Replica(edge, ops, room, metrics, turn)

    yield make
    await close(redis)


@dataclass
class Service:
    """The ops listener with one limit and one template of leases, of the same name."""

    ops: TestClient
    name: str
    metrics: Metrics
    turn: Time

    async def ask(self, method: str, path: str, body: Any = None, **more: Any):
        """What a program asks; {name} in the path is the limit's or the template's. The answer is
        as the API describes it."""
        # A change of a value or a count is the operator's.
        is_change = method != "GET" and ("/values" in path or "/counts" in path)
        token = more.pop("token", ADMIN_TOKEN if is_change else SERVICE_TOKEN)
        headers = {"Authorization": f"Bearer {token}"}
        path = path.replace("{name}", self.name)
        # As it stands: what is percent-encoded stays so.
        url = URL(f"/v1{path}", encoded=True)
        answer = await self.ops.request(method, url, json=body, headers=headers, **more)
        await check_answer(method, url.raw_path, answer)
        return answer

    async def told(
        self, method: str, path: str, body: Any = None, *, status: int = 200, **more: Any
    ) -> Any:
        """The document of an answer that must have that status."""
        answer = await self.ask(method, path, body, **more)
        document = await answer.json(content_type=None)
        assert answer.status == status, document
        return document


@pytest.fixture
async def service(redis_socket, aiohttp_client, turn):
    """Makes a replica; settings of its limit or its template. `store`: another than the real one.
    Times are the store's, turned by the test; whoever is held waits in real time."""
    stores = []

    def now_us() -> int:
        return turn() * 1000

    async def make(
        *,
        limit: dict[str, Any] | None = None,
        lease: dict[str, Any] | None = None,
        store: str = f"unix://{redis_socket}",
        **settings: Any,
    ) -> Service:
        redis = connect(store, timeout_s=5)
        stores.append(redis)
        name, metrics, clock = new_room_name(), Metrics(), TurnedClock(turn)
        tokens = {"admin_token": ADMIN_TOKEN, "service_token": SERVICE_TOKEN, **settings}
        of = {
            "leases": {name: LeaseSettings(**lease)} if lease else {},
            "limits": {name: LimitSettings(**limit)} if limit else {},
        }
        whole = Settings(secret_keys=KEYS, **tokens, **of)
        limits = [
            Limit(
                name,
                rule,
                LimitStore(redis, name, settings=rule, now_us=now_us, timeout_s=5),
                metrics.of(LimitMetrics),
            )
            for rule in whole.limits.values()
        ]
        leases = [
            Template(
                name, rules, LeaseStore(
                    redis, name, settings=rules, clock=clock, now_ms=turn, timeout_s=5
                ),
                clock, metrics.of(LeaseMetrics),
            )
            for rules in whole.leases.values()
        ]  # fmt: skip
        services = Services(
            rooms=Rooms([]), metrics=metrics, leases=Leases(leases), limits=Limits(limits)
        )
        ops = ops_app(services, whole, [])
        return Service(await aiohttp_client(ops), name, metrics, turn)

    yield make
    for redis in stores:
        await close(redis)


def Jar():  # noqa: N802 - stands for a class
    import aiohttp

    return aiohttp.DummyCookieJar()


async def take_away(site):
    """Every script fails from now on; gives back how to bring it back."""
    scripts = site.room.store._scripts
    send = scripts.send

    async def fail(*_):
        raise OSError("no store")

    scripts.send = fail
    for _ in range(TRIES):
        with pytest.raises(StoreError):
            await site.room.refresh()
    assert site.room.store.is_away
    return lambda: setattr(scripts, "send", send)
