"""Runs a replica's edge and ops listeners in this process, on a redis-server, with a clock that a
test sets."""

import asyncio
import json
import re
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
from aiohttp import DummyCookieJar as Jar
from aiohttp.test_utils import TestClient, TestServer
from jsonschema import Draft202012Validator
from yarl import URL

from sidecar.app.openapi.document import build_document
from sidecar.app.replica import make_subscriber
from sidecar.app.routes import Services, create_edge_app, create_ops_app
from sidecar.http.fast_path import FastRunner
from sidecar.http.long_poll import LONG_POLLS
from sidecar.http.metrics import Metrics
from sidecar.kit.errors import StoreError
from sidecar.kit.share import find_share
from sidecar.kit.tasks import stop_workers
from sidecar.leases.metrics import LeaseMetrics
from sidecar.leases.service import Leases, TemplateLeases
from sidecar.leases.settings import LeaseSettings
from sidecar.leases.store import LeaseStore
from sidecar.leases.visitor_leases import Resources
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
from tests.support.receiver import until
from tests.support.rooms import FollowingClock, RedisTime, new_room_name, without_outages

KEYS = ["k" * 32]
ADMIN_TOKEN = "admin-token-for-tests"
SERVICE_TOKEN = "service-token-for-tests"
HTML = {"Accept": "text/html"}


class FastServer(TestServer):
    """A test server for the edge listener, with the same aiohttp runner as a replica. Unlike
    aiohttp's test server, it does not cancel the handler of a client that hangs up."""

    async def _make_runner(self, **options: Any) -> FastRunner:
        return FastRunner(self.app, **options | {"handler_cancellation": False})


@dataclass
class Replica:
    """HTTP clients of a replica's two listeners, and its room, metrics and clock."""

    edge: TestClient
    ops: TestClient
    room: WaitingRoom
    metrics: Metrics
    turn: RedisTime

    async def check(self, cookie: str | None = None, headers: dict[str, str] | None = None):
        """Ask for a verdict on a page request, as nginx does."""
        asked = {"X-Waitroom-Room": self.room.name, **HTML, **(headers or {})}
        if cookie:
            asked["Cookie"] = cookie
        return await self.edge.get("/check", headers=asked)

    async def enters(self) -> str:
        """Admit a visitor who sends the cookie back. Return the cookie."""
        cookie = cookie_of(await self.check())
        assert (await self.check(cookie)).status == 204
        return cookie

    async def status(self, cookie: str, headers: dict[str, str] | None = None):
        """Poll as the waiting page does."""
        path = f"/_waitroom/{self.room.name}/status"
        return await self.edge.get(path, headers={"Cookie": cookie, **(headers or {})})


def cookie_of(response) -> str:
    """Return the value of the Cookie header that a browser sends after this response."""
    return response.headers["Set-Cookie"].partition(";")[0]


async def log_in(site, name="Night shift", token=ADMIN_TOKEN, headers=None):
    """Log an operator in to the dashboard. Return the response."""
    form = {"name": name, "token": token}
    return await site.ops.post(
        "/dashboard/login", data=form, headers=headers or {}, allow_redirects=False
    )


@pytest.fixture
async def replica(redis_socket, aiohttp_client, turn):
    """Return a function that creates a replica with one room. If `beside` is another replica, both
    serve the same room. `access` has settings of tokens and scopes."""
    redis = connect(f"unix://{redis_socket}", timeout_s=5)

    async def make(
        *,
        event_streams: int = 0,
        beside: Replica | None = None,
        access: dict[str, Any] | None = None,
        **settings: Any,
    ) -> Replica:
        file = RoomSettings(**{"total_active_users": 1, **settings})
        if beside:
            file = beside.room.file_settings
        name = beside.room.name if beside else new_room_name()
        clock = FollowingClock(turn)
        store = RoomStore(
            redis, name, settings=without_outages(file), clock=clock, now_ms=turn,
            replica=new_room_name(), timeout_s=5,
        )  # fmt: skip
        draws = Draws(name, KEYS, DrawsStore(redis, name, timeout_s=5))
        room = WaitingRoom(name, file, Tokens(name, KEYS, clock), store, clock, draws=draws)
        # A replica does this at its start.
        if file.events:
            await room.refresh()
        metrics = Metrics()
        services = Services(rooms=WaitingRooms([room]), metrics=metrics)
        whole = Settings(
            secret_keys=KEYS, admin_token=ADMIN_TOKEN, rooms={name: file}, **(access or {})
        )
        # Tests pass cookies themselves, so the client has no cookie jar.
        app = create_edge_app(services, find_share("static"), event_streams=event_streams)
        edge = await aiohttp_client(FastServer(app), cookie_jar=Jar())
        ops = await aiohttp_client(create_ops_app(services, whole, []))
        return Replica(edge, ops, room, metrics, turn)

    yield make
    await close(redis)


@dataclass
class Service:
    """Clients of a replica's two listeners. The replica has a limit and a lease template, both
    called `name`."""

    edge: TestClient
    ops: TestClient
    name: str
    metrics: Metrics
    turn: RedisTime

    async def ask(self, method: str, path: str, body: Any = None, **more: Any):
        """Call the service API. Check the response against the OpenAPI document, and return it.

        "{name}" in the path stands for the name of the limit and the lease template.
        """
        # Only operators may change values and counts.
        is_change = method != "GET" and ("/values" in path or "/counts" in path)
        token = more.pop("token", ADMIN_TOKEN if is_change else SERVICE_TOKEN)
        headers = {"Authorization": f"Bearer {token}", **more.pop("headers", {})}
        path = path.replace("{name}", self.name)
        # Percent-encoded parts stay encoded.
        url = URL(f"/v1{path}", encoded=True)
        response = await self.ops.request(method, url, json=body, headers=headers, **more)
        await check_response(method, url.raw_path, response)
        return response

    async def fetch(
        self, method: str, path: str, body: Any = None, *, status: int = 200, **more: Any
    ) -> Any:
        """Call the service API. Return the response's JSON body. Fail unless it has this status."""
        response = await self.ask(method, path, body, **more)
        document = await response.json(content_type=None)
        assert response.status == status, document
        return document

    async def errors(self, method: str, path: str, body: Any = None, **more: Any) -> list[str]:
        """Send a request that is not allowed. Return the errors in the response."""
        document = await self.fetch(method, path, body, status=422, **more)
        assert document["title"] == "The request is not allowed"
        return document["errors"]

    async def hang_up(self, path: str, body: dict[str, Any]) -> None:
        """Send a POST request, and disconnect while its response is held."""
        server, text = self.ops.server, json.dumps(body)
        _, writer = await asyncio.open_connection(server.host, server.port)
        writer.write(
            f"POST /v1{path.replace('{name}', self.name)} HTTP/1.1\r\nHost: a\r\n"
            f"Authorization: Bearer {SERVICE_TOKEN}\r\nContent-Length: {len(text)}\r\n\r\n"
            f"{text}".encode()
        )
        polls = server.app[LONG_POLLS]
        await until(lambda: len(polls) == 1, "the request")
        writer.close()
        await until(lambda: len(polls) == 0, "its end")


@pytest.fixture
async def service(redis_socket, aiohttp_client, turn):
    """Return a function that creates a Service with the settings of a limit, a lease template, or
    both. `store` is the URL of Redis. Holders are woken unless `is_deaf`. Without a `name`, each
    has a new one.

    A test sets Redis' time, but long polls wait in real time.
    """
    stores, subscribers = [], []

    def now_us() -> int:
        return turn() * 1000

    async def make(
        *,
        limit: dict[str, Any] | None = None,
        lease: dict[str, Any] | None = None,
        store: str = f"unix://{redis_socket}",
        is_deaf: bool = False,
        name: str = "",
        **settings: Any,
    ) -> Service:
        redis = connect(store, timeout_s=5)
        stores.append(redis)
        name, metrics, clock = name or new_room_name(), Metrics(), FollowingClock(turn)
        tokens = {"admin_token": ADMIN_TOKEN, "service_token": SERVICE_TOKEN, **settings}
        products = {
            "leases": {name: LeaseSettings(**lease)} if lease else {},
            "limits": {name: LimitSettings(**limit)} if limit else {},
        }
        whole = Settings(secret_keys=KEYS, **tokens, **products)
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
            rooms=WaitingRooms([]), metrics=metrics, leases=Leases(leases), limits=Limits(limits),
            resources=Resources(leases, KEYS),
        )  # fmt: skip
        if leases and not is_deaf:
            subscribers.append(asyncio.create_task(make_subscriber(redis, services.leases).run()))
        edge = create_edge_app(services, find_share("static"))
        clients = [
            await aiohttp_client(app, cookie_jar=Jar())
            for app in (edge, create_ops_app(services, whole, []))
        ]
        return Service(*clients, name, metrics, turn)

    yield make
    await stop_workers(*subscribers)
    for redis in stores:
        await close(redis)


@cache
def _openapi_path_patterns() -> list[tuple[re.Pattern[str], dict[str, Any]]]:
    """Return pairs of a pattern and a path item of the OpenAPI document. Paths without parameters
    come first."""
    paths = sorted(build_document()["paths"].items(), key=lambda item: item[0].count("{"))
    return [(re.compile(re.sub(r"\{\w+\}", "[^/]+", path)), item) for path, item in paths]


def _resolve(part: dict[str, Any]) -> dict[str, Any]:
    """Return the object that a $ref refers to, or the object itself if it has none."""
    for name in part.get("$ref", "#").split("/")[1:]:
        part = _components() if name == "components" else part[name]
    return part


@cache
def _components() -> dict[str, Any]:
    return build_document()["components"]


@cache
def _validator(schema: str) -> Draft202012Validator:
    return Draft202012Validator({**json.loads(schema), "components": _components()})


def _check(schema: dict[str, Any], value: Any) -> None:
    _validator(json.dumps(schema)).validate(value)


async def check_response(method: str, path: str, response: Any) -> None:
    """Fail if a response differs from the OpenAPI document in status, content type, headers or
    body. Operations that are not in the document are not checked."""
    patterns = _openapi_path_patterns()
    item = next((item for pattern, item in patterns if pattern.fullmatch(path)), {})
    if method.lower() not in item or response.status == 405:
        return
    described = item[method.lower()]["responses"]
    assert str(response.status) in described, f"{method} {path}: {response.status} is not described"
    description = _resolve(described[str(response.status)])
    content = description["content"][response.content_type]
    _check(content["schema"], json.loads(await response.read()))
    for name, header in description.get("headers", {}).items():
        described_header = _resolve(header)
        assert name in response.headers or not described_header.get("required"), (
            f"{method} {path}: no {name}"
        )
        if name in response.headers:
            value = response.headers[name]
            is_number = described_header["schema"].get("type") == "integer"
            _check(described_header["schema"], int(value) if is_number else value)


async def break_redis(site):
    """Make all Redis scripts of a replica's room fail, until its circuit breaker opens. Return a
    function that repairs them."""
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
