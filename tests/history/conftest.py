"""Rooms on a real redis-server whose history goes to each kind of database in turn."""

import time
from dataclasses import dataclass

import pytest

from sidecar.history.store.event_stream import EventStream
from sidecar.history.store.stays import History
from sidecar.history.worker import Recorder
from sidecar.http.metrics import Metrics
from sidecar.rooms.service import WaitingRoom
from sidecar.rooms.settings import RoomSettings
from sidecar.rooms.store.scripts import RoomStore
from sidecar.storage.redis.connect import close, connect
from sidecar.storage.sql import database as sql
from sidecar.visitors.tokens import Tokens
from tests.support.databases import KINDS, Sqlite, servers  # noqa: F401 - a fixture
from tests.support.rooms import FollowingClock, RedisTime, attended, new_room_name

PARTITIONS = 16
BACKLOG = 10_000_000


@pytest.fixture(params=KINDS, ids=lambda kind: kind.kind)
def database(request, servers):  # noqa: F811
    return servers(request.param)


@pytest.fixture
def sqlite(tmp_path):
    return Sqlite(tmp_path)


@dataclass
class Recorded:
    """A room, its stream, and the recorder that writes it."""

    room: WaitingRoom
    stream: EventStream
    history: History
    recorder: Recorder
    metrics: Metrics
    turn: RedisTime

    def turn_to_now(self) -> None:
        """For what compares with the real time."""
        self.turn.now_ms = time.time_ns() // 1_000_000 - 60_000

    async def record(self) -> int:
        """All that waits to be written. How many events."""
        total = 0
        while events := await self.recorder.record(self.room, self.stream):
            total += events
        return total


@pytest.fixture
async def open_history():
    """Makes a History on a database; closed when the test ends."""
    opened = []

    async def make(url: str) -> History:
        history = History(sql.open_database(url), partitions=PARTITIONS)
        opened.append(history)
        await history.migrate()
        return history

    yield make
    for history in opened:
        await history.close()


@pytest.fixture
async def redis(redis_socket):
    client = connect(f"unix://{redis_socket}", timeout_s=5)
    yield client
    await close(client)


@pytest.fixture
def record(redis, turn, open_history):
    """Makes a room that is recorded: record(database_url, name=…, owner=…, **settings)."""

    async def make(url: str, *, name: str = "", owner: str = "one", **settings) -> Recorded:
        file = RoomSettings(**{"total_active_users": 1, **settings})
        name, clock = name or new_room_name(), FollowingClock(turn)
        scripts = attended(file, events_kept=BACKLOG)
        store = RoomStore(redis, name, settings=scripts, clock=clock, now_ms=turn, timeout_s=5)
        room = WaitingRoom(name, file, Tokens(name, ["k" * 32], clock), store, clock)
        metrics, history = Metrics(), await open_history(url)
        stream = EventStream(redis, name, owner=owner, timeout_s=5)
        return Recorded(room, stream, history, Recorder(history, metrics), metrics, turn)

    return make
