"""The findings of `waitroom doctor`. Their texts are in findings.ini, with {placeholders}."""

import textwrap
from collections.abc import Callable, Sequence
from configparser import ConfigParser
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


class Level(StrEnum):
    """The severity of a finding."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True)
class Finding:
    """The result of a check, and how to fix the problem."""

    level: Level
    what: str
    fix: str = ""


TEXTS = ConfigParser(interpolation=None)
TEXTS.read_string(Path(__file__).with_suffix(".ini").read_text(encoding="utf-8"))

_COLOURS = {Level.OK: "green", Level.WARNING: "yellow", Level.PROBLEM: "red"}
_WIDTH = max(len(level) for level in Level) + 2


def get_finding(name: str, /, **values: object) -> Finding:
    """Get a finding from findings.ini. `values` replace the {placeholders} in its texts."""
    level, *texts = (TEXTS.get(name, key, fallback="") for key in ("level", "what", "fix"))
    return Finding(Level(level), *(text.replace("\n", " ").format(**values) for text in texts))


def format_findings(
    findings: Sequence[Finding], *, columns: int, add_colour: Callable[[str, str], str]
) -> str:
    """Format findings with their fixes, and a summary. Wrap lines at `columns`, unless it is 0."""
    lines = []
    for finding in findings:
        label = add_colour(f"{finding.level:<{_WIDTH}}", _COLOURS[finding.level])
        lines.append(label + _wrap(finding.what, columns))
        if finding.fix:
            lines.append(" " * _WIDTH + _wrap(f"-> {finding.fix}", columns))
    levels = Level.PROBLEM, Level.WARNING
    problems, warnings = (count_findings(findings, level) for level in levels)
    summary = f"{problems} problem(s), {warnings} warning(s)."
    return "\n".join([*lines, "", summary if problems or warnings else "Everything is right."])


def count_findings(findings: Sequence[Finding], level: Level) -> int:
    return sum(finding.level is level for finding in findings)


def _wrap(text: str, columns: int) -> str:
    if not columns:
        return text
    lines = textwrap.wrap(
        text, max(columns - _WIDTH, 40), break_long_words=False, break_on_hyphens=False
    )
    return ("\n" + " " * _WIDTH).join(lines)
