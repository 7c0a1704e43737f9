"""Writes what was measured: opening.md, and opening.json with the figures of each round."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from loadtest.machine import Machine, table
from loadtest.opening.measure import Amount, Opening

#: The longest that a script may hold Redis, ms.
GOAL_MS = 10
_HOW = (
    "{amount.visitors:,} in the pre-queue of a redis-server (unix socket), joined and polling "
    "through the room's code (`sidecar/rooms/service.py`); HTTP is left out. Then the opening: "
    "{amount.replicas} replicas refresh every second, one sweeps every second, "
    "{amount.latecomers:,} latecomers of all classes join, and all of the pre-queue poll through "
    "one replica, as fast as that can. The room has two lines with weights, two classes and "
    "{cap:,} slots, which are all given at once. {amount.rounds} rounds, each with a server of its "
    "own; Redis, the replicas and the visitors shared this machine."
)
_HELD = (
    "Time by Redis' own slow log, of what took longer than 0.1 ms, ms: the median of those, and "
    "the longest of each round (median and worst of the rounds)."
)


def longest(rounds: Sequence[Opening]) -> list[float]:
    """Of each round, the longest that any script held Redis after the opening, ms."""
    return [max(max(each.after[name]) for name in _scripts(each.after)) for each in rounds]


def problems(rounds: Sequence[Opening]) -> list[str]:
    found = [problem for each in rounds for problem in each.problems]
    most = median(longest(rounds))
    if most > GOAL_MS:
        found.append(f"a script held Redis for {most:.1f} ms, more than {GOAL_MS}")
    return found


def write(rounds: Sequence[Opening], amount: Amount, machine: Machine, folder: Path) -> str:
    """Both files into `folder`; the report's text."""
    folder.mkdir(parents=True, exist_ok=True)
    text = render(rounds, amount, machine)
    (folder / "opening.md").write_text(text)
    document = {
        "machine": machine.as_dict(),
        "amount": asdict(amount),
        "goal_ms": GOAL_MS,
        "problems": problems(rounds),
        "rounds": [_as_dict(each) for each in rounds],
    }
    (folder / "opening.json").write_text(json.dumps(document, indent=1) + "\n")
    return text


def render(rounds: Sequence[Opening], amount: Amount, machine: Machine) -> str:
    how = _HOW.format(amount=amount, cap=max(1, amount.visitors // 50))
    loads = ", ".join(f"{each.load:.1f}" for each in rounds)
    parts = [
        "# An opening, measured",
        f"{machine}.",
        f"{how} The machine's load when each began: {loads}.",
        *(f"**{problem}.**" for problem in problems(rounds)),
        _summary(rounds, amount),
        "## What held Redis",
        _HELD,
        "From the opening on:",
        _held([each.after for each in rounds]),
        "Before it, while they came and waited:",
        _held([each.before for each in rounds]),
    ]
    return "\n\n".join(parts) + "\n"


def _summary(rounds: Sequence[Opening], amount: Amount) -> str:
    most = longest(rounds)
    first, answered = ([value(each) for each in rounds] for value in (_first_ms, _answered_s))
    polls = [amount.visitors / each.answered_s for each in rounds]
    joins = [amount.visitors / each.joined_s for each in rounds]
    rows = [
        ["the longest that a script held Redis, ms", f"{median(most):.1f}", f"{max(most):.1f}"],
        ["places known to the store after the opening, s", "0", "0"],
        ["the first visitor answered, ms", f"{median(first):.0f}", f"{max(first):.0f}"],
        [
            "all visitors answered, by one replica, s",
            f"{median(answered):.1f}",
            f"{max(answered):.1f}",
        ],
        ["polls a second meanwhile", f"{median(polls):,.0f}", f"{min(polls):,.0f}"],
        ["joins a second before", f"{median(joins):,.0f}", f"{min(joins):,.0f}"],
    ]
    return table(["", "median round", "worst round"], rows)


def _held(rounds: Sequence[dict[str, list[float]]]) -> str:
    names = sorted(
        {name for each in rounds for name in each},
        key=lambda name: (not name.endswith(".lua"), -max(max(e.get(name, [0])) for e in rounds)),
    )
    rows = []
    for name in names:
        values = [each[name] for each in rounds if name in each]
        most = [max(each) for each in values]
        rows.append([
            name, f"{median(len(each) for each in values):,.0f}",
            f"{median(value for each in values for value in each):.2f}",
            f"{median(most):.2f}", f"{max(most):.2f}",
        ])  # fmt: skip
    return table(["command", "a round", "median", "longest, median", "longest, worst"], rows)


def _first_ms(opening: Opening) -> float:
    return 1000 * opening.first_s


def _answered_s(opening: Opening) -> float:
    return opening.answered_s


def _scripts(held: dict[str, list[float]]) -> list[str]:
    return [name for name in held if name.endswith(".lua")]


def _as_dict(opening: Opening) -> dict[str, Any]:
    document = asdict(opening)
    for part in ("before", "after"):
        document[part] = {
            name: {"runs": len(v), "median_ms": median(v), "longest_ms": max(v)}
            for name, v in sorted(getattr(opening, part).items())
        }
    return document
