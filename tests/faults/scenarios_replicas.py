"""Scenarios with faults of nginx and of replicas."""

import asyncio
import signal
import sys
import time

from tests.faults.verdict import Row
from tests.faults.visitors import STAYS, Plan
from tests.faults.world import REPLICAS, Scale, world
from tests.support.processes import SHIFTED, Process

#: A response that takes longer counts as late. nginx waits 3 s for a replica that hangs.
LATE_S = 2.5


async def kill_one(scale: Scale) -> Row:
    """Kill one of three replicas, and start it again."""
    async with world("kill -9 one of three replicas under load", cap=scale.cap) as run:
        await run.fill(scale)
        run.begin_fault()
        run.site.replicas[1].kill()
        await asyncio.sleep(scale.after_s / 2)
        await run.start_replica(1)
        await asyncio.sleep(scale.after_s / 2)
        run.note("started again half-way")
    return run.row


async def hang_one(scale: Scale) -> Row:
    """Freeze a replica, so that nginx waits 3 s and asks another replica.

    The share of late responses must not exceed the replica's share of requests.
    """
    async with world("one of three replicas hangs", cap=scale.cap) as run:
        await run.fill(scale)
        run.begin_fault()
        run.site.replicas[1].freeze()
        await asyncio.sleep(scale.after_s)
        run.site.replicas[1].thaw()
        run.end_fault()
        await asyncio.sleep(scale.after_s / 2)
        for what in ("status", "page"):
            entries = [e for d in run.crowd.diaries for e in d.entries
                    if e.what == what and run.broken < e.sent < run.mended]  # fmt: skip
            late = sum(e.seconds > LATE_S for e in entries)
            run.must(f"{late} of {len(entries)} answers were late ({what})",
                     late <= 0.4 * len(entries))  # fmt: skip
            run.note(f"{what}: {late} of {len(entries)} answers took more than {LATE_S:g} s")
    return run.row


async def rolling_restart(scale: Scale) -> Row:
    async with world("rolling restart of all replicas", cap=scale.cap) as run:
        await run.fill(scale)
        run.begin_fault()
        for number in range(REPLICAS):
            began = time.monotonic()
            await run.stop_replica(number)
            stopped = time.monotonic()
            await run.start_replica(number)
            run.note(f"replica {number}: {stopped - began:.1f} s to stop, "
                     f"{time.monotonic() - stopped:.1f} s to start")  # fmt: skip
        run.end_fault()
        await asyncio.sleep(scale.after_s / 2)
    return run.row


async def all_down(scale: Scale) -> Row:
    """Stop all replicas. Until they are back, visitors must get the waiting page. Only where
    $waitroom_on_failure is "admit" they must get the site."""
    async with world("all replicas down", cap=scale.cap) as run:
        await run.fill(scale)
        run.begin_fault()
        for replica in run.site.replicas:
            replica.kill()
        await asyncio.sleep(0.2)
        let_in = [run.crowd.add(Plan(path="/open")) for _ in range(5)]
        await asyncio.sleep(scale.after_s / 3)
        entries = [e for d in run.crowd.diaries for e in d.entries
                if e.sent > run.broken + 0.2 and d not in let_in]  # fmt: skip
        paused = [e for e in entries if e.ours and e.status == 503]
        run.must("nobody saw the waiting page", any(e.what == "page" for e in paused))
        run.must("the switch did not let everybody in",
                 all(e.state == "admitted" for d in let_in for e in d.entries)
                 and all(d.entries for d in let_in))  # fmt: skip
        run.crowd.dismiss(let_in)
        for replica in run.site.replicas:
            replica.start()
        await run.until_ready()
        run.end_fault()
        run.expect_503(until=run.mended + 1)
        run.note(f"down for {run.mended - run.broken:.1f} s, the replicas' start included")
        run.note(f"{len(paused)} of {len(entries)} answers meanwhile were the page or a problem"
                 " with 503, the others verdicts that nginx had kept")  # fmt: skip
        await asyncio.sleep(scale.after_s)
    return run.row


async def reload_nginx(scale: Scale) -> Row:
    async with world("nginx reloaded", cap=scale.cap) as run:
        await run.fill(scale)
        run.begin_fault()
        for _ in range(1 if scale.quick else 3):
            run.site.nginx.signal(signal.SIGHUP)
            await asyncio.sleep(scale.after_s / 3)
        run.end_fault()
        await asyncio.sleep(scale.after_s / 3)
    return run.row


async def wrong_clock(scale: Scale) -> Row:
    """Run a replica whose clock is an hour ahead, and then one whose clock is an hour behind."""
    async with world("clock of one replica an hour off", cap=scale.cap) as run:
        await run.fill(scale)
        run.begin_fault()
        for shift in (3600, -3600):
            await run.stop_replica(2)
            config = run.site.folder / "replica-2.toml"
            command = [sys.executable, str(SHIFTED), str(shift), "serve", "--config", str(config)]
            with Process(command, log=run.site.folder / "replica-2.log") as shifted:
                await run.until_ready([2])
                await run.crowd.arrive(10, STAYS, per_second=10)
                await asyncio.sleep(scale.after_s)
                asked = await run.requests_at(2)
                run.must("the shifted replica was not asked", asked > 50)
                run.note(f"{shift:+d} s: {asked:.0f} requests")
                await asyncio.to_thread(shifted.stop)
            await run.start_replica(2)
        run.end_fault()
        await asyncio.sleep(scale.after_s / 3)
    return run.row
