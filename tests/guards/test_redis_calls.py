"""How often a script asks Redis for something, and how many scripts a crowd takes."""

import asyncio

import pytest

from sidecar.kit.clock import StoreClock
from sidecar.rooms.settings import RoomSettings
from sidecar.rooms.store.scripts import RoomStore
from sidecar.storage.redis.connect import close, connect
from sidecar.visitors.model import QueueOutcome, Ticket
from sidecar.visitors.tokens import new_visitor
from tests.support.rooms import new_room_name, without_outages

#: redis.call's of one script, of the most common kind of room.
POLL, POLL_IN_BATCH, JOIN, ARRIVAL = 11, 1.2, 22, 21
#: Those who ask at the same moment, whose polls are one script.
TOGETHER = 64


class Redis:
    """Counts the commands that others than this send and call."""

    def __init__(self, client) -> None:
        self._client = client

    async def _calls(self) -> dict[str, int]:
        found = await self._client.info("commandstats")
        return {name.removeprefix("cmdstat_"): each["calls"] for name, each in found.items()}

    async def count(self, asked) -> tuple[int, int]:
        """Await `asked`. Return the numbers of scripts sent meanwhile, and of their commands."""
        before = await self._calls()
        await asked
        after = await self._calls()
        took = {name: calls - before.get(name, 0) for name, calls in after.items()}
        scripts = sum(took.pop(name, 0) for name in ("evalsha", "fcall"))
        took.pop("info")
        took.pop("hello", None)  # of a connection that was opened meanwhile
        return scripts, sum(took.values())


@pytest.fixture
async def client(redis_socket):
    client = connect(f"unix://{redis_socket}", timeout_s=5)
    yield client
    await close(client)


@pytest.fixture
def redis(client):
    return Redis(client)


@pytest.fixture
def store(client, turn):
    """Return a function that creates the store of a plain room with a number of slots."""

    def make(slots: int) -> RoomStore:
        settings = without_outages(RoomSettings(total_active_users=slots))
        return RoomStore(
            client, new_room_name(), settings=settings, clock=StoreClock(), now_ms=turn, timeout_s=5
        )

    return make


async def arrive(store, number: int) -> list[Ticket]:
    """Let visitors arrive. Return the tickets of those who have to wait."""
    visitors = [new_visitor() for _ in range(number)]
    standings = await asyncio.gather(*(store.enter(visitor) for visitor in visitors))
    return [
        Ticket(visitor, standing.order, standing.now_ms, standing.epoch)
        for visitor, standing in zip(visitors, standings, strict=True)
        if standing.outcome is QueueOutcome.WAITING
    ]


async def test_a_poll(store, redis, turn):
    """A waiting visitor polls when told to."""
    full = store(1)
    tickets = await arrive(full, 10)
    turn.forward(20)
    await full.beat(tickets[0])  # what had to be done by the clock is done
    scripts, calls = await redis.count(full.beat(tickets[5]))
    assert scripts == 1
    assert calls <= POLL, calls


async def test_polls_together(store, redis, turn):
    """64 polls at once are one script, and share its fixed costs."""
    full = store(1)
    tickets = await arrive(full, 1 + TOGETHER)
    turn.forward(20)
    await full.beat(tickets[0])
    polls = asyncio.gather(*(full.beat(ticket) for ticket in tickets))
    scripts, calls = await redis.count(polls)
    assert scripts == 1
    assert calls <= POLL + POLL_IN_BATCH * TOGETHER, calls / TOGETHER


@pytest.mark.parametrize(("slots", "bound"), [(1, JOIN), (1_000, ARRIVAL)])
async def test_a_join(store, redis, slots, bound):
    """Of a newcomer, into a full room and into one with a free slot."""
    room = store(slots)
    await arrive(room, 10)
    scripts, calls = await redis.count(room.enter(new_visitor()))
    assert scripts == 1
    assert calls <= bound, calls
