"""Fixtures for tests of the history: rooms on a redis-server, recorded in each kind of database."""

from dataclasses import dataclass

import pytest
from sqlalchemy import func, select

from sidecar.history.model import Stay
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
from tests.support.rooms import FollowingClock, RedisTime, new_room_name, without_outages

PARTITIONS = 16
#: Number of events that a room's stream may have.
BACKLOG = 10_000_000


@pytest.fixture(params=KINDS, ids=lambda kind: kind.kind)
def database(request, servers):  # noqa: F811
    return servers(request.param)


@pytest.fixture
def sqlite(tmp_path):
    return Sqlite(tmp_path)


@dataclass
class Recorded:
    """A room, its event stream, and the recorder that writes the events to the history."""

    room: WaitingRoom
    stream: EventStream
    history: History
    recorder: Recorder
    metrics: Metrics
    turn: RedisTime

    async def count(self, table) -> int:
        """Count the room's rows in a table."""
        query = select(func.count()).select_from(table).where(table.c.room == self.room.name)
        async with sql.begin(self.history._engine) as connection:
            return (await connection.execute(query)).scalar_one()

    async def entry(self, visitor: str) -> Stay | None:
        return await self.history.find_stay(self.room.name, visitor)

    async def record(self) -> int:
        """Write all new events to the history. Return their number."""
        total = 0
        while events := await self.recorder.record(self.room, self.stream):
            total += events
        return total


@pytest.fixture
async def open_history():
    """Return a function that opens a History on a database. It is closed when the test ends."""
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
    """Return a function that creates a room with these settings, and a recorder called `owner` that
    writes to the database at `url`."""

    async def make(url: str, *, name: str = "", owner: str = "one", **settings) -> Recorded:
        file = RoomSettings(**{"total_active_users": 1, **settings})
        name, clock = name or new_room_name(), FollowingClock(turn)
        scripts = without_outages(file, events_kept=BACKLOG)
        store = RoomStore(redis, name, settings=scripts, clock=clock, now_ms=turn, timeout_s=5)
        room = WaitingRoom(name, file, Tokens(name, ["k" * 32], clock), store, clock)
        metrics, history = Metrics(), await open_history(url)
        stream = EventStream(redis, name, owner=owner, timeout_s=5)
        return Recorded(room, stream, history, Recorder(history, metrics), metrics, turn)

    return make
