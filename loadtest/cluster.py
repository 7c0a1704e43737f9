"""`make loadtest`: a room with up to 3,000 users, on one replica, on three, and on a cluster.

Replicas, Redis, nginx, the site and the users run on this machine. Each step has a fresh site.
"""

import csv
import io
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from matplotlib.figure import Figure

from loadtest.amount import option
from loadtest.bench.systems import in_memory
from loadtest.generator import ORIGIN, SPAWN, measure_load, raise_limits
from loadtest.report import OLD, OURS, PLAIN, Report, Target, new_figure
from loadtest.verdict import WORDS
from tests.support.site import ADMIN_TOKEN, BY_DEFAULT, TO_ORIGIN, Site, gated

THINK_S = 0.25
STAY = 60
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
    users: tuple[int, ...] = option(
        (500, 1000, 1500, 2000, 2500, 3000), "other steps", type=int, nargs="+"
    )
    cap: int = 1500
    warm_up_s: float = 4
    measured_s: float = 12
    #: Number of measurements of each step that has a target.
    rounds: int = 5
    #: Number of replicas of the cluster, and further numbers of replicas to measure.
    replicas: int = option(10, "of the cluster; with --quick two at most", compare=False)
    fewer: tuple[int, ...] = option(
        (1, 3), "the cluster alone", "--only", action="store_const", const=()
    )


WHOLE = Amount()
QUICK = Amount(users=(500, 1000), cap=800, measured_s=6, rounds=1, fewer=(1,))


@dataclass(frozen=True, slots=True)
class SpeedTarget:
    """A target: a minimum rate, and a maximum mean response time."""

    replicas: int
    users: int
    rate: float
    mean_ms: float

    def judge(self, rows: Sequence[dict[str, Any]]) -> Target:
        """Judge by the rows of loadtest.csv."""
        kind = (str(self.replicas), str(self.users))
        rows = [row for row in rows if (row["replicas"], row["users"]) == kind]
        what = f"{self.replicas} replicas, {self.users:,} users"
        wanted = f"> {self.rate:,.0f}/s, < {self.mean_ms / 1000:g} s"
        if not rows:
            return Target(what, wanted)
        rate, mean_ms = (
            median(float(row[key]) for row in rows) for key in ("requests/s", "mean ms")
        )
        is_reached = rate > self.rate and mean_ms < self.mean_ms
        times = f", median of {len(rows)}" if len(rows) > 1 else ""
        found = f"{rate:,.0f}/s, {mean_ms / 1000:.3f} s{times}"
        return Target(what, wanted, is_reached, found)


TARGETS = (SpeedTarget(10, OLD_TEN_USERS, *OLD_TEN), SpeedTarget(3, OLD_MOST_USERS, *OLD_MOST))


@dataclass(frozen=True, slots=True)
class Step:
    users: int
    replicas: int
    figures: dict[str, Any]
    #: CPU time of each part in cores.
    cores: dict[str, float]

    @property
    def rate(self) -> float:
        return float(self.figures["requests_per_s"])

    @property
    def mean_ms(self) -> float:
        return float(self.figures["total"]["mean_ms"])

    @property
    def overshoot(self) -> bool:
        findings = self.figures["findings"]
        return any(each["kept"] is False for each in findings if each["promise"].startswith("cap"))

    def share(self, kind: str) -> float:
        kinds, total = self.figures["kinds"], self.figures["total"]["requests"]
        count = sum(kinds[name]["requests"] for name in KINDS[kind] if name in kinds)
        return count / total if total else 0.0

    def row(self, cap: int) -> dict[str, str]:
        """Return the row of the report and of loadtest.csv."""
        total = self.figures["total"]
        values: dict[str, object] = {
            "replicas": self.replicas,
            "users": self.users,
            "requests/s": f"{self.rate:.0f}",
            "mean ms": f"{self.mean_ms:.0f}",
            **{name: f"{total[f'{name}_ms']:.0f}" for name in ("p50", "p95", "p99")},
            "failures": sum(self.figures["errors"].values()),
            "peak sessions": self.figures["peak_sessions"],
            "peak at the origin": self.figures["peak_inside"],
            "cap": cap,
            "peak waiting": self.figures["peak_waiting"],
            **{kind: f"{self.share(kind):.1%}" for kind in KINDS},
            "verdict": self.figures["verdict"],
        }
        return {name: "" if value is None else str(value) for name, value in values.items()}


def measure_reports(amount: Amount) -> Iterator[Report]:
    replicas = min(amount.replicas, 2) if amount.cap == QUICK.cap else amount.replicas
    rounds = amount.rounds if amount == WHOLE else 1
    raise_limits()
    steps: list[Step] = []
    with in_memory():
        for count, users in _order(sorted({*amount.fewer, replicas}), amount.users, rounds):
            steps.append(_run_step(amount, count, users))
            row = steps[-1].row(amount.cap).items()
            print(", ".join(f"{name} {value}" for name, value in row), flush=True)
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
        figures, cores = measure_load(
            site, users, max(1.0, users / SPAWN) + plan.warm_up_s, plan.measured_s,
            mix="shopper=95,api=5", think=THINK_S, stay=STAY, abandon=0.01, silent=0.005,
            ops=site.ops[0], admin_token=ADMIN_TOKEN, cap=plan.cap,
            origin_log=site.folder / "hits.log",
        )  # fmt: skip
    return Step(users=users, replicas=replicas, figures=figures, cores=cores)


def report(amount: Amount, steps: Sequence[Step]) -> Report:
    rows = [step.row(amount.cap) for step in steps]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    shown = typical(steps)
    files: dict[str, Figure | str] = {"loadtest.csv": text.getvalue(), "loadtest.svg": _draw(shown)}
    broken = [step for step in steps if step.figures["verdict"] == WORDS[False]]
    problems = [f"broken: {step.replicas} replicas, {step.users} users" for step in broken]
    if amount == WHOLE:
        findings = [each for step in steps for each in step.figures["findings"]]
        tested = {each["promise"] for each in findings if each["kept"] is not None}
        untested = sorted({each["promise"] for each in findings} - tested)
        problems += [f"not tested in any step: {promise}" for promise in untested]
    over = [step for step in steps if step.overshoot]
    targets = [target.judge(rows) for target in TARGETS]
    found = f"{len(steps)} steps, {len(over)} over"
    targets.append(Target("overshoot, in every step", "0", not over, found))
    values = {
        "amount": amount, "steps": steps, "shown": shown, "words": WORDS, "cores": os.cpu_count(),
        "rows": [step.row(amount.cap) for step in shown], "old_one": OLD_ONE,
        "old_ten": OLD_TEN, "old_ten_users": OLD_TEN_USERS,
        "old_most": OLD_MOST, "old_most_users": OLD_MOST_USERS,
    }  # fmt: skip
    return Report("loadtest", values, steps, files, problems, targets)


def typical(steps: Sequence[Step]) -> list[Step]:
    """Return the step with the median rate for each number of replicas and users."""
    by_kind: dict[tuple[int, int], list[Step]] = {}
    for step in steps:
        by_kind.setdefault((step.replicas, step.users), []).append(step)
    return [sorted(of, key=lambda step: step.rate)[len(of) // 2] for of in by_kind.values()]


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
