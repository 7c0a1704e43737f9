"""Who is next, as far as the settings say: classes of visitors, and lines of their own."""

from __future__ import annotations

import json
import re
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, field_validator

from sidecar.base.fields import Count, Seconds  # noqa: TC001 - pydantic reads it

#: An order's last three bits say whose class it is, so that no two are ever the same.
MAX_CLASSES = 7
#: Bands of orders, one ahead of the other (lua/shared/order.lua).
MAX_PRIORITY = 3
MAX_LINES = MAX_PRIORITY + 1

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}\Z")


def is_class_name(text: str) -> bool:
    return _NAME.match(text) is not None


def _name(value: str) -> str:
    if not is_class_name(value):
        raise ValueError("a name has lower-case letters, digits, - and _, 32 at most")
    return value


def from_json(value: object) -> object:
    """The environment has text only."""
    if isinstance(value, str):
        try:
            return json.loads(value)
        except ValueError:
            raise ValueError('write JSON, such as [{"name": "ordinary"}]') from None
    return value


Name = Annotated[str, AfterValidator(_name)]


class VisitorClass(BaseModel):
    """What a class of visitors is given when they have to wait."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    #: As if they had come so much earlier. Whole milliseconds.
    head_start: Seconds = Field(default=0, ge=0, le=86_400)
    #: All of a higher one go before any of a lower; whoever has no class has 0.
    priority: Count = Field(default=0, ge=0, le=MAX_PRIORITY)
    #: The line in which they stand; None: that of those without a class.
    line: Name | None = None

    @field_validator("head_start")
    @classmethod
    def _in_milliseconds(cls, value: float) -> float:
        return round(value, 3)


class Line(BaseModel):
    """One of several lines that feed a room."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Name
    #: Its share of the calls, against the other lines' in which somebody waits. None, for all
    #: lines: a line is called only while nobody waits in those before it.
    weight: Count | None = Field(default=None, ge=1, le=1000)


Classes = Annotated[dict[Name, VisitorClass], BeforeValidator(from_json)]
Lines = Annotated[tuple[Line, ...], BeforeValidator(from_json)]


def problems_of_lines(lines: tuple[Line, ...]) -> list[str]:
    """What is wrong with a room's lines, each for itself right."""
    problems = []
    if len(lines) == 1 or len(lines) > MAX_LINES:
        problems.append(f"2 to {MAX_LINES} lines, or none")
    if len({line.name for line in lines}) < len(lines):
        problems.append("two lines have the same name")
    if len({line.weight is None for line in lines}) > 1:
        problems.append("give each line a weight, or none of them")
    return problems


def problems_of_classes(
    classes: dict[str, VisitorClass], lines: tuple[Line, ...] | None
) -> list[str]:
    """What is wrong with a room's classes beside its lines (None: those are wrong themselves)."""
    problems = []
    if len(classes) > MAX_CLASSES:
        problems.append(f"at most {MAX_CLASSES} classes")
    if lines is None:
        return problems
    names = {line.name for line in lines}
    for name, one in classes.items():
        if one.line is not None and one.line not in names:
            problems.append(f"{name}.line: no line of this room is called {one.line!r}")
        if lines and one.priority:
            problems.append(f"{name}.priority: where a room has lines, those say who goes first")
    return problems
