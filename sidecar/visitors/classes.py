"""Defines the settings of visitor classes and sub-queues, which decide who is called next."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, field_validator

from sidecar.kit.setting_types import Count, Seconds, parse_duration

#: The highest number of classes, because an order has three bits for the number of the class.
MAX_CLASSES = 7
#: The highest priority. Each priority has its own range of orders (rooms/lua/parts/order.lua).
MAX_PRIORITY = 3
#: The highest number of sub-queues.
MAX_LINES = MAX_PRIORITY + 1
_DAY_S = 86_400

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}\Z")


def is_class_name(text: str) -> bool:
    """Return True if a string can be the name of a class, a sub-queue or an event."""
    return _NAME.match(text) is not None


def _check_name(value: str) -> str:
    if not is_class_name(value):
        raise ValueError("a name has lower-case letters, digits, - and _, 32 at most")
    return value


def table_validator(example: str) -> BeforeValidator:
    """Return a validator that accepts a table, or a table as JSON in an environment variable."""
    return _make_json_validator((dict, BaseModel), "a table", example)


def list_validator(example: str) -> BeforeValidator:
    """Return a validator that accepts a list of tables, or such a list as JSON."""
    return _make_json_validator((list, tuple), "a list of tables", f"[{example}]")


def _make_json_validator(types: tuple[type, ...], expected: str, example: str) -> BeforeValidator:
    def parse(value: object) -> object:
        if isinstance(value, str):
            try:
                value = json.loads(value)
            except (ValueError, RecursionError):
                raise ValueError(f"write JSON, such as {example}") from None
        if not isinstance(value, types):
            raise ValueError(f"write {expected}, in JSON such as {example}")  # noqa: TRY004
        return value

    return BeforeValidator(parse)


def problems_validator(find_problems: Callable[[Any], list[str]]) -> AfterValidator:
    """Return a validator that raises ValueError if `find_problems` returns any problems."""

    def check(value: object) -> object:
        if problems := find_problems(value):
            raise ValueError("\n".join(problems))
        return value

    return AfterValidator(check)


Name = Annotated[str, AfterValidator(_check_name)]


class VisitorClass(BaseModel):
    """A visitor class, and its advantages in the queue."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    head_start: Seconds = Field(default=0, ge=0, le=_DAY_S)
    """Places visitors as if they had joined this much earlier, in whole milliseconds. This setting
    has no effect if `queueing_method` is `random`."""
    priority: Count = Field(default=0, ge=0, le=MAX_PRIORITY)
    """All visitors with a higher priority are called before any visitor with a lower one. Visitors
    without a class have priority 0. Not allowed in a room with `lines`."""
    line: Name | None = None
    """The sub-queue of the class. None: the last one, where visitors without a class wait."""

    @field_validator("head_start", mode="before")
    @classmethod
    def _parse_head_start(cls, value: object) -> object:
        seconds = parse_duration(value)
        if isinstance(seconds, int | float) and seconds > _DAY_S:
            raise ValueError("at most 1d")  # the default message would be in seconds
        return seconds

    @field_validator("head_start")
    @classmethod
    def _round_to_ms(cls, value: float) -> float:
        return round(value, 3)


_Language = Annotated[str, Field(pattern=r"^[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8})*$")]
_Label = Annotated[str, Field(min_length=1, max_length=60)]
_LABELS_EXAMPLE = '{"en": "Call centre"}'


class SubQueueSettings(BaseModel):
    """One sub-queue of a room (`lines`)."""

    __qualname__ = "Line"  # its name in the OpenAPI document

    model_config = ConfigDict(extra="forbid", frozen=True, title="Line")

    name: Name
    """The name; unique in the room and written like a class name."""
    weight: Count | None = Field(default=None, ge=1, le=1000)
    """The sub-queue's share of calls while visitors wait in all sub-queues. Set it for all or for
    none. None: visitors of a sub-queue are called only while all earlier sub-queues are empty."""
    # Without labels the field is left out, because replicas of 0.1.0 refuse it.
    labels: Annotated[dict[_Language, _Label], table_validator(_LABELS_EXAMPLE)] = Field(
        default={}, exclude_if=lambda labels: not labels
    )
    """The name on the waiting page, by language: `{en = "Call centre", de = "Callcenter"}`. Other
    languages get English, or else the first. Empty: `name`, but the last sub-queue is not shown."""


def find_sub_queue_problems(lines: tuple[SubQueueSettings, ...]) -> list[str]:
    """Return the problems of a room's sub-queues taken together."""
    problems = []
    if len(lines) == 1 or len(lines) > MAX_LINES:
        problems.append(f"2 to {MAX_LINES} lines, or none: these are {len(lines)}")
    duplicates = find_duplicates(line.name for line in lines)
    problems += [f"two lines are called {name!r}" for name in duplicates]
    if len({line.weight is None for line in lines}) > 1:
        problems.append("give each line a weight, or none of them")
    return problems


def find_duplicates(names: Iterable[str]) -> list[str]:
    return [name for name, count in Counter(names).items() if count > 1]


def find_class_problems(
    classes: dict[str, VisitorClass], lines: tuple[SubQueueSettings, ...] | None
) -> list[str]:
    """Return the problems of a room's classes. `lines` is None if the sub-queues are invalid."""
    problems = []
    if len(classes) > MAX_CLASSES:
        problems.append(f"at most {MAX_CLASSES} classes: these are {len(classes)}")
    if lines is None:
        return problems
    names = {line.name for line in lines}
    for name, visitor_class in classes.items():
        line = visitor_class.line
        if line is not None and line not in names:
            problems.append(f"{name}.line: no line of this room is called {line!r}")
        if lines and visitor_class.priority:
            problems.append(f"{name}.priority: where a room has lines, those say who goes first")
    return problems


_CLASS_EXAMPLE, _LINE_EXAMPLE = '{"head_start": "5m"}', '{"name": "ordinary"}'
Classes = Annotated[
    dict[Name, Annotated[VisitorClass, table_validator(_CLASS_EXAMPLE)]],
    table_validator(f'{{"vip": {_CLASS_EXAMPLE}}}'),
]
Lines = Annotated[
    tuple[Annotated[SubQueueSettings, table_validator(_LINE_EXAMPLE)], ...],
    list_validator(_LINE_EXAMPLE),
    problems_validator(find_sub_queue_problems),
]
