"""Findings as text, and as JSON."""

from __future__ import annotations

import json
import textwrap
from dataclasses import asdict
from typing import TYPE_CHECKING

from sidecar.doctor.finding import Level

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sidecar.doctor.finding import Finding

_COLOURS = {Level.OK: "32", Level.WARNING: "33", Level.PROBLEM: "31"}
_WIDTH = max(len(level) for level in Level) + 2


def as_text(findings: Sequence[Finding], *, columns: int, colour: bool) -> str:
    """One line a finding, what to do below it; wrapped unless `columns` is 0."""
    lines = []
    for found in findings:
        label = f"{found.level:<{_WIDTH}}"
        if colour:
            label = f"\x1b[{_COLOURS[found.level]}m{label}\x1b[0m"
        lines.append(label + _indented(found.what, columns))
        if found.fix:
            lines.append(" " * _WIDTH + _indented(f"-> {found.fix}", columns))
    return "\n".join([*lines, "", summary(findings)])


def as_json(findings: Sequence[Finding]) -> str:
    document = {
        "problems": _count(findings, Level.PROBLEM),
        "warnings": _count(findings, Level.WARNING),
        "findings": [asdict(found) for found in findings],
    }
    return json.dumps(document, indent=2, ensure_ascii=False)


def has_problem(findings: Sequence[Finding]) -> bool:
    return _count(findings, Level.PROBLEM) > 0


def summary(findings: Sequence[Finding]) -> str:
    problems, warnings = _count(findings, Level.PROBLEM), _count(findings, Level.WARNING)
    if not problems and not warnings:
        return "Everything is right."
    return f"{problems} problem(s), {warnings} warning(s)."


def _count(findings: Sequence[Finding], level: Level) -> int:
    return sum(found.level is level for found in findings)


def _indented(text: str, columns: int) -> str:
    if not columns:
        return text
    lines = textwrap.wrap(
        text, max(columns - _WIDTH, 40), break_long_words=False, break_on_hyphens=False
    )
    return ("\n" + " " * _WIDTH).join(lines)
