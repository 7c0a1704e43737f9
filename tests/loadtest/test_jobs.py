"""The benchmark of jobs: its report, its arithmetic, and a few real jobs."""

import asyncio
import json
import os
import re
import subprocess
import sys
import time

from loadtest.databases import open_database
from loadtest.jobs import report
from loadtest.jobs.idle import Idle
from loadtest.jobs.measure import CALLERS, QUICK, Figures, Rate, Single
from loadtest.jobs.systems import Waitroom
from loadtest.jobs.target import Bell, Target
from loadtest.machine import cpu_ns
from tests.loadtest.reports import MACHINE
from tests.support.site import ROOT, SocketRedis

OURS = "Waitroom, SQLite"


def figures() -> Figures:
    made = Figures(QUICK, ["arq", OURS], poll_delay_s=0.05, loads=[0.5])
    made.versions = {"arq": "0.28", "arq's redis-py": "5.3", "our redis-py": "8.1"}
    for what in (*(f"submit {callers}" for callers in CALLERS), "execute", "both"):
        for system, fast in (("arq", 2), (OURS, 1)):
            rates = [
                Rate(fast * speed, {"worker": 500, "caller": 2000}) for speed in (90, 100, 400)
            ]
            made.rates[what, system] = rates
    made.rates["submit list", OURS] = [Rate(5000, {"replica": 100})] * 3
    for system in made.systems:
        made.singles[system, "watched"] = [Single(4, 9), Single(5, 11), Single(6, 50)]
        made.singles[system, "reported"] = [Single(5, 250)]
    made.idle = [Idle("arq", 60, 70, 120, None), Idle("Waitroom, 20 targets", 400, 90, 180, 150)]
    return made


def test_the_report_has_medians_and_says_what_was_wrong(tmp_path):
    """Of three rounds the one in the middle, CPU in ms, what is missing left empty."""
    made = figures()
    made.problems.append("arq: 9 of 10 jobs were done")
    text = report.report(made).write(tmp_path, MACHINE)
    assert "a CPU, 2 cores" in text
    assert "**arq: 9 of 10 jobs were done.**" in text
    assert f"| submitted, 16 callers | {OURS} | 100 | ±155% | 2.00 |  | 0.50 |  |  |" in text
    assert f"| submitted as lists of 100 | {OURS} | 5,000 | ±0% |" in text
    assert "submitted as lists of 100 | arq" not in text
    # Whoever watches a queue being worked off is no caller.
    assert f"| executed | {OURS} | 100 | ±155% |  |  | 0.50 |  |  |" in text
    assert f"| {OURS} | 5 | 11 | 250 |" in text
    assert "| Waitroom, 20 targets | 400 | 90 | 180 | 150 |" in text
    document = json.loads((tmp_path / "data/jobs.json").read_text())
    assert document["machine"]["cpu"] == "a CPU"
    assert "| executed | 200 | 100 |" in report.section(made)
    assert "| submitted as lists of 100 |  | 5,000 |" in report.section(made)


def test_cpu_time_is_that_of_all_threads():
    """What this process burns is in it, and what its children do, where that is asked for."""
    pid = [os.getpid()]
    before, ends = cpu_ns(pid), time.process_time() + 0.02
    while time.process_time() < ends:
        pass
    assert cpu_ns(pid) - before > 10_000_000
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as child:
        try:
            while cpu_ns([child.pid]) < 50_000_000:
                time.sleep(0.01)
            own = cpu_ns(pid, with_children=False)
            assert cpu_ns(pid) - own > 40_000_000
        finally:
            child.kill()


def test_arq_has_what_we_have_but_for_redis():
    """Its versions are those of constraints.txt, other than of redis-py and what that needs."""

    def pins(path: str) -> dict[str, str]:
        text = (ROOT / path).read_text().replace("_", "-")
        return dict(re.findall(r"^([\w.-]+)(?:\[\w+\])?==([^\s;]+)", text, re.MULTILINE))

    ours, theirs = pins("constraints.txt"), pins("loadtest/jobs/arq.txt")
    assert len(theirs) > 10
    assert {name for name in theirs if theirs[name] != ours.get(name)} == {"arq", "redis", "PyJWT"}


async def test_a_few_jobs_for_real():
    """They are submitted by several callers, called once each, and done; one alone is seen."""
    with SocketRedis() as redis, Target() as target, open_database("sqlite") as database:
        async with (
            Bell().open() as bell,
            target.counter() as counter,
            Waitroom(redis.url, database, url=target.url, bell=bell.url) as system,
        ):
            for submitting in (system.submit(7, 4), system.submit_list(5)):
                first, last = await submitting
                assert first < last
            await counter.start()
            assert await counter.count_calls() == 0
            system.start_worker()
            began, ended = await system.run_job(is_watched=True)
            assert began < bell.rung_s < ended
            while await counter.count_calls() < 12:
                await asyncio.sleep(0.02)
            done = 0
            while done < 13:
                await asyncio.sleep(0.02)
                done += await system.count_done()
            assert (done, await counter.count_calls()) == (13, 12)
