"""The benchmark of jobs: what it compares, and a few real jobs."""

import asyncio
import re

from loadtest.databases import open_database
from loadtest.jobs.systems import CountingNginx, Waitroom
from tests.support.site import ROOT, SocketRedis
from tests.support.target import run_target


def test_arq_has_what_we_have_but_for_redis():
    """Its versions are those of constraints.txt, other than of redis-py and what that needs."""

    def pins(path: str) -> dict[str, str]:
        text = (ROOT / path).read_text().replace("_", "-")
        return dict(re.findall(r"^([\w.-]+)(?:\[\w+\])?==([^\s;]+)", text, re.MULTILINE))

    ours, theirs = pins("constraints.txt"), pins("loadtest/jobs/arq.txt")
    assert len(theirs) > 10
    assert {name for name in theirs if theirs[name] != ours.get(name)} == {"arq", "redis", "PyJWT"}


async def test_a_few_jobs_for_real(tmp_path):
    """They are submitted by several callers, called once each, and done; one alone is seen."""
    with (
        SocketRedis() as redis,
        CountingNginx() as target,
        open_database("sqlite") as database,
        run_target(tmp_path) as single,
    ):
        async with (
            target.counter() as counter,
            Waitroom(redis.url, database, url=target.url, bell=f"{single.url}ok") as system,
        ):
            for submitting in (system.submit(7, 4), system.submit_list(5)):
                first, last = await submitting
                assert first < last
            await counter.start()
            assert await counter.count_calls() == 0
            system.start_worker()
            began, ended = await system.run_job(is_watched=True)
            [call] = single.calls()
            assert began < call["began_ns"] / 1e9 < ended
            while await counter.count_calls() < 12:
                await asyncio.sleep(0.02)
            done = 0
            while done < 13:
                await asyncio.sleep(0.02)
                done += await system.count_done()
            assert (done, await counter.count_calls()) == (13, 12)
