"""Reports of measurements: Markdown and charts, and JSON in a folder that git ignores.

Charts are SVG: the same bytes for the same figures, legible on any background.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

import matplotlib as mpl

mpl.use("svg")

from matplotlib.figure import Figure
from pydantic_core import to_json

from loadtest.machine import Machine

#: Colours of what is measured, and of what it is measured against.
OURS, PLAIN, OLD = "#0b7285", "#868e96", "#e8590c"
NOT_MEASURED = "not measured"

_STYLE: Any = {
    "svg.hashsalt": "waitroom",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": "#dee2e6",
    "figure.facecolor": "white",
    "legend.frameon": False,
}

_Run = TypeVar("_Run")


@dataclass(frozen=True, slots=True)
class Target:
    """One row in the benchmark's table of targets. `is_reached` is None if it was not measured."""

    what: str
    wanted: str
    is_reached: bool | None = None
    figure: str = NOT_MEASURED
    #: Where the time goes, and what would reach the target.
    why_not: str = ""


@dataclass(slots=True)
class Report:
    """A measurement's report: NAME.md, the files beside it, and data/NAME.json."""

    name: str
    title: str
    paragraphs: Sequence[str]
    #: All measured values, for the JSON.
    figures: Any
    #: Charts and texts by the names of their files.
    files: dict[str, Figure | str] = field(default_factory=dict)
    problems: Sequence[str] = ()
    targets: Sequence[Target] = ()
    #: Versions of other software that took part.
    versions: Sequence[str] = ()

    def text(self, machine: Machine) -> str:
        head = [f"# {self.title}", f"{'; '.join([str(machine), *self.versions])}."]
        return "\n\n".join([*head, *self.paragraphs]) + "\n"

    def write(self, folder: Path, machine: Machine) -> str:
        """Write all files into `folder`. Return the text."""
        (folder / "data").mkdir(parents=True, exist_ok=True)
        text = self.text(machine)
        (folder / f"{self.name}.md").write_text(text)
        for name, content in self.files.items():
            if isinstance(content, str):
                (folder / name).write_text(content)
            else:
                metadata = {"Date": None, "Creator": None}
                content.savefig(folder / name, format="svg", metadata=metadata)
        document = {
            "machine": machine,
            "problems": self.problems,
            "targets": self.targets,
            "figures": self.figures,
        }
        data = to_json(document, indent=1, fallback=str)
        (folder / "data" / f"{self.name}.json").write_bytes(data + b"\n")
        return text


def read_targets(folder: Path | None, name: str) -> list[Target]:
    """Return the targets that the last report of this name in `folder` wrote."""
    file = folder and folder / "data" / f"{name}.json"
    if not file or not file.exists():
        return []
    return [Target(**target) for target in json.loads(file.read_text())["targets"]]


def new_figure(width: float = 8, height: float = 4) -> Figure:
    """Return an empty figure in our style; inches."""
    mpl.rcParams.update(_STYLE)
    return Figure(figsize=(width, height), layout="constrained")


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, words: int = 1) -> str:
    """Return a Markdown table. Columns after the first `words` are figures, aligned right."""
    lines = [head, ["---" if i < words else "---:" for i in range(len(head))], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def bold(problems: Sequence[str]) -> list[str]:
    """Return a paragraph for each problem."""
    return [f"**{problem}.**" for problem in problems]


def count(number: int, what: str) -> str:
    """Return a number with its noun: "1 round", "5 rounds"."""
    return f"{number} {what}{'s' * (number != 1)}"


def median_of(runs: Sequence[_Run], value: Callable[[_Run], float]) -> float:
    return float(median(map(value, runs)))


def spread(rates: Sequence[float]) -> str:
    """Return half the distance between the best and the worst round, of the median; "" of one."""
    half = (max(rates) - min(rates)) / 2 / median(rates)
    return f"±{half:.0%}" if len(rates) > 1 else ""
