"""The settings that decide who is next: classes of visitors, and sub-queues."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, field_validator

from sidecar.kit.setting_types import Count, Seconds, parse_duration

#: An order's last three bits are the number of its class, so that no two orders are the same.
MAX_CLASSES = 7
#: Each priority is a band of orders ahead of the next (rooms/lua/parts/order.lua).
MAX_PRIORITY = 3
MAX_LINES = MAX_PRIORITY + 1
_DAY_S = 86_400

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}\Z")


def is_class_name(text: str) -> bool:
    return _NAME.match(text) is not None


def _name(value: str) -> str:
    if not is_class_name(value):
        raise ValueError("a name has lower-case letters, digits, - and _, 32 at most")
    return value


def a_table(example: str) -> BeforeValidator:
    """Return a validator that reads a table, also from JSON: the environment has text only."""
    return _read((dict, BaseModel), "a table", example)


def a_list(example: str) -> BeforeValidator:
    """Return a validator that reads a list of tables, also from JSON."""
    return _read((list, tuple), "a list of tables", f"[{example}]")


def _read(kinds: tuple[type, ...], what: str, example: str) -> BeforeValidator:
    def read(value: object) -> object:
        if isinstance(value, str):
            try:
                value = json.loads(value)
            except (ValueError, RecursionError):
                raise ValueError(f"write JSON, such as {example}") from None
        if not isinstance(value, kinds):
            raise ValueError(f"write {what}, in JSON such as {example}")  # noqa: TRY004
        return value

    return BeforeValidator(read)


def checked(problems_of: Callable[[Any], list[str]]) -> AfterValidator:
    """Return a validator that refuses a value, with all its problems."""

    def check(value: object) -> object:
        if problems := problems_of(value):
            raise ValueError("\n".join(problems))
        return value

    return AfterValidator(check)


Name = Annotated[str, AfterValidator(_name)]


class VisitorClass(BaseModel):
    """What visitors of a class get when they have to wait."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    head_start: Seconds = Field(default=0, ge=0, le=_DAY_S)
    """Places visitors as if they had come this much earlier. In whole milliseconds. It has no
    effect if `queueing_method` is `random`."""
    priority: Count = Field(default=0, ge=0, le=MAX_PRIORITY)
    """All visitors of a higher priority go before any of a lower one. Visitors without a class
    have 0. Not in a room with `lines`."""
    line: Name | None = None
    """The sub-queue of these visitors. None: the last one, where visitors without a class wait."""

    @field_validator("head_start", mode="before")
    @classmethod
    def _a_day_at_most(cls, value: object) -> object:
        seconds = parse_duration(value)
        if isinstance(seconds, int | float) and seconds > _DAY_S:
            raise ValueError("at most 1d")  # as settings are written, not in seconds
        return seconds

    @field_validator("head_start")
    @classmethod
    def _in_milliseconds(cls, value: float) -> float:
        return round(value, 3)


class Line(BaseModel):
    """One sub-queue of a room."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Name
    """Shown on the waiting page. Written like a class's name, and used once."""
    weight: Count | None = Field(default=None, ge=1, le=1000)
    """Its share of the calls while visitors wait in all sub-queues. Set it for all of them or for
    none. None: a sub-queue is called only while those before it are empty."""


def problems_of_lines(lines: tuple[Line, ...]) -> list[str]:
    """Return what is wrong with a room's lines, each of which is valid."""
    problems = []
    if len(lines) == 1 or len(lines) > MAX_LINES:
        problems.append(f"2 to {MAX_LINES} lines, or none: these are {len(lines)}")
    problems += [f"two lines are called {name!r}" for name in repeated(line.name for line in lines)]
    if len({line.weight is None for line in lines}) > 1:
        problems.append("give each line a weight, or none of them")
    return problems


def repeated(names: Iterable[str]) -> list[str]:
    """Return the names that are there more than once."""
    return [name for name, count in Counter(names).items() if count > 1]


def problems_of_classes(
    classes: dict[str, VisitorClass], lines: tuple[Line, ...] | None
) -> list[str]:
    """Return what is wrong with a room's classes. `lines` is None if those are invalid."""
    problems = []
    if len(classes) > MAX_CLASSES:
        problems.append(f"at most {MAX_CLASSES} classes: these are {len(classes)}")
    if lines is None:
        return problems
    names = {line.name for line in lines}
    for name, one in classes.items():
        if one.line is not None and one.line not in names:
            problems.append(f"{name}.line: no line of this room is called {one.line!r}")
        if lines and one.priority:
            problems.append(f"{name}.priority: where a room has lines, those say who goes first")
    return problems


_CLASS, _LINE = '{"head_start": "5m"}', '{"name": "ordinary"}'
Classes = Annotated[
    dict[Name, Annotated[VisitorClass, a_table(_CLASS)]], a_table(f'{{"vip": {_CLASS}}}')
]
Lines = Annotated[
    tuple[Annotated[Line, a_table(_LINE)], ...], a_list(_LINE), checked(problems_of_lines)
]
