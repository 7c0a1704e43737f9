"""Fixtures for all tests (Redis, replicas, a clock), and hooks that mark and sort the tests."""

import gc
import os
import shutil
import signal
from collections import Counter

import hypothesis
import pytest
from fakeredis.commands_mixins import scripting_mixin

pytest.register_assert_rewrite("tests.support")


from sidecar.kit.clock import StoreClock
from sidecar.rooms.settings import RoomSettings
from sidecar.rooms.store.scripts import RoomStore
from sidecar.storage.redis.connect import close, connect
from tests.support.replica import replica, service
from tests.support.rooms import RedisTime, new_room_name, without_outages
from tests.support.site import SocketRedis
from tests.support.tiers import is_full_file, mark_full
from tests.support.unit import Guard, mark_servers

# Hypothesis does not check how long a test takes, because the machine may be busy. Its examples are
# always the same, so that no change fails by chance, unless WAITROOM_TEST_EXAMPLES is set.
hypothesis.settings.register_profile(
    "unhurried", deadline=None, derandomize="WAITROOM_TEST_EXAMPLES" not in os.environ
)
hypothesis.settings.load_profile("unhurried")


class CachingRuntime(scripting_mixin.LUA_MODULE.LuaRuntime):
    """A Lua runtime for fakeredis that compiles each script only once, as Redis does.

    The default runtime compiles the script, and collects garbage, on every call. A script's local
    variables are new on every call in either case.
    """

    def execute(self, code, *arguments):
        if code == "collectgarbage()":
            return None
        compiled = self.__dict__.setdefault("compiled", {})
        if code not in compiled:
            compiled[code] = self.compile(code)
        return compiled[code](*arguments)


scripting_mixin.LUA_MODULE.LuaRuntime = CachingRuntime

# In background jobs of a shell, SIGINT is ignored. Processes that tests start would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# Under `nohup`, SIGHUP is. A handler, unlike SIG_IGN, is not inherited, and the tests still go on.
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)

#: The key in pytest's cache for the durations of test files.
SECONDS_KEY = "waitroom/seconds"

__all__ = ["replica", "service"]

_guard = Guard()


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Exclude the collected tests from garbage collection, because they live until the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_ignore_collect(collection_path, config):
    """Ignore files that `make test` does not run, because their imports may not be installed."""
    is_left_out = "not full" in config.option.markexpr and is_full_file(collection_path)
    return True if is_left_out else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Mark the tests, and sort them so that the slowest files come first and the workers end at
    about the same time.

    A file's weight is its duration in the last run, or else its number of tests with servers.
    """
    mark_servers(items)
    mark_full(items)
    servers = Counter(item.path for item in items if item.get_closest_marker("server"))
    seconds = config.cache.get(SECONDS_KEY, {})

    def weight(item):
        return seconds.get(item.nodeid.partition("::")[0], 0), servers[item.path]

    items.sort(key=weight, reverse=True)


_seconds: Counter[str] = Counter()


def pytest_runtest_logreport(report):
    _seconds[report.nodeid.partition("::")[0]] += report.duration


def pytest_sessionfinish(session):
    """Store the durations of test files, if this is the process that receives all reports."""
    if not hasattr(session.config, "workerinput"):
        known = session.config.cache.get(SECONDS_KEY, {})
        session.config.cache.set(SECONDS_KEY, {**known, **_seconds})


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """Fail a test that starts a process without the mark `server`."""
    with _guard.during(item):
        return (yield)


@pytest.fixture(scope="session")
def redis_socket():
    """Return the path of the unix socket of a redis-server that runs until the session ends."""
    if shutil.which("redis-server") is None:
        pytest.fail("redis-server is not installed; run make install")
    with SocketRedis() as server:
        yield server.socket


@pytest.fixture(params=[pytest.param("redis", marks=pytest.mark.server), "memory"])
def store_url(request):
    """Return the URL of a redis-server, or of a store in memory. A test runs once with each. Tests
    share both, and so must use different names."""
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
    """Return the fake of Redis' time, which a test sets."""
    return RedisTime()


@pytest.fixture
def make_room_store(redis, turn):
    """Return a function that creates the store of a new room from the room's settings."""

    def make(*, room: str | None = None, **settings) -> RoomStore:
        settings = {"total_active_users": 1, **settings}
        return RoomStore(
            redis,
            room or new_room_name(),
            settings=without_outages(RoomSettings(**settings)),
            clock=StoreClock(),
            now_ms=turn,
            timeout_s=5,
        )

    return make


@pytest.fixture(scope="module", params=[False, True], ids=["kept", "stamps"])
def stamps(request: pytest.FixtureRequest) -> bool:
    """Return whether nginx admits visitors by stamps. Otherwise it does by cached verdicts."""
    return bool(request.param)
