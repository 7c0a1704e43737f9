"""What the doctor says."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    OK = "ok"
    #: Doubtful: right in some installations, wrong in most.
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True)
class Finding:
    level: Level
    what: str
    #: What to do about it; lines of configuration stand in `backticks`.
    fix: str = ""


def ok(what: str) -> Finding:
    return Finding(Level.OK, what)


def warning(what: str, fix: str) -> Finding:
    return Finding(Level.WARNING, what, fix)


def problem(what: str, fix: str) -> Finding:
    return Finding(Level.PROBLEM, what, fix)
