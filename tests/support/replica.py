"""The edge and the ops listener on a real Redis, with a clock that a test sets."""

from dataclasses import dataclass
from typing import Any

import pytest
from aiohttp import DummyCookieJar as Jar
from aiohttp.test_utils import TestClient, TestServer
from yarl import URL

from sidecar.app.routes import Services, create_edge_app, create_ops_app
from sidecar.http.fast_path import FastRunner
from sidecar.http.metrics import Metrics
from sidecar.kit.errors import StoreError
from sidecar.kit.share import find_share
from sidecar.leases.metrics import LeaseMetrics
from sidecar.leases.service import Leases, TemplateLeases
from sidecar.leases.settings import LeaseSettings
from sidecar.leases.store import LeaseStore
from sidecar.limits.metrics import LimitMetrics
from sidecar.limits.service import Limit, Limits
from sidecar.limits.settings import LimitSettings
from sidecar.limits.store import LimitStore
from sidecar.lottery.service import Draws
from sidecar.lottery.store import DrawsStore
from sidecar.rooms.service import WaitingRoom, WaitingRooms
from sidecar.rooms.settings import RoomSettings
from sidecar.rooms.store.scripts import RoomStore
from sidecar.settings.model import Settings
from sidecar.storage.redis.breaker import TRIES
from sidecar.storage.redis.connect import close, connect
from sidecar.visitors.tokens import Tokens
from tests.support.described import check_answer
from tests.support.rooms import FollowingClock, RedisTime, attended, new_room_name

KEYS = ["k" * 32]
ADMIN_TOKEN = "admin-token-for-tests"
SERVICE_TOKEN = "service-token-for-tests"
HTML = {"Accept": "text/html"}


class FastServer(TestServer):
    """A server of the edge, as in a replica."""

    async def _make_runner(self, **options: Any) -> FastRunner:
        return FastRunner(self.app, **options)


@dataclass
class Replica:
    edge: TestClient
    ops: TestClient
    room: WaitingRoom
    metrics: Metrics
    turn: RedisTime

    async def check(self, cookie: str | None = None, headers: dict[str, str] | None = None):
        """Ask as nginx does about a request for a page."""
        asked = {"X-Waitroom-Room": self.room.name, **HTML, **(headers or {})}
        if cookie:
            asked["Cookie"] = cookie
        return await self.edge.get("/check", headers=asked)

    async def enters(self) -> str:
        """Admit a visitor who keeps cookies. Return the cookie."""
        cookie = cookie_of(await self.check())
        assert (await self.check(cookie)).status == 204
        return cookie

    async def status(self, cookie: str, headers: dict[str, str] | None = None):
        path = f"/_waitroom/{self.room.name}/status"
        return await self.edge.get(path, headers={"Cookie": cookie, **(headers or {})})


def cookie_of(response) -> str:
    """Return the cookie that a browser sends after this response."""
    return response.headers["Set-Cookie"].partition(";")[0]


@pytest.fixture
async def replica(redis_socket, aiohttp_client, turn):
    """Return a function that creates a replica with one room, or one `beside` another."""
    redis = connect(f"unix://{redis_socket}", timeout_s=5)

    async def make(
        *, event_streams: int = 0, beside: Replica | None = None, **settings: Any
    ) -> Replica:
        file = RoomSettings(**{"total_active_users": 1, **settings})
        if beside:
            file = beside.room.file_settings
        name = beside.room.name if beside else new_room_name()
        clock = FollowingClock(turn)
        store = RoomStore(
            redis, name, settings=attended(file), clock=clock, now_ms=turn,
            replica=new_room_name(), timeout_s=5,
        )  # fmt: skip
        draws = Draws(name, KEYS, DrawsStore(redis, name, timeout_s=5))
        room = WaitingRoom(name, file, Tokens(name, KEYS, clock), store, clock, draws=draws)
        if file.events:  # as it starts
            await room.refresh()
        metrics = Metrics()
        services = Services(rooms=WaitingRooms([room]), metrics=metrics)
        whole = Settings(secret_keys=KEYS, admin_token=ADMIN_TOKEN, rooms={name: file})
        # A cookie jar would get in the way: tests say which cookie is sent.
        app = create_edge_app(services, find_share("static"), event_streams=event_streams)
        edge = await aiohttp_client(FastServer(app), cookie_jar=Jar())
        ops = await aiohttp_client(create_ops_app(services, whole, []))
        return Replica(edge, ops, room, metrics, turn)

    yield make
    await close(redis)


@dataclass
class Service:
    """The ops listener with one limit and one template of leases, of the same name."""

    ops: TestClient
    name: str
    metrics: Metrics
    turn: RedisTime

    async def ask(self, method: str, path: str, body: Any = None, **more: Any):
        """Make a call of the service API, and check the response against its description. {name}
        in the path is the limit's or the template's."""
        # Only operators may change values and counts.
        is_change = method != "GET" and ("/values" in path or "/counts" in path)
        token = more.pop("token", ADMIN_TOKEN if is_change else SERVICE_TOKEN)
        headers = {"Authorization": f"Bearer {token}"}
        path = path.replace("{name}", self.name)
        # Percent-encoded parts stay encoded.
        url = URL(f"/v1{path}", encoded=True)
        answer = await self.ops.request(method, url, json=body, headers=headers, **more)
        await check_answer(method, url.raw_path, answer)
        return answer

    async def fetch(
        self, method: str, path: str, body: Any = None, *, status: int = 200, **more: Any
    ) -> Any:
        """Make a call whose response must have a status. Return its document."""
        answer = await self.ask(method, path, body, **more)
        document = await answer.json(content_type=None)
        assert answer.status == status, document
        return document


@pytest.fixture
async def service(redis_socket, aiohttp_client, turn):
    """Return a function that creates a replica with a limit or a template of leases. `store` is
    another Redis. A test sets Redis' time; long polls wait in real time."""
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
        name, metrics, clock = new_room_name(), Metrics(), FollowingClock(turn)
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
            TemplateLeases(
                name, rules, LeaseStore(
                    redis, name, settings=rules, clock=clock, now_ms=turn, timeout_s=5
                ),
                clock, metrics.of(LeaseMetrics),
            )
            for rules in whole.leases.values()
        ]  # fmt: skip
        services = Services(
            rooms=WaitingRooms([]), metrics=metrics, leases=Leases(leases), limits=Limits(limits)
        )
        ops = create_ops_app(services, whole, [])
        return Service(await aiohttp_client(ops), name, metrics, turn)

    yield make
    for redis in stores:
        await close(redis)


async def break_redis(site):
    """Make every script fail. Return a function that ends this."""
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
