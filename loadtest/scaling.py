"""`make bench-scaling`: what replicas and nginx can do, apart from each other and without pauses.

Real Locust sends polls and joins straight to 1 to 10 real replicas, and joins through nginx, as
fast as they are answered. The CPU time of each part for one request carries over to other machines.
The report's model computes from it what N machines would do.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field

from loadtest.amount import option
from loadtest.bench.systems import in_memory
from loadtest.generator import ORIGIN, measure_load, raise_limits
from loadtest.report import Report
from loadtest.rounds import Rounds
from tests.support.site import TO_ORIGIN, Site, gated

USERS = 64
POLLS, JOINS = "polls, replicas alone", "joins, replicas alone"
THROUGH_NGINX = "joins through nginx"
#: The journey of what is measured. All but the last ask the replicas without nginx.
KINDS = {POLLS: "polls", JOINS: "joins", THROUGH_NGINX: "joins"}
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
    replicas: tuple[int, ...] = option(
        (1, 2, 3, 5, 10), "other numbers of replicas", type=int, nargs="+"
    )
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


Steps = Rounds[tuple[str, int], Step]


def measure_reports(amount: Amount) -> Iterator[Report]:
    raise_limits()
    steps = Steps(amount.rounds)
    with in_memory():
        for counts in steps.turns(amount.replicas):
            for step in (step for replicas in counts for step in measure(amount, replicas)):
                steps.add((step.kind, step.replicas), step)
    yield report(steps)


def measure(amount: Amount, replicas: int) -> Iterator[Step]:
    """Yield a step of each kind, with a fresh site."""
    with Site(
        replicas=replicas, rooms={"shop": _ROOM}, locations=gated("/", *TO_ORIGIN),
        origin=ORIGIN, settings={"log_level": "warning"}, stamps=True,
    ) as site:  # fmt: skip
        for kind, journey in KINDS.items():
            figures, cores = measure_load(
                site, USERS, amount.warm_up_s, amount.measured_s, mix=f"{journey}=1",
                hosts="" if kind == THROUGH_NGINX else ",".join(site.edges),
            )  # fmt: skip
            errors = [f"{number} x {error}" for error, number in figures["errors"].items()]
            step = Step(kind, replicas, figures["requests_per_s"], cores, errors)
            print(f"{replicas} replicas, {kind}: {step.per_second:,.0f}/s", flush=True)
            yield step


def model(machines: int, serving_us: float, redis_us: float) -> float:
    """Return the requests per second of so many machines with nginx and replicas on all cores, and
    one Redis, which uses one core."""
    return min(machines * MODEL_CORES * 1e6 / serving_us, 1e6 / redis_us)


def report(steps: Steps) -> Report:
    counts = sorted({replicas for _, replicas in steps.runs})

    def us(kind: str, part: str, replicas: int = counts[0]) -> float:
        return steps.median((kind, replicas), lambda step: step.us(part))

    def rate(kind: str, replicas: int) -> float:
        return steps.median((kind, replicas), "per_second")

    def costs_us(kind: str, replicas: int) -> list[float]:
        return [us(kind, part, replicas) for part in PARTS]

    def used_cores(kind: str, replicas: int) -> list[float]:
        return [rate(kind, replicas) * cost / 1e6 for cost in costs_us(kind, replicas)]

    def modelled(kind: str, machines: int) -> float:
        serving_us = us(kind, "replicas") + us(THROUGH_NGINX, "nginx")
        return model(machines, serving_us, us(kind, "Redis"))

    values = {
        "steps": steps, "counts": counts, "users": USERS, "cores": os.cpu_count(),
        "kinds": KINDS, "POLLS": POLLS, "JOINS": JOINS, "THROUGH_NGINX": THROUGH_NGINX,
        "units": [f"{part}, {unit}" for unit in ("µs each", "cores") for part in PARTS],
        "us": us, "rate": rate, "costs_us": costs_us, "used_cores": used_cores,
        "modelled": modelled, "machines": MODEL_MACHINES, "model_cores": MODEL_CORES,
    }  # fmt: skip
    return Report("scaling", values, steps, problems=steps.problems)
