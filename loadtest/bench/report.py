"""Writes what was measured: bench.md, its charts, bench.json with every run."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from matplotlib.patches import Patch

from loadtest.bench.figures import KINDS, Figures, per_second
from loadtest.bench.runs import Run
from loadtest.bench.targets import Target, targets
from loadtest.bench.workloads import WORKLOADS
from loadtest.charts import OLD, OURS, PLAIN, new_figure, save
from loadtest.machine import Machine, table

NAMES = {
    "plain": "plain nginx", "bare": "bare handlers", "waitroom": "Waitroom", "lua": "Lua design",
}  # fmt: skip
_COLOURS = {"plain": PLAIN, "bare": "#adb5bd", "waitroom": OURS, "lua": OLD}
_KIND_COLOURS = {
    "nginx": "#0b7285", "replicas": "#66b2c2", "redis": "#e8590c", "origin": "#ced4da",
}  # fmt: skip
_SHARED = (
    "wrk, nginx (one worker each), Redis, the replicas and the site shared this machine, so "
    "figures compare the systems with each other and promise nothing about yours. What is "
    "measured and how: [docs/benchmark.md](../../docs/benchmark.md)."
)
_ROUNDS = (
    "Medians of the rounds; ± is half the distance between the best and the worst round. "
    "wrk keeps 64 requests in flight, so latency is that of a saturated system. CPU of nginx and "
    "the replicas is for one request, arrival or poll; it varies less than throughput."
)
_KINDS_SAID = (
    "CPU seconds per 1,000 (user and system, all processes of a kind; nginx with its master). "
    "`own` is everything but the site."
)
_TARGETS_SAID = (
    "Ratios are medians of the rounds' ratios. Where another report is named, it is from there."
)
_STEADY = [each for each in WORKLOADS if not each.is_rush]


def write(  # noqa: PLR0913 - what a report is made of
    figures: Figures,
    machine: Machine,
    folder: Path,
    *,
    how: str,
    scale: dict[str, Any] | None = None,
    sections: Sequence[str] = (),
) -> str:
    """All files into `folder`; the report's text."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = targets(figures, folder)
    text = render(figures, machine, rows, how=how, sections=sections)
    (folder / "bench.md").write_text(text)
    document = {
        "machine": machine.as_dict(),
        "how": how,
        "targets": [asdict(row) for row in rows],
        "problems": figures.problems(),
        "scale": scale,
        "runs": [run.as_dict() for run in figures.runs],
    }
    (folder / "bench.json").write_text(json.dumps(document, indent=1) + "\n")
    draw_throughput(figures, folder / "bench-throughput.svg")
    draw_cpu(figures, folder / "bench-cpu.svg")
    return text


def render(
    figures: Figures, machine: Machine, rows: list[Target], *, how: str, sections: Sequence[str]
) -> str:
    parts = [
        "# Benchmark",
        f"{machine}.",
        f"{how} {_SHARED}",
        "## Targets",
        _targets(rows),
        _TARGETS_SAID,
        *_why_not(rows),
        *_problems(figures),
        "## Throughput and latency",
        "![Throughput by workload](bench-throughput.svg)",
        _throughput(figures),
        _ROUNDS,
        "## Where the time goes",
        "![CPU by workload](bench-cpu.svg)",
        _cpu(figures),
        _KINDS_SAID,
        "## A waiting visitor",
        _waiting(figures),
        "## The cap in a rush",
        _rush(figures),
        *sections,
        "## Workloads",
        "\n".join(f"* **{each.title}.** {each.what}" for each in WORKLOADS),
    ]
    return "\n\n".join(parts) + "\n"


def _targets(rows: list[Target]) -> str:
    said = {True: "holds", False: "**does not hold**", None: ""}
    body = [[t.what, t.wanted, t.figure, said[t.reached]] for t in rows]
    return table(["what", "target", "reached", ""], body, words=4)


def _why_not(rows: list[Target]) -> list[str]:
    """Once for all targets that are missed for the same reason."""
    missed = [row for row in rows if row.reached is False and row.why_not]
    whats = {row.why_not: row.what for row in missed}
    if not whats:
        return []
    return [
        "Where the time goes in what was not reached, and what would reach it:",
        "\n".join(f"* **{what}**: {why}" for why, what in whats.items()),
    ]


def _problems(figures: Figures) -> list[str]:
    found = figures.problems()
    if not found:
        return []
    return [
        "**Runs that did not serve what they should have:**",
        "\n".join(f"* {p}" for p in found),
    ]


def _throughput(figures: Figures) -> str:
    rows = []
    for workload in _STEADY:
        for system in figures.systems(workload.name):

            def mid(value: Callable[[Run], float], w: str = workload.name, s: str = system) -> str:
                return f"{figures.median(w, s, value) or 0:.1f}"

            speed = figures.median(workload.name, system, per_second) or 0
            spread = figures.spread(workload.name, system, per_second) or 0
            rows.append([
                workload.title, NAMES[system], f"{speed:,.0f} {workload.unit}/s",
                f"±{100 * spread:.0f} %", mid(lambda r: r.serving_us),
                mid(lambda r: r.totals.p50_ms),
                mid(lambda r: r.totals.p90_ms), mid(lambda r: r.totals.p99_ms),
            ])  # fmt: skip
    return table(
        ["workload", "system", "throughput", "", "CPU µs, nginx and replicas", "p50 ms", "p90 ms",
         "p99 ms"], rows, words=2
    )  # fmt: skip


def _cpu(figures: Figures) -> str:
    rows = []
    for workload in _STEADY:
        for system in figures.systems(workload.name):
            values = [_kind(figures, workload.name, system, kind) for kind in KINDS]
            cells = ["" if value is None else f"{value:.3f}" for value in values]
            own = sum(value or 0 for value in values[:3])
            rows.append([workload.title, NAMES[system], *cells, f"{own:.3f}",
                         f"{own + (values[3] or 0):.3f}"])  # fmt: skip
    return table(["workload", "system", *KINDS[:3], "site", "own", "all"], rows, words=2)


def _kind(figures: Figures, workload: str, system: str, kind: str) -> float | None:
    if not any(kind in run.cpu for run in figures.of(workload, system)):
        return None
    return figures.median(workload, system, lambda run: run.cpu_per_1000(kind))


def _waiting(figures: Figures) -> str:
    rows = []
    for system in figures.systems("deep"):
        polls = figures.median("deep", system, lambda run: run.polls_per_minute) or 0
        own = figures.median("deep", system, lambda run: 1000 * run.own_cpu / run.arrivals) or 0
        cost = figures.median("deep", system, lambda run: run.cpu_per_waiting_minute) or 0
        rows.append([NAMES[system], f"{polls:.2f}", f"{own:.3f}", f"{cost:.3f}",
                     f"{cost * 100_000 / 60_000:.2f}"])  # fmt: skip
    head = ["100,000 waiting", "polls a minute", "CPU ms per poll",
            "CPU ms per visitor and minute", "cores for all of them"]  # fmt: skip
    return (
        table(head, rows) + "\n\nWaitroom's polls a minute are the mean of what its answers advise "
        "at every place (5,000 slots, five-minute sessions); the Lua design's page asks every "
        "ten seconds. The site is left out."
    )


def _rush(figures: Figures) -> str:
    rows = []
    for system in figures.systems("rush"):
        runs = figures.of("rush", system)
        rows.append([
            NAMES[system], f"{runs[0].cap}",
            ", ".join(f"{run.totals.requests:,}" for run in runs),
            ", ".join(str(run.inside) for run in runs),
            f"{max(run.overshoot for run in runs)}",
        ])  # fmt: skip
    return table(
        ["system", "cap", "newcomers, each round", "let in", "above the cap, at most"], rows
    )


def draw_throughput(figures: Figures, path: Path) -> None:
    """Requests, arrivals or polls a second, by workload and system."""
    figure = new_figure(11, 4.2)
    axes = figure.subplots()
    found = [
        {name: value for name in NAMES if (value := figures.median(w.name, name, per_second))}
        for w in _STEADY
    ]
    width = 0.8 / max(1, *map(len, found))
    top = max((value for of in found for value in of.values()), default=1)
    for system in (name for name in NAMES if any(name in of for of in found)):
        bars = axes.bar(
            [i + (list(of).index(system) - (len(of) - 1) / 2) * width
             for i, of in enumerate(found) if system in of],
            values := [of[system] for of in found if system in of], width * 0.92,
            color=_COLOURS[system], label=NAMES[system],
        )  # fmt: skip
        labels = [f"{value / 1000:.1f}k" for value in values]
        axes.bar_label(bars, labels=labels, fontsize=7, padding=1)
    axes.set_xticks(range(len(_STEADY)), [w.title.replace(", ", ",\n") for w in _STEADY])
    axes.tick_params(axis="x", length=0)
    axes.set_ylim(0, top * 1.12)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.set_ylabel("per second")
    axes.set_title("Throughput (more is better)", loc="left", fontweight="bold")
    figure.legend(loc="outside upper right", ncols=4)
    save(figure, path)


def draw_cpu(figures: Figures, path: Path) -> None:
    """CPU per 1,000, by kind of process."""
    figure = new_figure(9, 5.2)
    figure.set_layout_engine("constrained", w_pad=0.1)  # the names are not as wide everywhere
    axes = figure.subplots()
    places, names, place = [], [], 0.0
    for workload in _STEADY:
        for system in figures.systems(workload.name):
            left = 0.0
            for kind in KINDS:
                value = _kind(figures, workload.name, system, kind) or 0
                axes.barh(place, value, 0.85, left=left, color=_KIND_COLOURS[kind])
                left += value
            axes.text(left, place, f" {left:.2f}", va="center", fontsize=7)
            places.append(place)
            names.append(f"{workload.title} · {NAMES[system]}")
            place += 1
        place += 0.6
    axes.set_yticks(places, names, fontsize=8)
    axes.tick_params(axis="y", length=0)
    axes.invert_yaxis()
    axes.grid(visible=True, axis="x")
    axes.grid(visible=False, axis="y")
    axes.margins(x=0.08)
    axes.set_xlabel("CPU seconds per 1,000")
    axes.set_title("Where the time goes (less is better)", loc="left", fontweight="bold")
    handles = [Patch(color=_KIND_COLOURS[kind]) for kind in KINDS]
    figure.legend(handles, [*KINDS[:3], "site"], loc="outside upper right", ncols=4)
    save(figure, path)
