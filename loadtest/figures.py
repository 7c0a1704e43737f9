"""The cluster's figures as a report, a table and a chart, next to those they answer to."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from loadtest.charts import OLD, OURS, PLAIN, new_figure, save
from loadtest.machine import Machine

#: The system that this one answers to: users, requests/s, mean in ms.
OLD_ONE = (833.3, 348)
OLD_TEN_USERS, OLD_TEN = 2000, (4062, 355)
#: At 3,000 users: more requests/s than these within 300 to 600 ms.
OLD_MOST_USERS, OLD_MOST = 3000, (4000, 600)
#: What counts as a kind of its own; see journeys.py.
KINDS = {"passes": ("pass",), "polls": ("poll",), "arrivals": ("arrival", "join")}


@dataclass(frozen=True, slots=True)
class Plan:
    users: tuple[int, ...]
    cap: int
    warm_up_s: float
    measured_s: float


@dataclass(frozen=True, slots=True)
class Target:
    """More requests/s than that, with a smaller mean, at so many replicas and users."""

    replicas: int
    users: int
    rate: float
    mean_ms: float

    def __str__(self) -> str:
        return (
            f"{self.replicas} replicas, {self.users:,} users: more than {self.rate:,.0f}"
            f" requests/s, mean below {self.mean_ms / 1000:g} s"
        )


TARGETS = (Target(10, OLD_TEN_USERS, *OLD_TEN), Target(3, OLD_MOST_USERS, *OLD_MOST))


@dataclass(frozen=True, slots=True)
class Step:
    users: int
    replicas: int
    figures: dict[str, Any]
    #: CPU time of each part, in cores, the ramp included.
    cores: dict[str, float]

    @property
    def kept(self) -> bool:
        return bool(self.figures["kept"])

    @property
    def rate(self) -> float:
        return float(self.figures["requests_per_s"])

    @property
    def mean_ms(self) -> float:
        return float(self.figures["total"]["mean_ms"])

    @property
    def overshoot(self) -> bool:
        return any(
            not each["kept"]
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
            "verdict": "kept" if self.kept else "BROKEN",
        }

    def __str__(self) -> str:
        cores = ", ".join(f"{name} {used:.2f}" for name, used in self.cores.items())
        figures = self.figures
        return (
            f"{self.replicas:>2} replicas, {self.users:>5} users: {self.rate:>6.0f} requests/s, "
            f"mean {self.mean_ms:.0f} ms, peak {figures['peak_sessions']} sessions "
            f"({figures['peak_inside']} at the origin), {'kept' if self.kept else 'BROKEN'}; "
            f"cores: {cores}"
        )


def write_reports(folder: Path, plan: Plan, steps: Sequence[Step], machine: Machine) -> list[Path]:
    """loadtest.md, .csv and .svg; returns the files."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [step.row(plan.cap) for step in steps]
    text, table, chart = (folder / f"loadtest.{kind}" for kind in ("md", "csv", "svg"))
    with table.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    text.write_text(_write_text(plan, steps, machine), encoding="utf-8")
    _draw(chart, typical(steps))
    return [text, table, chart]


def typical(steps: Sequence[Step]) -> list[Step]:
    """One of each number of replicas and users: of several rounds the one in the middle."""
    by_kind: dict[tuple[int, int], list[Step]] = {}
    for step in steps:
        by_kind.setdefault((step.replicas, step.users), []).append(step)
    return [sorted(of, key=lambda step: step.rate)[len(of) // 2] for of in by_kind.values()]


def targets(steps: Sequence[Step]) -> list[tuple[str, bool | None, str]]:
    """What is to be reached, whether it was (None: not measured), and by which figures."""
    found: list[tuple[str, bool | None, str]] = []
    for target in TARGETS:
        of = [s for s in steps if (s.replicas, s.users) == (target.replicas, target.users)]
        if not of:
            found.append((str(target), None, ""))
            continue
        rate, mean_ms = (median(getattr(step, name) for step in of) for name in ("rate", "mean_ms"))
        times = f", median of {len(of)}" if len(of) > 1 else ""
        said = f"{rate:,.0f} requests/s, mean {mean_ms / 1000:.3f} s{times}"
        found.append((str(target), rate > target.rate and mean_ms < target.mean_ms, said))
    over = [step for step in steps if step.overshoot]
    found.append(("overshoot 0, in every step", not over, f"{len(steps)} steps, {len(over)} over"))
    return found


_WHY_NOT = (
    "Where the time goes is below, under *Cores used*: generator, nginx and replicas share all"
    " there is. A visitor asks for a page about once a second then, and a stamp holds for two to"
    " three: every third page asks a replica, which costs some five times what nginx takes for the"
    " others. On two cores ten replicas take turns: more cores, or fewer replicas, bring it nearer."
)


def _write_text(plan: Plan, steps: Sequence[Step], machine: Machine) -> str:
    words = {True: "reached", False: "not reached", None: "not measured"}
    shown = typical(steps)
    rows = [step.row(plan.cap) for step in shown]
    names = list(rows[0])
    lines = [
        "# A room under load",
        "",
        (
            f"`make loadtest`. Cap {plan.cap:,}: users beyond it wait and poll as advised. Each"
            f" step is measured for {plan.measured_s:g} s, with a fresh site; those with a target"
            " several times, of which the one in the middle is shown. Users pause 0.25 s on"
            " average between two requests, stay for 60 and leave; then somebody new arrives."
        ),
        "",
        (
            f"Machine: {machine}. Load generator, nginx, Redis, the replicas and the site behind"
            " them shared it."
        ),
        "",
        "## Targets",
        "",
        "| target | | measured |",
        "|---|---|---|",
        *(f"| {target} | {words[reached]} | {said} |" for target, reached, said in targets(steps)),
        "",
        (
            "The system that this one answers to gave: one machine at its"
            f" best {OLD_ONE[0]:g} requests/s with a mean of {OLD_ONE[1] / 1000:g} s; ten machines"
            f" {OLD_TEN[0]:,} requests/s at {OLD_TEN_USERS:,} users with a mean of"
            f" {OLD_TEN[1] / 1000:g} s; at {OLD_MOST_USERS:,} users still more than"
            f" {OLD_MOST[0]:,} requests/s within 0.3 to 0.6 s."
        ),
        "",
        *([_WHY_NOT, ""] if any(reached is False for _, reached, _ in targets(steps)) else []),
        "## Figures",
        "",
        "| " + " | ".join(names) + " |",
        "|" + "---|" * len(names),
        *("| " + " | ".join(str(row[name]) for name in names) + " |" for row in rows),
        "",
        (
            "Times are milliseconds, over all requests. Passes were answered by the site, polls by"
            " the status door; arrivals are first requests and denied ones; the rest is leaving."
            " Peak sessions: asked of the ops listener once a second; at the origin: the most"
            " visits at once, each from its first request there to its last."
        ),
        "",
        "![requests per second and mean response time](loadtest.svg)",
        "",
        "## Cores used",
        "",
        "| replicas | users | " + " | ".join(steps[0].cores) + " |",
        "|" + "---|" * (2 + len(steps[0].cores)),
        *(
            f"| {step.replicas} | {step.users} | "
            + " | ".join(f"{used:.2f}" for used in step.cores.values())
            + " |"
            for step in shown
        ),
        "",
        "Where everything else used much, something else was running, and the figures are too low.",
        "",
        "## Verdicts",
        "",
        *(
            f"* {step.replicas} replicas, {step.users} users, {each['promise']}:"
            f" {'kept' if each['kept'] else 'BROKEN'} ({each['text']})"
            for step in steps
            for each in step.figures["findings"]
        ),
        "",
    ]
    return "\n".join(lines)


def _draw(file: Path, steps: Sequence[Step]) -> None:
    figure = new_figure(9, 4)
    rates, means = figure.subplots(1, 2)
    counts = sorted({step.replicas for step in steps})
    for count, color in zip(counts, (PLAIN, "#66b2c2", OURS), strict=False):
        of = [step for step in steps if step.replicas == count]
        label = f"{count} replica{'s' if count > 1 else ''}"
        users = [step.users for step in of]
        rates.plot(users, [step.rate for step in of], "o-", color=color, label=label)
        means.plot(users, [step.mean_ms for step in of], "o-", color=color, label=label)
    rates.plot([OLD_TEN_USERS], [OLD_TEN[0]], "s", color=OLD, label="to answer to, ten machines")
    means.plot([OLD_TEN_USERS], [OLD_TEN[1]], "s", color=OLD)
    rates.axhline(OLD_ONE[0], color=OLD, linestyle=":", label="to answer to, one machine")
    rates.set(xlabel="users", ylabel="requests per second")
    means.set(xlabel="users", ylabel="mean response time, ms")
    rates.set_ylim(bottom=0)
    means.set_ylim(bottom=0)
    rates.legend(fontsize=8)
    save(figure, file)
