"""How long the live answer takes: where somebody is now, as the store knows it."""

import asyncio
import time

from loadtest.redis_server import fill_line, fill_sessions, redis_server
from sidecar.kit.clock import StoreClock
from sidecar.rooms.settings import RoomSettings
from sidecar.rooms.store.scripts import RoomStore


async def measure_live(waiting: int, number: int) -> list[float]:
    """ms of asking the store where somebody is, in a room where so many wait."""
    taken = []
    async with redis_server() as server:
        await fill_sessions(server.redis, "hot", 1000)
        line = await fill_line(server.redis, "hot", waiting)
        settings = RoomSettings(total_active_users=1000).for_scripts()
        store = RoomStore(server.redis, "hot", settings=settings, clock=StoreClock(), timeout_s=5)
        for i in range(number):
            visitor = line[i * 7919 % len(line)][1].visitor
            began = time.perf_counter()
            found = await store.lists.find(visitor)
            taken.append(1000 * (time.perf_counter() - began))
            if found.position is None:
                raise RuntimeError(f"{visitor} does not wait")
            await asyncio.sleep(0)
    return taken
