"""Scenarios with faults of a single Redis server: a restart, lost data, a hanging process, and full
memory."""

import asyncio
import time
from dataclasses import replace

from sidecar.rooms.redis_keys import room_key
from tests.faults.diary import PASS, TICKET, Diary, Entry
from tests.faults.verdict import FINE, Row, is_admitted_without_redis
from tests.faults.visitors import STAYS
from tests.faults.world import REPLICAS, ROOM, Scale, World, world
from tests.support.redis_servers import RedisServer

#: For this time after the beginning of the fault, responses from before it may still arrive.
UNDER_WAY_S = 1.0


def needs_redis(entry: Entry) -> bool:
    """Return True if a request gets a problem document while Redis is unavailable: if the visitor
    has no cookie, or wants to leave."""
    return entry.token is None or entry.what == "leave"


async def restarted(scale: Scale) -> Row:
    name = "Redis restarted (AOF)"
    with RedisServer(aof=True) as redis:
        async with world(name, cap=scale.cap, store=redis.url) as run:
            await run.fill(scale)
            run.begin_fault()
            await asyncio.to_thread(redis.process.stop)
            await asyncio.to_thread(redis.start)
            run.end_fault()
            run.note(f"away for {run.mended - run.broken:.1f} s")
            await wait_until_recovered(run, scale)
    return run.row


async def older(scale: Scale) -> Row:
    """Restart Redis with older data, as from a backup. Newer sessions exist only in cookies."""
    seconds = 3 if scale.quick else 20
    name = f"Redis restarted with data {seconds} s old (RDB)"
    with RedisServer() as redis:
        async with world(name, cap=scale.cap, store=redis.url) as run:
            await run.fill(scale)
            await asyncio.to_thread(redis.cli, "save")
            await asyncio.sleep(seconds)
            await run.collect_calls()
            run.begin_fault()
            await asyncio.to_thread(redis.kill)
            await asyncio.to_thread(redis.start)
            run.end_fault()
            came = sum(call.at > run.broken - seconds for call in run.calls)
            run.note(f"{came} visitors were called in the time that was lost")
            await wait_until_recovered(run, scale)
            await check_store(run)
            run.note(f"Redis counted up to {max(run.sessions, default=0)} sessions: of some that"
                     " had run out meanwhile it knew nothing")  # fmt: skip
            # The origin's log shows that no more visitors were inside.
            run.sessions.clear()
    return run.row


async def emptied(scale: Scale) -> Row:
    return await _lose_data(scale, "Redis emptied (FLUSHALL)", "flushall")


async def evicted(scale: Scale) -> Row:
    """Delete the key `active`, as Redis may do with the eviction policy allkeys-lru."""
    key = room_key(ROOM, "active")
    return await _lose_data(scale, "Redis evicts the sessions (DEL)", "del", key)


async def _lose_data(scale: Scale, name: str, *command: str) -> Row:
    """Run a scenario in which a Redis command deletes data while the room is full."""
    if scale.quick:
        scale = replace(scale, stay=30, pass_by=20, waiting=200)
        settings = {"recovery_window": 6, "heartbeat_interval": 3}
    else:
        scale = replace(scale, stay=60, pass_by=40, waiting=1000, before_s=12)
        settings = {}
    name = f"{name}, {scale.waiting:,} waiting, full room"
    with RedisServer() as redis:
        async with world(name, cap=scale.cap, store=redis.url, settings=settings) as run:
            await run.fill(scale)
            await run.collect_calls()
            before = [d for d in run.crowd.diaries if _read_kind(d, time.time()) == TICKET]
            run.must("not enough waited", len(before) >= 0.9 * scale.waiting)
            run.begin_fault()
            await asyncio.to_thread(redis.cli, *command)
            longest = max(_read_refresh_s(d, run.broken) for d in before)
            run.note(f"session_duration 30 s; {len(before)} waited, told to ask again within"
                     f" {longest:.0f} s at most")  # fmt: skip
            await run.until_recovered()
            left = run.broken + 1.05 * longest + 3 - time.time()
            await asyncio.sleep(max(left, scale.after_s))
            _check_return(run, before)
            await _check_call(run)
            await check_store(run)
    return run.row


async def stopped(scale: Scale) -> Row:
    """Stop Redis while a room has free slots, which replicas may then fill by themselves
    (on_store_failure)."""
    seconds = 3 if scale.quick else 30
    cap, inside = 100, 60
    with RedisServer() as redis:
        name = f"Redis stopped for {seconds} s (SIGSTOP)"
        # With a shorter window, replicas would not hear of all visitors inside, because nginx
        # caches verdicts.
        settings = {"recovery_window": 4} if scale.quick else {}
        async with world(name, cap=cap, store=redis.url, settings=settings) as run:
            await run.crowd.arrive(inside, STAYS)
            await run.until(lambda: run.crowd.inside >= inside, "60 inside")
            await asyncio.sleep(max(scale.before_s, 2))
            insiders = list(run.crowd.diaries)
            run.begin_fault()
            redis.pause()
            run.crowd.keep_coming(15 if scale.quick else 3, STAYS)
            await asyncio.sleep(seconds)
            redis.resume()
            run.end_fault()
            times = [e.seconds for d in insiders for e in d.entries
                     if run.broken + 1 < e.sent < run.mended and e.what == "page"]  # fmt: skip
            # Replicas admit newcomers until they notice that Redis is back, and some responses have
            # not arrived yet.
            for _ in range(25):
                counted = sum(await run.metrics("waitroom_let_in_alone_total"))
                came = run.crowd.diaries[inside:]
                alone = [d for d in came if any(map(is_admitted_without_redis, d.entries))]
                if counted == len(alone):
                    break
                await asyncio.sleep(0.2)
            p99 = sorted(times)[int(len(times) * 0.99)]
            run.note(f"insiders from 1 s after the stop: {len(times)} requests, p99"
                     f" {p99 * 1000:.0f} ms, slowest {max(times) * 1000:.0f} ms")  # fmt: skip
            run.note(f"{len(alone)} newcomers let in meanwhile, {cap - inside} slots were free")
            # A request that waits for Redis takes 0.5 s. In a short run the machine may be slow.
            run.must(
                f"p99 of those inside was {p99 * 1000:.0f} ms", p99 < (0.4 if scale.quick else 0.1)
            )
            run.must("too many newcomers were let in", len(alone) <= cap - inside)
            run.must(f"waitroom_let_in_alone_total says {counted:.0f} of {len(alone)}",
                     counted == len(alone))  # fmt: skip
            run.must("nobody was let in", bool(alone))
            await wait_until_recovered(run, scale)
            await check_store(run)
    return run.row


async def refuses_writes(scale: Scale) -> Row:
    """Let Redis refuse writes while a room is full. Nobody may be admitted or lose a place."""
    seconds = 3 if scale.quick else 10
    name = f"Redis refuses writes (maxmemory) for {seconds} s"
    with RedisServer() as redis:
        async with world(name, cap=scale.cap, store=redis.url) as run:
            await run.fill(scale)
            run.begin_fault()
            await asyncio.to_thread(redis.config_set, "maxmemory", "1")
            await asyncio.sleep(seconds)
            away = await run.metrics("waitroom_store_away")
            run.must(f"waitroom_store_away says {away}", away == [1] * REPLICAS)
            for number, replica in enumerate(run.site.replicas):
                run.must(f"replica {number} did not log it", '"store_away"' in replica.output)
            await asyncio.to_thread(redis.config_set, "maxmemory", "0")
            run.end_fault()
            entered = [d.name for d in run.crowd.diaries if _has_entered(d, run)]
            run.must(f"{len(entered)} were let in past the line", not entered)
            run.note("metric and log say so at every replica; nobody was let in past the line")
            await wait_until_recovered(run, scale)
    return run.row


async def wait_until_recovered(run: World, scale: Scale) -> None:
    """Wait until all replicas have recovered, and continue the run for a while."""
    await run.until_recovered()
    run.expect_503(until=time.time(), whom=needs_redis)
    await asyncio.sleep(scale.after_s)


async def check_store(run: World) -> None:
    """Check that Redis has about as many places and sessions as visitors have cookies for them."""
    room = await run.room()
    known = (room["active"], room["waiting"]) if room else (0, 0)
    held = run.crowd.inside, run.crowd.waiting
    # A few visitors have just been called, have just joined, or have left without a request.
    run.must(f"the store knows {known} inside and in line, the visitors {held}",
             known[0] >= held[0] - 3 and sum(known) >= sum(held) - 5)  # fmt: skip


def _check_return(run: World, before: list[Diary]) -> None:
    late, latest = [], 0.0
    for diary in before:
        back = next((e.received for e in diary.entries
                     if e.sent > run.broken and e.status in FINE), None)  # fmt: skip
        due = run.broken + 2 * 1.05 * _read_refresh_s(diary, run.broken)
        if back is None or back > due:
            late.append(diary.name)
        else:
            latest = max(latest, back - run.broken)
    run.must(f"{len(late)} not back within two refreshes ({late[:3]})", not late)
    run.note(f"the last of those in line was back after {latest:.1f} s")


async def _check_call(run: World) -> None:
    end = time.time() + 15
    while True:
        await run.collect_calls()
        after = min((call.at for call in run.calls if call.at > run.broken), default=None)
        if after is not None:
            run.note(f"the next was called {after - run.broken:.1f} s after")
            return
        if time.time() > end:
            run.must("nobody was called after", truth=False)
            return
        await asyncio.sleep(0.5)


def _read_kind(diary: Diary, moment: float) -> str:
    held = diary.held_at(moment)
    return held.kind if held else ""


def _read_refresh_s(diary: Diary, moment: float) -> float:
    refreshes_s = [e.refresh_s for e in diary.entries if e.refresh_s and e.sent <= moment]
    return refreshes_s[-1] if refreshes_s else 5.0


def _has_entered(diary: Diary, run: World) -> bool:
    """Return True if a visitor got a pass while Redis was unavailable."""
    first = next((e for e in diary.entries if e.token and e.token.kind == PASS), None)
    return first is not None and run.broken + UNDER_WAY_S < first.received < run.mended
