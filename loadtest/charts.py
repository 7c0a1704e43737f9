"""The look of all charts: SVG, the same bytes for the same figures, legible on any background."""

from typing import Any

import matplotlib as mpl

mpl.use("svg")

from pathlib import Path

from matplotlib.figure import Figure

#: What is measured, and what it is measured against.
OURS, PLAIN, OLD = "#0b7285", "#868e96", "#e8590c"

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


def new_figure(width: float = 8, height: float = 4) -> Figure:
    """An empty figure in our style; inches."""
    mpl.rcParams.update(_STYLE)
    return Figure(figsize=(width, height), layout="constrained")


def save(figure: Figure, path: Path) -> None:
    figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})
