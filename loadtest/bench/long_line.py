"""What a long queue costs: the report's chapter and its chart (loadtest/bench/scale.py)."""

from typing import Any

from matplotlib.figure import Figure

from loadtest.bench.scale import JOINS, POLLS
from loadtest.report import OLD, OURS, PLAIN, new_figure, table

_BEYOND_CACHES = (
    "A queue of a million takes a quarter of a GB, which no processor's cache holds: each step to "
    "a visitor's entry waits for memory. The script sends the same commands as at 1,000. A queue "
    "in parts, of which the one at the head stays in the caches, would reach it; a position would "
    "then be a sum over the parts."
)

#: The targets of a room in which a million wait.
TARGET_WAITING = 1_000_000
POLL_US, VISITOR_BYTES, SCRIPT_MS = 18.0, 300.0, 5.0


def reached(result: dict[str, Any]) -> list[tuple[str, float, float]]:
    """Return what is limited, the figure of the largest queue, and the limit."""
    size = result["sizes"][-1]
    longest = max(script["longest_cpu_ms"] for script in size["scripts"].values())
    return [
        ("µs of Redis CPU a poll", size["scripts"][POLLS]["cpu_us_each"], POLL_US),
        ("bytes a visitor", size["bytes_each"], VISITOR_BYTES),
        ("ms of CPU for the longest script", longest, SCRIPT_MS),
    ]


_ALONE = (
    "One Redis; the scripts are sent together, as busy replicas send them: 32 of one visitor each, "
    "or one of 64. CPU is all that Redis's main thread took, its reading and writing included; a "
    "script's own time is by the clock of Redis (`INFO commandstats`), so another program on the "
    "machine can lengthen it. One script that comes when Redis has been idle for some milliseconds "
    "takes about twice as long, because the processor's caches hold other things by then."
)


def section(result: dict[str, Any]) -> str:
    sizes = result["sizes"]
    header = ["", *(f"{size['waiting']:,} waiting" for size in sizes)]
    rows = [
        ["bytes a visitor", *(f"{size['bytes_each']:.0f}" for size in sizes)],
        ["…in `waiting`", *(_bytes_in(size, "waiting") for size in sizes)],
        ["…in `due`", *(_bytes_in(size, "due") for size in sizes)],
        ["…in `events` (100,000 are kept)", *(_bytes_in(size, "events") for size in sizes)],
        ["bytes in `stats`, in all", *(f"{size['bytes']['stats']:,}" for size in sizes)],
        [
            "bytes in `polls` of one who polls early",
            *(f"{s['polls_bytes_each']:.0f}" for s in sizes),
        ],
    ]
    for name, first in sizes[0]["scripts"].items():
        each = bool(first["visitors"])
        label = f"{name}: µs of CPU for each" if each else f"{name}: µs of CPU"
        rows.append([label, *(_each(size["scripts"][name], "cpu_us") for size in sizes)])
        own = (_each(size["scripts"][name], "script_us") for size in sizes)
        rows.append(["…in the script itself", *own])
        rows.append([
            f"{name}: longest script, ms of CPU (by the clock)",
            *(_longest(size["scripts"][name]) for size in sizes),
        ])  # fmt: skip
    for name, label in (("sweep", "a sweep of a tenth"), ("raised cap", "a cap raised by 10,000")):
        rows.append([f"{label}: ms of CPU in all", *(_total(s["scripts"][name]) for s in sizes)])
        rows.append([f"{label}: scripts", *(str(s["scripts"][name]["scripts"]) for s in sizes)])
    lines = ["## A long line", "", "![Redis's CPU for a poll, by how many wait](scale.svg)", ""]
    lines += [
        table(header, rows),
        "",
        _ALONE,
        "",
        f"Asked of {TARGET_WAITING:,} waiting; measured with {sizes[-1]['waiting']:,}:",
        "",
    ]
    for what, measured, most in reached(result):
        verdict = "reached" if measured <= most else "**not reached**"
        lines.append(f"* {measured:.1f} {what}, {most:g} at most: {verdict}")
    if any(measured > most for _, measured, most in reached(result)):
        lines += ["", _BEYOND_CACHES]
    return "\n".join(lines) + "\n"


def draw(result: dict[str, Any]) -> Figure:
    """Draw Redis's CPU for a poll and for a join into a full room, by how many wait."""
    figure = new_figure()
    axes = figure.subplots()
    waiting = [size["waiting"] for size in result["sizes"]]
    for name, colour in ((POLLS, OURS), (JOINS, PLAIN)):
        costs = [size["scripts"][name]["cpu_us_each"] for size in result["sizes"]]
        axes.plot(waiting, costs, color=colour, marker="o", label=name)
    axes.axhline(POLL_US, color=OLD, linestyle="--", label="the target for a poll")
    axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("visitors waiting in the room")
    axes.set_ylabel("Redis CPU each, µs")
    axes.legend()
    return figure


def _bytes_in(size: dict[str, Any], key: str) -> str:
    return f"{size['bytes'][key] / size['waiting']:.0f}"


def _each(script: dict[str, Any], name: str) -> str:
    return f"{script[name] / (script['visitors'] or script['scripts']):.1f}"


def _longest(script: dict[str, Any]) -> str:
    return f"{script['longest_cpu_ms']:.1f} ({script['longest_ms']:.1f})"


def _total(script: dict[str, Any]) -> str:
    return f"{script['cpu_us'] / 1000:.1f}"
