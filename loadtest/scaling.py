"""`make bench-scaling`: what replicas and nginx can do, apart from each other and without pauses.

Real Locust sends polls and joins straight to 1 to 10 real replicas, and joins through nginx, as
fast as they are answered. The CPU time of each part for one request carries over to other machines.
The report's model computes from it what N machines would do.
"""

import argparse
import json
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from loadtest import cluster
from loadtest.bench.systems import in_memory
from loadtest.cluster import cpu_by_part, run_locust
from loadtest.machine import cpu_seconds
from loadtest.report import Report, bold, count, table
from loadtest.rounds import describe_loads, rounds
from loadtest.verdict import FIGURES_BEGIN
from tests.support.site import TO_ORIGIN, Site, gated

USERS = 64
#: What is measured: its name, the journey, and whether the replicas are asked without nginx.
KINDS = (
    ("polls, replicas alone", "polls", True),
    ("joins, replicas alone", "joins", True),
    ("joins through nginx", "joins", False),
)
POLLS, JOINS, THROUGH_NGINX = (name for name, _, _ in KINDS)
#: Parts whose CPU time is measured.
PARTS = ("replicas", "Redis", "nginx", "load generator")
#: The machines of the model: cores of each, and their numbers.
MODEL_CORES = 2
MODEL_MACHINES = (1, 2, 3, 5, 10, 20)
_NEVER = 10_000_000
_ROOM = {
    "total_active_users": 1, "poll_limit": _NEVER, "shield_above": _NEVER, "recovery_window": 0,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Amount:
    rounds: int = 3
    replicas: tuple[int, ...] = (1, 2, 3, 5, 10)
    warm_up_s: float = 2
    measured_s: int = 6


WHOLE = Amount()
QUICK = Amount(rounds=1, replicas=(1, 2), warm_up_s=1, measured_s=3)


@dataclass(frozen=True, slots=True)
class Step:
    kind: str
    replicas: int
    per_second: float
    #: CPU time in cores, by part.
    cores: dict[str, float]
    problems: list[str] = field(default_factory=list)

    def us(self, *parts: str) -> float:
        """Return the CPU time of these parts for one request, in µs."""
        return 1e6 * sum(self.cores[part] for part in parts) / self.per_second


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--replicas", type=int, nargs="+", help="other numbers of replicas")


def measure_reports(amount: Amount) -> Iterator[Report]:
    cluster.raise_limits()
    steps: list[Step] = []
    loads: list[float] = []
    with in_memory():
        for _, counts in rounds(amount.rounds, amount.replicas, loads):
            for replicas in counts:
                steps += measure(amount, replicas)
    yield report(steps, amount.rounds, loads)


def measure(amount: Amount, replicas: int) -> Iterator[Step]:
    """Yield a step of each kind, with a fresh site."""
    with Site(
        replicas=replicas, rooms={"shop": _ROOM}, locations=gated("/", *TO_ORIGIN),
        origin=cluster.ORIGIN, settings={"log_level": "warning"}, stamps=True,
    ) as site:  # fmt: skip
        for kind, journey, is_direct in KINDS:
            step = _run(amount, site, kind, journey, ",".join(site.edges) if is_direct else "")
            print(f"{replicas} replicas, {kind}: {step.per_second:,.0f}/s", flush=True)
            yield step


def _run(amount: Amount, site: Site, kind: str, journey: str, hosts: str) -> Step:
    file = site.folder / "load.json"
    values = {
        "mix": f"{journey}=1", "client": "lean", "hosts": hosts,
        "warm_up": amount.warm_up_s, "report": file,
    }  # fmt: skip
    # The CPU is read within the time that Locust measures, with a second more at its end.
    seconds = round(amount.warm_up_s + amount.measured_s + 1)
    with run_locust(site.url, USERS, seconds, values) as process:
        assert process.stdout is not None
        output = ""
        while FIGURES_BEGIN not in output and (line := process.stdout.readline()):
            output += line
        before, began = _cpu(site, process.pid), time.monotonic()
        time.sleep(amount.measured_s)
        after, lasted = _cpu(site, process.pid), time.monotonic() - began
        output += process.communicate(timeout=seconds + 60)[0]
    if not file.exists():
        raise SystemExit(f"the load generator made no report:\n{output}")
    figures: dict[str, Any] = json.loads(file.read_text())
    file.unlink()
    return Step(
        kind, len(site.replicas), figures["requests_per_s"],
        {part: (after[part] - before[part]) / lasted for part in PARTS},
        [f"{kind}: {number} x {error}" for error, number in figures["errors"].items()],
    )  # fmt: skip


def _cpu(site: Site, locust: int) -> dict[str, float]:
    return {**cpu_by_part(site), "load generator": cpu_seconds([locust])}


def model(machines: int, serving_us: float, redis_us: float) -> float:
    """Return the requests per second of so many machines with nginx and replicas on all cores, and
    one Redis, which uses one core."""
    return min(machines * MODEL_CORES * 1e6 / serving_us, 1e6 / redis_us)


def report(steps: Sequence[Step], times: int, loads: Sequence[float]) -> Report:
    def middle(kind: str, replicas: int, *parts: str) -> float:
        of = [step for step in steps if (step.kind, step.replicas) == (kind, replicas)]
        return median(step.us(*parts) if parts else step.per_second for step in of)

    counts = sorted({step.replicas for step in steps})
    rows = [
        [
            f"{replicas}", kind, f"{middle(kind, replicas):,.0f}",
            *(f"{middle(kind, replicas, part):.0f}" for part in PARTS),
            *(f"{middle(kind, replicas) * middle(kind, replicas, p) / 1e6:.2f}" for p in PARTS),
        ]
        for kind, _, _ in KINDS
        for replicas in counts
    ]  # fmt: skip
    nginx_us = middle(THROUGH_NGINX, counts[0], "nginx")
    costs = {
        kind: (middle(kind, counts[0], "replicas") + nginx_us, middle(kind, counts[0], "Redis"))
        for kind in (POLLS, JOINS)
    }
    models = [
        [f"{machines}", *(f"{model(machines, *costs[kind]):,.0f}" for kind in (POLLS, JOINS))]
        for machines in MODEL_MACHINES
    ]
    problems = [problem for step in steps for problem in step.problems]
    paragraphs = [
        (f"`make bench-scaling`. {count(times, 'round')}; medians. {USERS} Locust users without a"
        " pause: each sends its next request when it has an answer. All parts share the"
        f" {os.cpu_count()} cores of this machine, so the requests a second stop growing when these"
        " are used up, and more replicas then only share them. A user polls much sooner than"
        " advised, which costs Redis two more commands. Through nginx there are joins only, because"
        " nginx keeps the answer to a poll that is repeated so soon."),
        *bold(problems),
        "## What was measured",
        table(
            ["replicas", "", "requests/s", *(f"{part}, µs each" for part in PARTS),
             *(f"{part}, cores" for part in PARTS)], rows, words=2,
        ),
        ("µs each: CPU time for one request. One core of the load generator sends"
        f" {1e6 / middle(POLLS, counts[0], 'load generator'):,.0f} polls a second, one of nginx"
        f" passes on {1e6 / nginx_us:,.0f} joins, and one replica alone, which uses one core,"
        f" answers {1e6 / middle(POLLS, counts[0], 'replicas'):,.0f} polls or"
        f" {1e6 / middle(JOINS, counts[0], 'replicas'):,.0f} joins."),
        "## A model of N machines",
        (f"**This is a model, not a measurement.** Each machine has {MODEL_CORES} cores like these,"
        " used by nginx and the replicas alone; Redis has a machine of its own, and one core of it."
        " The costs are those with the fewest replicas above; nginx's for a poll is that for a"
        " join. The network costs nothing, the load is spread evenly, and Redis answers a full core"
        " of requests without delay, in batches no larger than here."),
        table(["machines", "polls/s", "joins/s"], models, words=0),
        "Where a column stops growing, Redis is what is used up.",
        describe_loads(loads),
    ]  # fmt: skip
    return Report("scaling", "Scaling", paragraphs, steps, problems=problems)
