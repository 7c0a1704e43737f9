"""The edge and the ops listener over a real redis-server, with a clock to turn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer
from yarl import URL

from sidecar.base.leases import LeaseSettings
from sidecar.base.limits import LimitSettings
from sidecar.base.metrics import Metrics
from sidecar.base.rooms import RoomSettings
from sidecar.base.settings import Settings
from sidecar.base.tokens import Tokens
from sidecar.core.draw import Draws
from sidecar.core.leases import Leases, Template
from sidecar.core.limits import Limit, Limits
from sidecar.core.rooms import Room, Rooms
from sidecar.store.connect import close, connect
from sidecar.store.leases import LeaseStore
from sidecar.store.limits import LimitStore
from sidecar.store.rooms import RoomStore
from sidecar.web.fast_path import FastRunner
from sidecar.web.page import find_static
from sidecar.web.routes import edge_app, ops_app
from tests.conftest import Time, TurnedClock, attended, new_room_name
from tests.web.described import check_answer

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

    async def status(self, cookie: str):
        path = f"/_waitroom/{self.room.name}/status"
        return await self.edge.get(path, headers={"Cookie": cookie})


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
            replica=new_room_name(),
        )  # fmt: skip
        draws = Draws(name, KEYS)
        room = Room(name, file, Tokens(name, KEYS, clock), store, clock, draws=draws)
        if file.events:  # as it starts
            await room.refresh()
        rooms, metrics = Rooms([room]), Metrics()
        whole = Settings(secret_keys=KEYS, admin_token=ADMIN_TOKEN, rooms={name: file})
        # A cookie jar would get in the way: tests say which cookie is sent.
        app = edge_app(rooms, metrics, find_static(), event_streams=event_streams)
        edge = await aiohttp_client(FastServer(app), cookie_jar=Jar())
        ops = await aiohttp_client(ops_app(whole, rooms, metrics, []))
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
        # A change of a value is the operator's.
        is_change = method != "GET" and "/values" in path
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
            Limit(name, rule, LimitStore(redis, name, settings=rule, now_us=now_us), metrics)
            for rule in whole.limits.values()
        ]
        leases = [
            Template(
                name, rules, LeaseStore(redis, name, settings=rules, clock=clock, now_ms=turn),
                clock, metrics,
            )
            for rules in whole.leases.values()
        ]  # fmt: skip
        ops = ops_app(whole, Rooms([]), metrics, [], leases=Leases(leases), limits=Limits(limits))
        return Service(await aiohttp_client(ops), name, metrics, turn)

    yield make
    for redis in stores:
        await close(redis)


def Jar():  # noqa: N802 - stands for a class
    import aiohttp

    return aiohttp.DummyCookieJar()
