"""`make loadtest`: a room with up to 3,000 users, on one replica, on three, and on a cluster.

Replicas, Redis, nginx, the site and the users run on this machine. Each step has a fresh site.
"""

import argparse
import csv
import io
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from matplotlib.figure import Figure

from loadtest.bench.systems import in_memory
from loadtest.machine import busy_seconds, cpu_seconds
from loadtest.report import OLD, OURS, PLAIN, Report, new_figure, table
from loadtest.verdict import WORDS
from tests.support.processes import free_port
from tests.support.site import ADMIN_TOKEN, BY_DEFAULT, ROOT, TO_ORIGIN, Site, gated

#: Number of users that start per second.
SPAWN = 600
THINK_S = 0.25
STAY = 60
GENERATORS = 2
NOFILE = 65536
#: A site that responds at once, and logs the visitors.
ORIGIN = "location / { access_log @folder@/hits.log load; return 200 'Welcome.'; }"
#: Requests/s and mean response time in ms of the system that this one replaces, by its own account,
#: on one machine and on ten.
OLD_ONE = (833.3, 348)
OLD_TEN_USERS, OLD_TEN = 2000, (4062, 355)
#: With 3,000 users it served more requests/s than this, within 300 to 600 ms.
OLD_MOST_USERS, OLD_MOST = 3000, (4000, 600)
#: Names of requests by kind (see journeys.py).
KINDS = {"passes": ("pass",), "polls": ("poll",), "arrivals": ("arrival", "join")}


@dataclass(frozen=True, slots=True)
class Amount:
    users: tuple[int, ...] = (500, 1000, 1500, 2000, 2500, 3000)
    cap: int = 1500
    warm_up_s: float = 4
    measured_s: float = 12
    #: Number of measurements of each step that has a target.
    rounds: int = 5
    #: Number of replicas of the cluster, and further numbers of replicas to measure.
    replicas: int = field(default=10, compare=False)
    fewer: tuple[int, ...] = (1, 3)


WHOLE = Amount()
QUICK = Amount(users=(500, 1000), cap=800, measured_s=6, rounds=1, fewer=(1,))


@dataclass(frozen=True, slots=True)
class SpeedTarget:
    """A target: a minimum rate, and a maximum mean response time."""

    replicas: int
    users: int
    rate: float
    mean_ms: float

    def __str__(self) -> str:
        return (
            f"{self.replicas} replicas, {self.users:,} users: more than {self.rate:,.0f}"
            f" requests/s, mean below {self.mean_ms / 1000:g} s"
        )


TARGETS = (SpeedTarget(10, OLD_TEN_USERS, *OLD_TEN), SpeedTarget(3, OLD_MOST_USERS, *OLD_MOST))


@dataclass(frozen=True, slots=True)
class Step:
    users: int
    replicas: int
    figures: dict[str, Any]
    #: CPU time of each part in cores, including the ramp.
    cores: dict[str, float]

    @property
    def kept(self) -> bool:
        return bool(self.figures["verdict"] != "BROKEN")

    @property
    def rate(self) -> float:
        return float(self.figures["requests_per_s"])

    @property
    def mean_ms(self) -> float:
        return float(self.figures["total"]["mean_ms"])

    @property
    def overshoot(self) -> bool:
        return any(
            each["kept"] is False
            for each in self.figures["findings"]
            if each["promise"].startswith("cap")
        )

    def share(self, kind: str) -> float:
        kinds, total = self.figures["kinds"], self.figures["total"]["requests"]
        count = sum(kinds[name]["requests"] for name in KINDS[kind] if name in kinds)
        return count / total if total else 0.0

    def row(self, cap: int) -> dict[str, object]:
        total = self.figures["total"]
        return {
            "replicas": self.replicas,
            "users": self.users,
            "requests/s": f"{self.rate:.0f}",
            "mean ms": f"{self.mean_ms:.0f}",
            "p50": f"{total['p50_ms']:.0f}",
            "p95": f"{total['p95_ms']:.0f}",
            "p99": f"{total['p99_ms']:.0f}",
            "failures": sum(self.figures["errors"].values()),
            "peak sessions": self.figures["peak_sessions"],
            "peak at the origin": self.figures["peak_inside"],
            "cap": cap,
            "peak waiting": self.figures["peak_waiting"],
            **{kind: f"{self.share(kind):.1%}" for kind in KINDS},
            "verdict": self.figures["verdict"],
        }

    def __str__(self) -> str:
        cores = ", ".join(f"{name} {used:.2f}" for name, used in self.cores.items())
        figures = self.figures
        return (
            f"{self.replicas:>2} replicas, {self.users:>5} users: {self.rate:>6.0f} requests/s, "
            f"mean {self.mean_ms:.0f} ms, peak {figures['peak_sessions']} sessions "
            f"({figures['peak_inside']} at the origin), {figures['verdict']}; "
            f"cores: {cores}"
        )


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--replicas", type=int, help="of the cluster; with --quick two at most")
    parser.add_argument("--users", type=int, nargs="+", help="other steps")
    parser.add_argument(
        "--only", dest="fewer", action="store_const", const=(), help="the cluster alone"
    )


def measure_reports(amount: Amount) -> Iterator[Report]:
    replicas = min(amount.replicas, 2) if amount.cap == QUICK.cap else amount.replicas
    rounds = amount.rounds if amount == WHOLE else 1
    raise_limits()
    steps: list[Step] = []
    with in_memory():
        for count, users in _order(sorted({*amount.fewer, replicas}), amount.users, rounds):
            steps.append(_run_step(amount, count, users))
            print(steps[-1], flush=True)
    yield report(amount, steps)


def _order(counts: list[int], users: Sequence[int], rounds: int) -> list[tuple[int, int]]:
    """Return all steps, followed by those with a target once per further round."""
    steps = [(count, each) for count in counts for each in users]
    again = [(target.replicas, target.users) for target in TARGETS]
    return steps + [step for step in again if step in steps] * (rounds - 1)


def _run_step(plan: Amount, replicas: int, users: int) -> Step:
    room = {"total_active_users": plan.cap, "session_duration": 60}
    with Site(
        replicas=replicas, rooms={"shop": room}, origin=ORIGIN, locations=gated("/", *TO_ORIGIN),
        settings={"log_level": "warning", **BY_DEFAULT}, stamps=True, sockets=True,
    ) as site:  # fmt: skip
        report = site.folder / "load.json"
        before, began = cpu_by_part(site), time.monotonic()
        output = _load(plan, site, users, report)
        lasted = time.monotonic() - began
        cores = {name: (now - before[name]) / lasted for name, now in cpu_by_part(site).items()}
        cores["everything else"] -= sum(cores.values()) - cores["everything else"]
        if not report.exists():
            raise SystemExit(f"the load generator made no report:\n{output}")
        figures: dict[str, Any] = json.loads(report.read_text())
        if figures["verdict"] == "BROKEN":
            print(output)
    return Step(users=users, replicas=replicas, figures=figures, cores=cores)


def cpu_by_part(site: Site) -> dict[str, float]:
    """Return the CPU seconds so far by part. The last value is that of the whole machine."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "nginx": cpu_seconds([site.nginx.pid]),
        "replicas": cpu_seconds(replica.pid for replica in site.replicas),
        "Redis": cpu_seconds([site.redis.pid]),
        "site": cpu_seconds([site.origin.pid]),
        "load generator": ended.ru_utime + ended.ru_stime,
        "everything else": busy_seconds(with_steal=True),
    }


def _load(plan: Amount, site: Site, users: int, report: Path) -> str:
    """Load the site. Return the output of Locust."""
    ramp = max(1.0, users / SPAWN)
    values = {
        "room": "shop", "mix": "shopper=95,api=5", "think": THINK_S, "stay": STAY,
        "abandon": 0.01, "silent": 0.005, "client": "lean", "ops": site.ops[0],
        "admin_token": ADMIN_TOKEN, "cap": plan.cap, "origin_log": site.folder / "hits.log",
        "warm_up": ramp + plan.warm_up_s, "report": report,
    }  # fmt: skip
    seconds = round(ramp + plan.warm_up_s + plan.measured_s)
    with run_locust(site.url, users, seconds, values) as process:
        return process.communicate(timeout=seconds + 60)[0]


@contextmanager
def run_locust(
    url: str, users: int, seconds: int, values: dict[str, object]
) -> Iterator[subprocess.Popen[str]]:
    """Start Locust, with `values` for the options of the suite. Stop it at the end."""
    values = {"allow_untested": True, **values}
    environment = {
        **os.environ,
        **{f"WAITROOM_LOAD_{name.upper()}": str(value) for name, value in values.items()},
    }
    port = str(free_port())
    command = [
        str(Path(sys.executable).parent / "locust"), "-f", "loadtest/locustfile.py", "--headless",
        "--host", url, "-u", str(users), "-r", str(SPAWN), "-t", f"{seconds}s",
        "--processes", str(GENERATORS), "--only-summary", "--loglevel", "WARNING",
        "--master-bind-port", port, "--master-port", port,
    ]  # fmt: skip
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, start_new_session=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    """Stop the load generator and its workers, which are a separate session."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            return
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            continue


def raise_limits() -> None:
    """Allow thousands of connections, for this process and its children."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = NOFILE if hard == resource.RLIM_INFINITY else min(NOFILE, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def report(amount: Amount, steps: Sequence[Step]) -> Report:
    rows = [step.row(amount.cap) for step in steps]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    shown = typical(steps)
    files: dict[str, Figure | str] = {
        "loadtest.csv": text.getvalue(),
        "loadtest.svg": _draw(shown),
    }
    problems = [f"a verdict is broken: {step}" for step in steps if not step.kept]
    if amount == WHOLE:
        findings = [each for step in steps for each in step.figures["findings"]]
        tested = {each["promise"] for each in findings if each["kept"] is not None}
        untested = sorted({each["promise"] for each in findings} - tested)
        problems += [f"not tested in any step: {promise}" for promise in untested]
    title, paragraphs = "A room under load", _paragraphs(amount, steps, shown)
    return Report("loadtest", title, paragraphs, steps, files, problems)


def _paragraphs(amount: Amount, steps: Sequence[Step], shown: Sequence[Step]) -> list[str]:
    words = {True: "reached", False: "not reached", None: "not measured"}
    rows = [{name: str(value) for name, value in step.row(amount.cap).items()} for step in shown]
    reached = targets(steps)
    cores = [
        [f"{step.replicas}", f"{step.users}", *(f"{used:.2f}" for used in step.cores.values())]
        for step in shown
    ]
    verdicts = [
        f"* {step.replicas} replicas, {step.users} users, {each['promise']}:"
        f" {WORDS[each['kept']]} ({each['text']})"
        for step in steps
        for each in step.figures["findings"]
    ]
    return [
        (f"`make loadtest`. Cap {amount.cap:,}: users beyond it wait and poll as advised. Each"
        f" step is measured for {amount.measured_s:g} s, with a fresh site; those with a target"
        " several times, of which the one in the middle is shown. Users pause 0.25 s on"
        " average between two requests, stay for 60 and leave; then somebody new arrives."
        " Load generator, nginx, Redis, the replicas and the site behind them shared the machine."),
        "## Targets",
        table(["target", "", "measured"], [[what, words[is_], by] for what, is_, by in reached],
              words=3),
        ("The targets are the figures of the waiting room in nginx, Lua and Redis that Waitroom"
        " replaces, by its own account (`loadtest/baselines/lua` rebuilds its design;"
        " `make bench` runs both on one machine)."
        f" One machine at its best: {OLD_ONE[0]:g} requests/s with a mean of {OLD_ONE[1] / 1000:g}"
        f" s. Ten machines: {OLD_TEN[0]:,} requests/s at {OLD_TEN_USERS:,} users with a mean of"
        f" {OLD_TEN[1] / 1000:g} s, and at {OLD_MOST_USERS:,} users still more than"
        f" {OLD_MOST[0]:,} requests/s within 0.3 to 0.6 s. Its machines are not known to us."),
        (f"**What this does not show.** Here ten replicas are ten processes that share the"
        f" {os.cpu_count()} cores of this machine with everything else, not ten machines: more"
        " replicas bring no more speed. Most passes are answered by nginx alone, by a stamp or a"
        " verdict that it keeps, and ask no replica. What replicas can do, and what more machines"
        " would bring: `make bench-scaling`."),
        "## Figures",
        table(list(rows[0]), [list(row.values()) for row in rows], words=0),
        ("Times are milliseconds, over all requests. Passes were answered by the site, polls by"
        " the status endpoint; arrivals are first requests and denied ones; the rest is leaving."
        " Peak sessions: asked of the ops listener once a second; at the origin: the most"
        " visits at once, each from its first request there to its last."),
        "![requests per second and mean response time](loadtest.svg)",
        "## Cores used",
        table(["replicas", "users", *steps[0].cores], cores, words=0),
        "Where everything else used much, something else was running, and the figures are too low.",
        "## Verdicts",
        "\n".join(verdicts),
    ]  # fmt: skip


def typical(steps: Sequence[Step]) -> list[Step]:
    """Return the step with the median rate for each number of replicas and users."""
    by_kind: dict[tuple[int, int], list[Step]] = {}
    for step in steps:
        by_kind.setdefault((step.replicas, step.users), []).append(step)
    return [sorted(of, key=lambda step: step.rate)[len(of) // 2] for of in by_kind.values()]


def targets(steps: Sequence[Step]) -> list[tuple[str, bool | None, str]]:
    """Return each target, whether it was reached (None if not measured), and the figures."""
    rows: list[tuple[str, bool | None, str]] = []
    for target in TARGETS:
        of = [s for s in steps if (s.replicas, s.users) == (target.replicas, target.users)]
        if not of:
            rows.append((str(target), None, ""))
            continue
        rate, mean_ms = (median(getattr(step, name) for step in of) for name in ("rate", "mean_ms"))
        times = f", median of {len(of)}" if len(of) > 1 else ""
        figures = f"{rate:,.0f} requests/s, mean {mean_ms / 1000:.3f} s{times}"
        rows.append((str(target), rate > target.rate and mean_ms < target.mean_ms, figures))
    over = [step for step in steps if step.overshoot]
    rows.append(("overshoot 0, in every step", not over, f"{len(steps)} steps, {len(over)} over"))
    return rows


def _draw(steps: Sequence[Step]) -> Figure:
    figure = new_figure(9, 4)
    rates, means = figure.subplots(1, 2)
    counts = sorted({step.replicas for step in steps})
    for count, color in zip(counts, (PLAIN, "#66b2c2", OURS), strict=False):
        of = [step for step in steps if step.replicas == count]
        label = f"{count} replica{'s' if count > 1 else ''}"
        users = [step.users for step in of]
        rates.plot(users, [step.rate for step in of], "o-", color=color, label=label)
        means.plot(users, [step.mean_ms for step in of], "o-", color=color, label=label)
    rates.plot([OLD_TEN_USERS], [OLD_TEN[0]], "s", color=OLD, label="nginx and Lua, ten machines")
    means.plot([OLD_TEN_USERS], [OLD_TEN[1]], "s", color=OLD)
    rates.axhline(OLD_ONE[0], color=OLD, linestyle=":", label="nginx and Lua, one machine")
    rates.set(xlabel="users", ylabel="requests per second")
    means.set(xlabel="users", ylabel="mean response time, ms")
    rates.set_ylim(bottom=0)
    means.set_ylim(bottom=0)
    rates.legend(fontsize=8)
    return figure
