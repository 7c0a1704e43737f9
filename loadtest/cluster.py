"""`make loadtest`: a room under up to 3,000 users, before one replica, three, and a cluster.

Everything runs on this machine, on loopback: replicas, Redis, nginx, the site behind it
and the users. Each step has a site of its own, fresh.
"""

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from loadtest import quiet
from loadtest.figures import TARGETS, Plan, Step, write_reports
from loadtest.machine import cpu_seconds, describe
from tests.support.processes import free_port
from tests.support.site import ADMIN_TOKEN, BY_DEFAULT, ROOT, TO_ORIGIN, Site, gated

FULL = Plan(users=(500, 1000, 1500, 2000, 2500, 3000), cap=1500, warm_up_s=4, measured_s=12)
QUICK = Plan(users=(500, 1000), cap=800, warm_up_s=4, measured_s=6)
#: How often what has a target is measured, one after the other.
ROUNDS = 5
#: Of replicas, beside those of the cluster.
COUNTS = (1, 3)
#: Users that appear within a second.
SPAWN = 600
THINK_S = 0.25
STAY = 60
GENERATORS = 2
NOFILE = 65536
#: Where sites lie: nginx keeps verdicts in files, on a server in /run, which is memory.
MEMORY = Path("/dev/shm")
#: Answers at once, so that what is measured stands before it; logs who was served.
ORIGIN = "location / { access_log @folder@/hits.log load; return 200 'Welcome.'; }"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m loadtest.cluster", description=__doc__)
    parser.add_argument("--replicas", type=int, default=10, help="of the cluster")
    parser.add_argument("--quick", action="store_true", help="two steps, two replicas at most")
    parser.add_argument("--users", type=int, nargs="+", help="other steps than the plan's")
    parser.add_argument("--only", action="store_true", help="the cluster without fewer replicas")
    options = parser.parse_args()
    plan = QUICK if options.quick else FULL
    if options.users:
        plan = Plan(tuple(options.users), plan.cap, plan.warm_up_s, plan.measured_s)
    replicas = min(options.replicas, 2) if options.quick else options.replicas
    counts = {replicas} if options.only else {*COUNTS[: 1 if options.quick else None], replicas}
    whole = not (options.quick or options.users or options.only)
    watch = quiet.begin(quiet.REPORTS if whole else quiet.PARTS)
    _raise_limits()
    if os.access(MEMORY, os.W_OK):
        tempfile.tempdir = str(MEMORY)
    # Asked to end, it ends what it has started, as on Ctrl-C.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(130))
    steps: list[Step] = []
    try:
        for count, users in _order(sorted(counts), plan.users, ROUNDS if whole else 1):
            steps.append(_run_step(plan, count, users))
            print(steps[-1], flush=True)
    except KeyboardInterrupt:
        print("\ninterrupted; nothing is left running")
        return 130
    for file in write_reports(watch.folder(), plan, steps, describe()):
        print(f"written: {file.relative_to(ROOT)}")
    return 0 if all(step.kept for step in steps) else 1


def _order(counts: list[int], users: Sequence[int], rounds: int) -> list[tuple[int, int]]:
    """All steps, and those that have a target again in each further round."""
    steps = [(count, each) for count in counts for each in users]
    again = [(target.replicas, target.users) for target in TARGETS]
    return steps + [step for step in again if step in steps] * (rounds - 1)


def _run_step(plan: Plan, replicas: int, users: int) -> Step:
    room = {"total_active_users": plan.cap, "session_duration": 60}
    with Site(
        replicas=replicas, rooms={"shop": room}, origin=ORIGIN, locations=gated("/", *TO_ORIGIN),
        settings={"log_level": "warning", **BY_DEFAULT}, stamps=True, sockets=True,
    ) as site:  # fmt: skip
        report = site.folder / "load.json"
        before, began = _cpu(site), time.monotonic()
        output = _load(plan, site, users, report)
        lasted = time.monotonic() - began
        cores = {name: (now - before[name]) / lasted for name, now in _cpu(site).items()}
        cores["everything else"] -= sum(cores.values()) - cores["everything else"]
        if not report.exists():
            raise SystemExit(f"the load generator made no report:\n{output}")
        figures: dict[str, Any] = json.loads(report.read_text())
        if not figures["kept"]:
            print(output)
    return Step(users=users, replicas=replicas, figures=figures, cores=cores)


def _cpu(site: Site) -> dict[str, float]:
    """CPU seconds so far, by part; the last is the whole machine's."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    # user, nice, system, idle, iowait, irq, softirq, steal
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    busy = sum(map(int, fields)) - int(fields[3]) - int(fields[4])
    return {
        "nginx": cpu_seconds([site.nginx.pid]),
        "replicas": cpu_seconds(replica.pid for replica in site.replicas),
        "Redis": cpu_seconds([site.redis.pid]),
        "site": cpu_seconds([site.origin.pid]),
        "load generator": ended.ru_utime + ended.ru_stime,
        "everything else": busy / os.sysconf("SC_CLK_TCK"),
    }


def _load(plan: Plan, site: Site, users: int, report: Path) -> str:
    ramp = max(1.0, users / SPAWN)
    values = {
        "room": "shop", "mix": "shopper=95,api=5", "think": THINK_S, "stay": STAY,
        "abandon": 0.01, "silent": 0.005, "client": "lean", "ops": site.ops[0],
        "admin_token": ADMIN_TOKEN, "cap": plan.cap, "origin_log": site.folder / "hits.log",
        "warm_up": ramp + plan.warm_up_s, "report": report,
    }  # fmt: skip
    environment = {
        **os.environ,
        **{f"WAITROOM_LOAD_{name.upper()}": str(value) for name, value in values.items()},
    }
    port = str(free_port())
    seconds = round(ramp + plan.warm_up_s + plan.measured_s)
    command = [
        str(Path(sys.executable).parent / "locust"), "-f", "loadtest/locustfile.py", "--headless",
        "--host", site.url, "-u", str(users), "-r", str(SPAWN), "-t", f"{seconds}s",
        "--processes", str(GENERATORS), "--only-summary", "--loglevel", "WARNING",
        "--master-bind-port", port, "--master-port", port,
    ]  # fmt: skip
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, start_new_session=True,
    )  # fmt: skip
    try:
        return process.communicate(timeout=seconds + 60)[0]
    finally:
        _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    """The generator and its workers: a session of their own, so that none is left."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            return
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            continue


def _raise_limits() -> None:
    """Thousands of connections; what is started inherits it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = NOFILE if hard == resource.RLIM_INFINITY else min(NOFILE, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except quiet.NotQuietError as error:
        sys.exit(f"{error}")
