"""Reports of measurements: Markdown and charts, and JSON in a folder that git ignores.

The texts are templates (Jinja), in which a filter formats numbers: `{{ 1234.5|n(1) }}` is 1,234.5.

Charts are SVG: the same bytes for the same figures, legible on any background.
"""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from statistics import median
from typing import Any

import matplotlib as mpl

mpl.use("svg")

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from pydantic_core import to_json

from loadtest.machine import describe

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


@dataclass(frozen=True, slots=True)
class Target:
    """One row in the benchmark's table of targets. `is_reached` is None if it was not measured."""

    what: str
    wanted: str
    is_reached: bool | None = None
    figure: str = NOT_MEASURED
    #: Where the time goes, and what would reach the target.
    why_not: str = ""

    @property
    def verdict(self) -> str:
        return {True: "reached", False: "**not reached**", None: ""}[self.is_reached]


@dataclass(slots=True)
class Report:
    """A measurement's report: NAME.md, the files beside it, and data/NAME.json."""

    name: str
    #: Values for the text, templates/NAME.md.j2.
    values: dict[str, Any]
    #: All measured values, for the JSON.
    figures: Any
    #: Charts and texts by the names of their files.
    files: dict[str, Figure | str] = field(default_factory=dict)
    problems: Sequence[str] = ()
    targets: Sequence[Target] = ()

    def text(self) -> str:
        values = {"machine": describe(), "problems": self.problems, "targets": self.targets}
        return render(self.name, **values, **self.values)

    def write(self, folder: Path) -> str:
        """Write all files into `folder`. Return the text."""
        (folder / "data").mkdir(parents=True, exist_ok=True)
        text = self.text()
        (folder / f"{self.name}.md").write_text(text)
        for name, content in self.files.items():
            if isinstance(content, str):
                (folder / name).write_text(content)
            else:
                metadata = {"Date": None, "Creator": None}
                content.savefig(folder / name, format="svg", metadata=metadata)
        document = {
            "machine": describe(),
            "problems": self.problems,
            "targets": self.targets,
            "figures": self.figures,
        }
        data = to_json(document, indent=1, fallback=str)
        (folder / "data" / f"{self.name}.json").write_bytes(data + b"\n")
        return text


def read_targets(folder: Path, name: str) -> list[Target]:
    """Return the targets that the last report of this name in `folder` wrote."""
    file = folder / "data" / f"{name}.json"
    if not file.exists():
        return []
    return [Target(**target) for target in json.loads(file.read_text())["targets"]]


def new_figure(width: float = 8, height: float = 4) -> Figure:
    """Return an empty figure in our style; inches."""
    mpl.rcParams.update(_STYLE)
    return Figure(figsize=(width, height), layout="constrained")


def draw_bars(
    rows: Mapping[str, Mapping[str, float]], colours: Mapping[str, str], what: str, form: str
) -> Figure:
    """Draw a horizontal bar for each row, of one or several parts, the first row at the top.

    Args:
        rows: The values of the parts by the name of the row.
        colours: The colour of each part.
        what: The label of the axis.
        form: The format of the sums at the ends of the bars, such as ".2f".
    """
    figure = new_figure(9, 0.25 * len(rows) + 1)
    # The width of the names differs between machines.
    figure.set_layout_engine("constrained", w_pad=0.1)
    axes = figure.subplots()
    for place, parts in enumerate(rows.values()):
        left = 0.0
        for part, value in parts.items():
            axes.barh(place, value, 0.85, left=left, color=colours[part])
            left += value
        axes.text(left, place, f" {left:{form}}", va="center", fontsize=7)
    axes.set_yticks(range(len(rows)), list(rows), fontsize=8)
    axes.tick_params(axis="y", length=0)
    axes.invert_yaxis()
    axes.grid(visible=True, axis="x")
    axes.grid(visible=False, axis="y")
    axes.margins(x=0.08)
    axes.set_xlabel(what)
    handles = [Patch(color=colour, label=part) for part, colour in colours.items()]
    figure.legend(handles=handles, loc="outside upper right", ncols=len(handles))
    return figure


def count(number: int, what: str) -> str:
    """Return a number with its noun: "1 round", "5 rounds"."""
    return f"{number} {what}{'s' * (number != 1)}"


def percentile(values: Iterable[float], share: float) -> float:
    """Return a percentile by nearest rank."""
    ranked = sorted(values)
    return ranked[max(0, math.ceil(share * len(ranked)) - 1)]


def _format_number(value: float | None, digits: int = 0) -> str:
    return "" if value is None else f"{value:,.{digits}f}"


def _row(*cells: Any) -> str:
    """Return a row of a Markdown table. A cell may be several."""
    flat = (each for cell in cells for each in ([cell] if isinstance(cell, str | int) else cell))
    return f"| {' | '.join(map(str, flat))} |"


def _head(words: int, *cells: Any) -> str:
    """Return the head of a table. Columns after the first `words` are figures, aligned right."""
    head = _row(*cells)
    columns = head.count(" | ") + 1
    return f"{head}\n{_row(['---'] * words, ['---:'] * (columns - words))}"


def _bold(problems: Sequence[str]) -> str:
    """Return a paragraph for each problem."""
    return "\n\n".join(f"**{problem}.**" for problem in problems)


def _median(values: Iterable[Any], attribute: str = "") -> float:
    """Return the median of numbers, or of an attribute of all items."""
    return float(median(map(attrgetter(attribute), values) if attribute else values))


def render(name: str, **values: Any) -> str:
    """Return the text of a template. No two blank lines follow each other."""
    text = _TEMPLATES.get_template(f"{name}.md.j2").render(**values)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


_TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).with_name("templates")),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_TEMPLATES.filters |= {"n": _format_number, "median": _median, "percentile": percentile}
_TEMPLATES.globals |= {
    "bold": _bold, "count": count, "head": _head, "max": max, "min": min, "row": _row, "zip": zip,
}  # fmt: skip
