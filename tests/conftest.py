"""What every test may use: a redis-server of the session's own, and a clock to turn."""

from __future__ import annotations

import itertools
import math
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import hypothesis
import pytest

pytest.register_assert_rewrite("tests.support")


from sidecar.kit.clock import StoreClock
from sidecar.kit.redis import functions
from sidecar.kit.redis.connect import close, connect
from sidecar.rooms.settings import RoomSettings
from sidecar.rooms.store.scripts import RoomStore
from tests.support.processes import Process, wait_until
from tests.support.unit import Guard, mark_servers

# Hypothesis looks at answers, not at the time they take on a busy machine.
hypothesis.settings.register_profile("unhurried", deadline=None)
hypothesis.settings.load_profile("unhurried")

_numbers = itertools.count()

#: Files that take longest. They are begun first, so that no worker is left alone with one.
LONGEST = (
    "queue/test_simulation.py",
    "support/room_machine.py",
    "browser/test_gate.py",
    "api/test_openapi.py",
    "jobs/test_story.py",
    "jobs/test_faults.py",
    "history/test_recorder.py",
    "faults/test_quick.py",
    "browser/test_dashboard.py",
    "proxies/test_story.py",
)


_guard = Guard()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Those that start a server are marked. The longest files first; the order within a file
    stays."""
    mark_servers(items)
    here = Path(__file__).parent

    def place(item):
        name = item.path.relative_to(here).as_posix()
        return LONGEST.index(name) if name in LONGEST else len(LONGEST)

    items.sort(key=place)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """A test without the mark starts no process."""
    with _guard.during(item):
        return (yield)


class Time:
    """The store's time, turned by the test."""

    def __init__(self, now_ms: int = 1_800_000_000_000) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms

    def forward(self, seconds: float) -> None:
        self.now_ms += round(seconds * 1000)


class TurnedClock(StoreClock):
    """The replica's clock when it has just heard from the store."""

    def __init__(self, turn: Time) -> None:
        super().__init__()
        self._turn = turn

    def now_ms(self) -> int:
        return self._turn.now_ms

    def observe(self, store_ms: int) -> None:
        pass


@pytest.fixture(scope="session")
def redis_socket():
    """The socket of a redis-server that lives as long as the test session."""
    binary = shutil.which("redis-server")
    if binary is None:
        pytest.fail("redis-server is not installed; run make install")
    with tempfile.TemporaryDirectory(prefix="waitroom-test-") as folder:
        socket = Path(folder) / "redis.sock"
        command = [
            binary,
            "--port",
            "0",
            "--unixsocket",
            str(socket),
            "--save",
            "",
            "--dir",
            folder,
        ]
        with Process(command, log=Path(folder) / "redis.log"):
            wait_until(socket.exists, "redis-server's socket")
            wait_until(lambda: _ping(socket), "redis-server's answer")
            yield socket


def _ping(socket: Path) -> bool:
    done = subprocess.run(
        ["redis-cli", "-s", str(socket), "ping"], capture_output=True, check=False, timeout=5
    )
    return done.stdout.strip() == b"PONG"


@pytest.fixture(params=[pytest.param("redis", marks=pytest.mark.server), "memory"])
def store_url(request):
    """Each kind of store in turn. Rooms are named apart, so nothing is ever flushed."""
    if request.param == "memory":
        return "memory://"
    return f"unix://{request.getfixturevalue('redis_socket')}"


@pytest.fixture
async def redis(store_url):
    client = connect(store_url, timeout_s=5)
    yield client
    await close(client)


@pytest.fixture
def turn():
    return Time()


def attended(settings: RoomSettings, **more: int) -> str:
    """For a clock that a test turns: replicas are there all the time, running no script."""
    return settings.for_scripts(outage_ms=10**12, **more)


@pytest.fixture
def make_room_store(redis, turn):
    """Makes the store of a new room; settings by name."""

    def make(*, room: str | None = None, **settings) -> RoomStore:
        settings = {"total_active_users": 1, **settings}
        return RoomStore(
            redis,
            room or new_room_name(),
            settings=attended(RoomSettings(**settings)),
            clock=StoreClock(),
            now_ms=turn,
            timeout_s=5,
        )

    return make


def refuse_functions(redis) -> None:
    """As if the client's store took none: its scripts go by EVALSHA."""
    functions.known_of(redis).refused_until = math.inf


def new_room_name() -> str:
    return f"t{next(_numbers)}-{time.time_ns()}"
