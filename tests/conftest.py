"""Fixtures that every test may use: a redis-server of the session, replicas, a clock to turn."""

import gc
import os
import shutil
import signal
import subprocess
import tempfile
from collections import Counter
from pathlib import Path

import hypothesis
import pytest

pytest.register_assert_rewrite("tests.support")


from sidecar.kit.clock import StoreClock
from sidecar.rooms.settings import RoomSettings
from sidecar.rooms.store.scripts import RoomStore
from sidecar.storage.redis.connect import close, connect
from tests.support.memory import compile_scripts_once
from tests.support.processes import Process, listens, wait_until
from tests.support.replica import replica, service
from tests.support.rooms import RedisTime, attended, new_room_name
from tests.support.tiers import is_full_file, mark_full
from tests.support.unit import Guard, mark_servers

# Hypothesis looks at answers, not at the time they take on a busy machine.
# The same cases each time, so that no change fails by chance; others where somebody looks longer.
hypothesis.settings.register_profile(
    "unhurried", deadline=None, derandomize="WAITROOM_TEST_EXAMPLES" not in os.environ
)
hypothesis.settings.load_profile("unhurried")
compile_scripts_once()

# A shell ignores it for what it starts in the background, and so would all that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

#: Where the seconds of each file in the last run are kept.
SECONDS = "waitroom/seconds"

__all__ = ["replica", "service"]

_guard = Guard()


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """What is collected stays until the end: the garbage collector need not look at it."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_ignore_collect(collection_path, config):
    """What make test leaves out need not be importable there."""
    is_left_out = "not full" in config.option.markexpr and is_full_file(collection_path)
    return True if is_left_out else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Mark tests that start a server, and begin with the longest files, so that no worker is left
    alone with one: by the last run, or by their servers. The order within a file stays."""
    mark_servers(items)
    mark_full(items)
    servers = Counter(item.path for item in items if item.get_closest_marker("server"))
    seconds = config.cache.get(SECONDS, {})

    def weight(item):
        return seconds.get(_file(item.nodeid), 0), servers[item.path]

    items.sort(key=weight, reverse=True)


_seconds: Counter[str] = Counter()


def pytest_runtest_logreport(report):
    _seconds[_file(report.nodeid)] += report.duration


def pytest_sessionfinish(session):
    """The process that all reports reach writes them down."""
    if not hasattr(session.config, "workerinput"):
        known = session.config.cache.get(SECONDS, {})
        session.config.cache.set(SECONDS, {**known, **_seconds})


def _file(nodeid: str) -> str:
    return nodeid.partition("::")[0]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """A test without the mark starts no process."""
    with _guard.during(item):
        return (yield)


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
            wait_until(lambda: listens(socket), "redis-server's socket")
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
    return RedisTime()


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


@pytest.fixture(scope="module", params=[False, True], ids=["kept", "stamps"])
def stamps(request: pytest.FixtureRequest) -> bool:
    """An admitted visitor passes by what nginx keeps, or by a stamp that the browser brings."""
    return bool(request.param)
