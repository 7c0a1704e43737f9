"""Scenarios with Redis Sentinel and Redis Cluster: the server with the room's keys dies, or the
keys move to another server."""

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from sidecar.rooms.redis_keys import room_key
from tests.faults.scenarios_store import check_store, wait_until_recovered
from tests.faults.verdict import Row
from tests.faults.world import ROOM, Scale, world
from tests.support.processes import wait_until
from tests.support.redis_servers import ClusterStore, RedisServer, SentinelStore

KEY = room_key(ROOM, "stats")


async def sentinel_failover(scale: Scale) -> Row:
    store = SentinelStore()
    return await _break_store(
        scale, "Sentinel failover (primary killed)", store, lambda: store.kill_primary_of(KEY),
        lambda killed: store.primary_of(KEY) is not killed and store.primary_of(KEY).answers,
    )  # fmt: skip


async def cluster_failover(scale: Scale) -> Row:
    store = ClusterStore()
    return await _break_store(
        scale, "Cluster primary killed", store, lambda: store.kill_primary_of(KEY),
        lambda killed: store.primary_of(KEY) not in {None, killed},
    )  # fmt: skip


async def cluster_slot_moved(scale: Scale) -> Row:
    store = ClusterStore()
    name = "Cluster: the room's slot moved"
    return await _break_store(scale, name, store, lambda: store.move_slot(KEY))


async def _break_store(
    scale: Scale, name: str, store: Any, break_it: Callable[[], RedisServer],
    has_new_primary: Callable[[RedisServer], bool] | None = None,
) -> Row:  # fmt: skip
    """Run a scenario in which `break_it` breaks the store. If it causes a failover, wait until
    `has_new_primary` returns True."""
    with store:
        async with world(name, cap=scale.cap, store=store.url) as run:
            await run.fill(scale)
            await run.collect_calls()
            run.begin_fault()
            server = await asyncio.to_thread(break_it)
            if has_new_primary is None:
                run.end_fault()
                run.note(f"moved within {run.mended - run.broken:.1f} s")
            else:
                is_replaced = partial(_is_true, partial(has_new_primary, server))
                await asyncio.to_thread(wait_until, is_replaced, "a new primary")
                run.note(f"a new primary after {time.time() - run.broken:.1f} s")
            await wait_until_recovered(run, scale)
            await check_store(run)
    return run.row


def _is_true(true: Callable[[], bool]) -> bool:
    """Return `true()`, or False if it raises an exception because a server does not respond."""
    try:
        return bool(true())
    except Exception:  # noqa: BLE001
        return False
