"""Scenarios that run the outages of outages.py in real time, each with a site of its own."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial

from tests.faults.diary import PASS, TICKET
from tests.faults.outages import CAP, OUTAGES, STAY_S, WAITING, Outage
from tests.faults.scenarios_store import needs_redis
from tests.faults.verdict import Overtaking, Row, count_overtaking, is_admitted_without_redis
from tests.faults.visitors import Plan
from tests.faults.world import Scale, World, world
from tests.support.redis_servers import RedisServer

#: The time before the outage, in which replicas learn how often visitors near the head poll.
BEFORE_S = 75.0
#: The time after the outage for which the run continues.
AFTER_S = 100.0
#: Number of outages that run at the same time. They mostly sleep.
AT_A_TIME = 5
LIMIT_S = 600.0
#: The time that replicas take to start, which is part of the outage.
START_S = 3.0
#: In outages up to this length Redis hangs. In longer outages it is stopped and started again.
HANGS_S = 60.0

WAITS = Plan(stay_s=(STAY_S, STAY_S), think_s=(1, 4), says_goodbye=1, backs_off=True)


async def all_outages(scale: Scale) -> list[Row]:
    """Run all outages, the longest first."""
    free = asyncio.Semaphore(AT_A_TIME)

    async def run_when_free(outage: Outage) -> Row:
        async with free:
            return await run_outage(outage, scale)

    longest = sorted(OUTAGES, key=lambda outage: -outage.seconds)
    rows = dict(zip(longest, await asyncio.gather(*map(run_when_free, longest)), strict=True))
    return [rows[outage] for outage in OUTAGES]


async def run_outage(outage: Outage, _: Scale) -> Row:
    """Run an outage. If it raises an exception, return a row that says so."""
    began = time.monotonic()
    try:
        async with asyncio.timeout(LIMIT_S):
            return await _run(outage)
    except Exception as error:  # noqa: BLE001
        reason = f"{type(error).__name__}: {error}"
        return Row(
            outage.name, broken=[reason], seconds=time.monotonic() - began, overtaking=Overtaking()
        )


#: A scenario for each outage, by the number of its row in the report.
EACH: dict[str, Callable[[Scale], Awaitable[Row]]] = {
    f"outage-{number}": partial(run_outage, outage) for number, outage in enumerate(OUTAGES, 1)
}


async def _run(outage: Outage) -> Row:
    settings = {"session_duration": outage.session_s}
    # Redis syncs only once a second, so that a slow disk does not matter. It stops gracefully, and
    # then writes all its data.
    with RedisServer("--appendfsync", "everysec", aof=not outage.loses_data) as redis:
        async with world(outage.name, cap=CAP, store=redis.url, settings=settings) as run:
            await _fill(run, outage)
            run.begin_fault()
            waited = [d for d in run.crowd.diaries if (t := d.held_at(run.broken))
                      and t.kind == TICKET]  # fmt: skip
            run.must(f"{len(waited)} waited before", len(waited) == WAITING)
            if not outage.insiders_stay:
                run.crowd.dismiss(run.crowd.diaries[:CAP])
            await _outage(run, redis, outage)
            run.end_fault()
            is_known = needs_redis if outage.replicas == "up" else lambda _: True
            run.expect_503(until=run.mended + 3, whom=is_known)
            await asyncio.sleep(1)
            run.crowd.keep_coming(1, WAITS)
            await asyncio.sleep(AFTER_S)
    _judge(run)
    return run.row


async def _fill(run: World, outage: Outage) -> None:
    """Fill the room and the queue. Visitors inside who stay leave one after the other, from some
    seconds after the outage on, because before that nobody is called."""
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
        return  # The run failed before the outage, and the row says so.
    diaries = run.crowd.diaries
    held = [token for diary in diaries if (token := diary.held_at(run.broken))]
    orders = {token.visitor: token.order for token in held if token.kind == TICKET}
    calls = [call for call in run.calls if call.at > run.broken]
    found = count_overtaking(orders, calls, run.mended)
    run.row.overtaking = found
    run.row.broken += found.problems()
    alone_in = sum(any(map(is_admitted_without_redis, diary.entries)) for diary in diaries[CAP:])
    run.must(f"{alone_in} were let in by a replica alone", not alone_in)
    inside = sum(token.kind == PASS for token in held)
    run.must(f"{inside} inside before", inside == CAP)
    newcomers = len(diaries) - CAP - WAITING
    run.note(f"{run.row.requests:,} requests, {newcomers} newcomers; {found.called} of {WAITING}"
             f" were called in {AFTER_S:.0f} s; peak {run.row.peak}")  # fmt: skip
