"""The outages of outages.py in real time. Each has its own site and visitors."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial

from tests.faults.diary import PASS, TICKET
from tests.faults.outages import CAP, OUTAGES, STAY_S, WAITING, Outage
from tests.faults.scenarios_store import needs_redis
from tests.faults.verdict import Overtaking, Row, is_admitted_without_redis, overtaking
from tests.faults.visitors import Plan
from tests.faults.world import Scale, World, world
from tests.support.redis_servers import RedisServer

#: After this time a replica knows how often visitors near the head of the queue poll.
BEFORE_S = 75.0
AFTER_S = 100.0
#: Number of outages that run at the same time. Most of the time they sleep.
AT_A_TIME = 5
LIMIT_S = 600.0
#: Time that replicas take to start, which is part of the outage.
START_S = 3.0
#: In outages up to this length Redis hangs. In longer outages it stops and starts again.
HANGS_S = 60.0

WAITS = Plan(stay_s=(STAY_S, STAY_S), think_s=(1, 4), says_goodbye=1, backs_off=True)


async def all_outages(scale: Scale) -> list[Row]:
    """Run all outages, the longest first."""
    free = asyncio.Semaphore(AT_A_TIME)

    async def one(outage: Outage) -> Row:
        async with free:
            return await alone(outage, scale)

    longest = sorted(OUTAGES, key=lambda outage: -outage.seconds)
    rows = dict(zip(longest, await asyncio.gather(*map(one, longest)), strict=True))
    return [rows[outage] for outage in OUTAGES]


async def alone(outage: Outage, _: Scale) -> Row:
    """Run an outage. If it raises an exception, return a row that does not hold."""
    began = time.monotonic()
    try:
        async with asyncio.timeout(LIMIT_S):
            return await _play(outage)
    except Exception as error:  # noqa: BLE001
        reason = f"{type(error).__name__}: {error}"
        return Row(
            outage.name, broken=[reason], seconds=time.monotonic() - began, overtaking=Overtaking()
        )


#: Scenarios by the number of their row.
EACH: dict[str, Callable[[Scale], Awaitable[Row]]] = {
    f"outage-{number}": partial(alone, outage) for number, outage in enumerate(OUTAGES, 1)
}


async def _play(outage: Outage) -> Row:
    settings = {"session_duration": outage.session_s}
    # Syncing less often keeps a slow disk out of the test. At its end, a server writes all data.
    with RedisServer("--appendfsync", "everysec", aof=not outage.loses_data) as redis:
        async with world(outage.name, cap=CAP, store=redis.url, settings=settings) as run:
            await _fill(run, outage)
            run.breaks()
            waited = [d for d in run.crowd.diaries if (t := d.held_at(run.broken))
                      and t.kind == TICKET]  # fmt: skip
            run.must(f"{len(waited)} waited before", len(waited) == WAITING)
            if not outage.insiders_stay:
                run.crowd.dismiss(run.crowd.diaries[:CAP])
            await _outage(run, redis, outage)
            run.mends()
            is_known = needs_redis if outage.replicas == "up" else lambda _: True
            run.expect_status(503, until=run.mended + 3, whom=is_known)
            await asyncio.sleep(1)
            run.crowd.keep_coming(1, WAITS)
            await asyncio.sleep(AFTER_S)
    _judge(run)
    return run.row


async def _fill(run: World, outage: Outage) -> None:
    """Those inside who stay go one after the other when the outage is over for some seconds:
    until then nobody is called."""
    for number in range(CAP):
        stay_s = BEFORE_S + outage.seconds + 15 + 2 * number
        run.crowd.add(Plan(stay_s=(stay_s, stay_s), think_s=(1, 4), says_goodbye=1))
    began = time.monotonic()
    await run.until(lambda: run.crowd.inside >= CAP, "a full room")
    await run.crowd.arrive(WAITING, WAITS, per_second=20)
    await asyncio.sleep(began + BEFORE_S - time.monotonic())


async def _outage(run: World, redis: RedisServer, outage: Outage) -> None:
    hangs = outage.seconds <= HANGS_S and not outage.loses_data
    if outage.redis:
        await asyncio.to_thread(redis.pause if hangs else redis.process.stop)
    if outage.replicas == "down":
        await _kill_replicas(run)
    start_s = 0.0 if outage.replicas == "up" else START_S
    await asyncio.sleep(run.broken + outage.seconds - start_s - time.time())
    if outage.replicas == "restarted":
        await _kill_replicas(run)
    if outage.redis:
        await asyncio.to_thread(redis.resume if hangs else redis.start)
    if outage.replicas != "up":
        for replica in run.site.replicas:
            replica.start()
        await run.until_ready()


async def _kill_replicas(run: World) -> None:
    for replica in run.site.replicas:
        await asyncio.to_thread(replica.kill)


def _judge(run: World) -> None:
    run.row.overtaking = Overtaking()
    if not run.mended:
        return  # it did not come so far, and says so
    diaries = run.crowd.diaries
    found = overtaking(diaries, run.calls, broken=run.broken, mended=run.mended)
    run.row.overtaking = found
    run.row.broken += found.problems()
    alone_in = sum(any(map(is_admitted_without_redis, diary.entries)) for diary in diaries[CAP:])
    run.must(f"{alone_in} were let in by a replica alone", not alone_in)
    inside = sum(bool((t := d.held_at(run.broken)) and t.kind == PASS) for d in diaries)
    run.must(f"{inside} inside before", inside == CAP)
    newcomers = len(diaries) - CAP - WAITING
    run.note(f"{run.row.requests:,} requests, {newcomers} newcomers; {found.called} of {WAITING}"
             f" were called in {AFTER_S:.0f} s; peak {run.row.peak}")  # fmt: skip
