"""Redis Sentinel and Cluster: the room's server dies, or the room moves to another."""

import asyncio
import time
from collections.abc import Callable

from sidecar.rooms.redis_keys import room_key
from tests.faults.scenarios_store import back_again, must_know_all
from tests.faults.verdict import Row
from tests.faults.world import ROOM, Scale, world
from tests.support.redis_servers import ClusterStore, SentinelStore

KEY = room_key(ROOM, "stats")


async def sentinel_failover(scale: Scale) -> Row:
    with SentinelStore() as store:
        name = "Sentinel failover (primary killed)"
        async with world(name, cap=scale.cap, store=store.url) as run:
            await run.fill(scale)
            await run.harvest()
            run.breaks()
            killed = await asyncio.to_thread(store.kill_primary)
            await _until(lambda: store.primary() is not killed and store.primary().answers)
            run.note(f"a new primary after {time.time() - run.broken:.1f} s")
            await back_again(run, scale)
            await must_know_all(run)
    return run.row


async def cluster_failover(scale: Scale) -> Row:
    with ClusterStore() as store:
        name = "Cluster primary killed"
        async with world(name, cap=scale.cap, store=store.url) as run:
            await run.fill(scale)
            await run.harvest()
            run.breaks()
            killed = await asyncio.to_thread(store.kill_primary_of, KEY)
            await _until(lambda: store.primary_of(KEY) not in {None, killed})
            run.note(f"a new primary after {time.time() - run.broken:.1f} s")
            await back_again(run, scale)
            await must_know_all(run)
    return run.row


async def cluster_slot_moved(scale: Scale) -> Row:
    with ClusterStore() as store:
        name = "Cluster: the room's slot moved"
        async with world(name, cap=scale.cap, store=store.url) as run:
            await run.fill(scale)
            await run.harvest()
            run.breaks()
            await asyncio.to_thread(store.move_slot, KEY)
            run.mends()
            run.note(f"moved within {run.mended - run.broken:.1f} s")
            await back_again(run, scale)
            await must_know_all(run)
    return run.row


async def _until(true: Callable[[], bool], timeout_s: float = 30) -> None:
    async with asyncio.timeout(timeout_s):
        while not await asyncio.to_thread(_quietly, true):
            await asyncio.sleep(0.1)


def _quietly(true: Callable[[], bool]) -> bool:
    """Evaluate a condition; False if its server does not respond."""
    try:
        return bool(true())
    except Exception:  # noqa: BLE001
        return False
