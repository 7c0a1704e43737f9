"""Faults of a single Redis: restarted, emptied, stopped, full."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace

from sidecar.rooms.redis_keys import room_key
from tests.faults.diary import PASS, TICKET, Diary, Entry
from tests.faults.verdict import FINE, Row, is_let_in_alone
from tests.faults.visitors import STAYS
from tests.faults.world import REPLICAS, ROOM, Scale, World, world
from tests.support.redis_servers import RedisServer

#: Claims in this time before the fault may be lost.
UNDER_WAY_S = 1.0


def placeless(entry: Entry) -> bool:
    """Return True for a request that needs Redis: a visitor without a cookie, or who leaves. While
    it is unavailable they get a problem document."""
    return entry.token is None or entry.what == "leave"


async def restarted(scale: Scale) -> Row:
    name = "Redis restarted (AOF)"
    with RedisServer(aof=True) as redis:
        async with world(name, cap=scale.cap, store=redis.url) as run:
            await run.fill(scale)
            run.breaks()
            await asyncio.to_thread(redis.restart)
            run.mends()
            run.note(f"away for {run.mended - run.broken:.1f} s")
            await back_again(run, scale)
    return run.row


async def older(scale: Scale) -> Row:
    """Restart Redis with older data, as from a backup: newer sessions are only in cookies."""
    seconds = 3 if scale.quick else 20
    name = f"Redis restarted with data of {seconds} s ago (RDB)"
    with RedisServer() as redis:
        async with world(name, cap=scale.cap, store=redis.url) as run:
            await run.fill(scale)
            await asyncio.to_thread(redis.cli, "save")
            await asyncio.sleep(seconds)
            await run.harvest()
            run.breaks()
            await asyncio.to_thread(redis.kill)
            await asyncio.to_thread(redis.start)
            run.mends()
            came = sum(call.at > run.broken - seconds for call in run.calls)
            run.note(f"{came} visitors were called in the time that was lost")
            await back_again(run, scale)
            await must_know_all(run)
            run.note(f"Redis counted up to {max(run.sessions, default=0)} sessions: of some that"
                     " had run out meanwhile it knew nothing")  # fmt: skip
            run.sessions.clear()  # no more were inside by the site's own log
    return run.row


async def emptied(scale: Scale) -> Row:
    return await _forgets(scale, "Redis emptied (FLUSHALL)", RedisServer.flush)


async def evicted(scale: Scale) -> Row:
    """Delete `active`, as allkeys-lru may do seconds before it deletes `stats`."""

    def evict(redis: RedisServer) -> None:
        redis.delete(room_key(ROOM, "active"))

    return await _forgets(scale, "Redis evicts the sessions (DEL)", evict)


async def _forgets(scale: Scale, name: str, lose: Callable[[RedisServer], None]) -> Row:
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
            await run.harvest()
            before = [d for d in run.crowd.diaries if _kind(d, time.time()) == TICKET]
            run.must("not enough waited", len(before) >= 0.9 * scale.waiting)
            run.breaks()
            await asyncio.to_thread(lose, redis)
            longest = max(_refresh(d, run.broken) for d in before)
            run.note(f"session_duration 30 s; {len(before)} waited, told to ask again within"
                     f" {longest:.0f} s at most")  # fmt: skip
            await run.until_recovered()
            left = run.broken + 1.05 * longest + 3 - time.time()
            await asyncio.sleep(max(left, scale.after_s))
            _must_be_back(run, before)
            await _must_be_called(run)
            await must_know_all(run)
    return run.row


async def stopped(scale: Scale) -> Row:
    """Stop Redis while a room has free slots, which the policy may give."""
    seconds = 3 if scale.quick else 30
    cap, inside = 100, 60
    with RedisServer() as redis:
        name = f"Redis stopped for {seconds} s (SIGSTOP)"
        # Longer than nginx keeps a verdict: who is inside is not heard of sooner.
        settings = {"recovery_window": 4} if scale.quick else {}
        async with world(name, cap=cap, store=redis.url, settings=settings) as run:
            await run.crowd.arrive(inside, STAYS)
            await run.until(lambda: run.crowd.inside >= inside, "60 inside")
            await asyncio.sleep(max(scale.before_s, 2))
            insiders = list(run.crowd.diaries)
            run.breaks()
            redis.pause()
            run.crowd.keep_coming(15 if scale.quick else 3, STAYS)
            await asyncio.sleep(seconds)
            redis.resume()
            run.mends()
            times = [e.seconds for d in insiders for e in d.entries
                     if run.broken + 1 < e.sent < run.mended and e.what == "page"]  # fmt: skip
            # Until a replica has found that Redis is back, it lets newcomers in; and some
            # answers are on their way.
            for _ in range(25):
                counted = sum(await run.metrics("waitroom_let_in_alone_total"))
                came = run.crowd.diaries[inside:]
                alone = [d for d in came if any(map(is_let_in_alone, d.entries))]
                if counted == len(alone):
                    break
                await asyncio.sleep(0.2)
            p99 = sorted(times)[int(len(times) * 0.99)]
            run.note(f"insiders from 1 s after the stop: {len(times)} requests, p99"
                     f" {p99 * 1000:.0f} ms, slowest {max(times) * 1000:.0f} ms")  # fmt: skip
            run.note(f"{len(alone)} newcomers let in meanwhile, {cap - inside} slots were free")
            # Who had to wait for the store would wait for 0.5 s. In short machines may stand still.
            run.must(
                f"p99 of those inside was {p99 * 1000:.0f} ms", p99 < (0.4 if scale.quick else 0.1)
            )
            run.must("too many newcomers were let in", len(alone) <= cap - inside)
            run.must(f"waitroom_let_in_alone_total says {counted:.0f} of {len(alone)}",
                     counted == len(alone))  # fmt: skip
            run.must("nobody was let in", bool(alone))
            await back_again(run, scale)
            await must_know_all(run)
    return run.row


async def refuses_writes(scale: Scale) -> Row:
    """Let Redis refuse writes while a room is full: nobody is admitted or loses anything."""
    seconds = 3 if scale.quick else 10
    name = f"Redis refuses writes (maxmemory) for {seconds} s"
    with RedisServer() as redis:
        async with world(name, cap=scale.cap, store=redis.url) as run:
            await run.fill(scale)
            run.breaks()
            await asyncio.to_thread(redis.config_set, "maxmemory", "1")
            await asyncio.sleep(seconds)
            away = await run.metrics("waitroom_store_away")
            run.must(f"waitroom_store_away says {away}", away == [1] * REPLICAS)
            for number, replica in enumerate(run.site.replicas):
                run.must(f"replica {number} did not log it", '"store_away"' in replica.output)
            await asyncio.to_thread(redis.config_set, "maxmemory", "0")
            run.mends()
            entered = [d.name for d in run.crowd.diaries if _entered(d, run)]
            run.must(f"{len(entered)} were let in past the line", not entered)
            run.note("metric and log say so at every replica; nobody was let in past the line")
            await back_again(run, scale)
    return run.row


async def back_again(run: World, scale: Scale) -> None:
    """Wait until the replicas have recovered, and let the run go on."""
    await run.until_recovered()
    run.expect_status(503, until=time.time(), whom=placeless)
    await asyncio.sleep(scale.after_s)


async def must_know_all(run: World) -> None:
    """Check that Redis has the same places and sessions as the visitors' cookies."""
    room = await run.room()
    known = (room["active"], room["waiting"]) if room else (0, 0)
    held = run.crowd.inside, run.crowd.waiting
    # Some are called and do not know it yet, some have just come, some went silently.
    run.must(f"the store knows {known} inside and in line, the visitors {held}",
             known[0] >= held[0] - 3 and sum(known) >= sum(held) - 5)  # fmt: skip


def _must_be_back(run: World, before: list[Diary]) -> None:
    late, latest = [], 0.0
    for diary in before:
        back = next((e.received for e in diary.entries
                     if e.sent > run.broken and e.status in FINE), None)  # fmt: skip
        due = run.broken + 2 * 1.05 * _refresh(diary, run.broken)
        if back is None or back > due:
            late.append(diary.name)
        else:
            latest = max(latest, back - run.broken)
    run.must(f"{len(late)} not back within two refreshes ({late[:3]})", not late)
    run.note(f"the last of those in line was back after {latest:.1f} s")


async def _must_be_called(run: World, within_s: float = 15) -> None:
    end = time.time() + within_s
    while True:
        await run.harvest()
        after = min((call.at for call in run.calls if call.at > run.broken), default=None)
        if after is not None:
            run.note(f"the next was called {after - run.broken:.1f} s after")
            return
        if time.time() > end:
            run.must("nobody was called after", truth=False)
            return
        await asyncio.sleep(0.5)


def _kind(diary: Diary, moment: float) -> str:
    held = diary.held_at(moment)
    return held.kind if held else ""


def _refresh(diary: Diary, moment: float) -> float:
    told = [e.refresh_s for e in diary.entries if e.refresh_s and e.sent <= moment]
    return told[-1] if told else 5.0


def _entered(diary: Diary, run: World) -> bool:
    """Return True for a visitor who got a pass while Redis was unavailable."""
    first = next((e for e in diary.entries if e.token and e.token.kind == PASS), None)
    return first is not None and run.broken + UNDER_WAY_S < first.received < run.mended
