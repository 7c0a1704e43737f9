"""Describes operators' actions in words, and finds the action that stopped a room.

An action is an entry of the room's log, as Lists.log returns it, or the same fields from the
history. In `changes` an unknown value before is None.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pydantic_core import to_jsonable_python

from sidecar.kit.shorten import shorten_values
from sidecar.rooms.messages import describe_message
from sidecar.rooms.settings import RoomSettings
from sidecar.visitors.visitor_number import visitor_number

Act = Mapping[str, Any]

#: The setting that stops a room in each mode, and its value then.
_STOPS: dict[str, tuple[str, Any]] = {
    "paused": ("queue_all", True),
    "draining": ("max_waiting", 0),
    "open": ("suspended", True),
}
#: The verb of a change: which setting has which value before or after it, and the settings that the
#: verb covers. The first that applies is used.
_VERBS: tuple[tuple[str, str, Any, str, set[str]], ...] = (
    ("suspended", "after", True, "suspended", {"suspended"}),
    ("queue_all", "after", True, "paused", {"queue_all"}),
    ("max_waiting", "after", 0, "drained", {"queue_all", "max_waiting"}),
    ("queue_all", "after", False, "resumed", {"queue_all", "max_waiting"}),
    ("max_waiting", "before", 0, "resumed", {"queue_all", "max_waiting"}),
    ("suspended", "after", False, "ended the suspension", {"suspended"}),
)
_ON_VISITORS = {
    "move": "moved {} from {}",
    "back": "moved {} back, from {}",
    "grade": "gave {} another class, from {}",
    "release": "released {}",
}
#: The value before a change, if it is not known.
_UNKNOWN = object()


class _Step(NamedTuple):
    """A changed setting. A value that was reset is the configured one, and `is_reset` is true."""

    name: str
    before: Any
    after: Any
    is_reset: bool


def describe_act(act: Act, configured: RoomSettings) -> str:
    """Return what an operator did, such as "paused: no stock" or "total_active_users: 3 → 500"."""
    what, detail, visitor = act["what"], act["detail"], act["visitor"]
    short = visitor_number(visitor) if visitor else ""
    if what in _ON_VISITORS:
        return _ON_VISITORS[what].format(short, detail)
    if what == "reset":
        return f"reset the queue: {int(detail):,} places"
    if what == "reset-learned":
        return "reset what the room learned of the site"
    steps = [step for step in _read_steps(act, configured) if step.before != step.after]
    if what not in {"change", "undo"} or not (steps or act.get("changes")):
        return " ".join(filter(None, (what, short, detail)))
    verb, covered = next(
        (
            (verb, covered)
            for name, side, value, verb, covered in _VERBS
            if any(step.name == name and getattr(step, side) == value for step in steps)
        ),
        ("", set[str]()),
    )
    parts = [verb, *(_format_step(step) for step in steps if step.name not in covered)]
    text = "; ".join(filter(None, parts)) or "no change"
    why = find_reason(act)
    return ("undid a change: " if what == "undo" else "") + text + (f": {why}" if why else "")


def add_earlier_values(acts: Sequence[Act]) -> list[Act]:
    """Return actions of the history, latest first, with the values before them, as far as earlier
    actions in the list have set these values."""
    known: dict[str, str] = {}
    found: list[Act] = []
    for act in reversed(acts):
        changes = {
            name: (known.get(name), "" if value is None else json.dumps(value))
            for name, value in _read_detail(act).items()
            if name != "why"
        }
        known |= {name: after for name, (_, after) in changes.items()}
        found.append({**act, "changes": changes} if changes else act)
    return found[::-1]


def find_reason(act: Act) -> str:
    """Return the reason that an operator gave for a change of settings, or ""."""
    return str(_read_detail(act).get("why", ""))


def find_stop(acts: Iterable[Act], settings: RoomSettings, configured: RoomSettings) -> Any:
    """Return who stopped a room that is paused, drains or is suspended, when (ms) and why. `acts`
    is the log, latest first. A hold has `until` too. Return None if the room runs, or if the log
    has no such action. `by` is "" if the room is as configured."""
    if settings.mode not in _STOPS:
        return None
    if settings.hold:
        held = settings.hold.model_dump()
        for act in acts:
            if any(step.after == held for step in _read_steps(act, configured)):
                return held | {"by": act["by"], "at": act["at"]}
        return held | {"by": "the site", "at": None}
    name, value = _STOPS[settings.mode]
    if getattr(settings, name) != value:  # a room with another queueing_method
        return None
    for act in acts:
        for step in _read_steps(act, configured) if act.get("changes") else ():
            if step.name == name and step.before != step.after:
                is_it = step.after == value
                found = {"by": act["by"], "at": act["at"], "why": find_reason(act)}
                return found if is_it else None
    is_configured = getattr(configured, name) == value
    return {"by": "", "at": None, "why": ""} if is_configured else None


def _read_steps(act: Act, configured: RoomSettings) -> Iterator[_Step]:
    for name, (before, after) in (act.get("changes") or {}).items():
        old, new = (
            _UNKNOWN if text is None else json.loads(text or "null") for text in (before, after)
        )
        default = to_jsonable_python(getattr(configured, name, None))
        yield _Step(
            name, default if old is None else old, default if new is None else new, new is None
        )


def _read_detail(act: Act) -> dict[str, Any]:
    if act["what"] not in {"change", "undo"}:
        return {}
    try:
        values = json.loads(act["detail"])
    except ValueError:
        return {}
    return values if isinstance(values, dict) else {}


def _format_step(step: _Step) -> str:
    format_value = describe_message if step.name == "message" else _format_value
    before = "" if step.before is _UNKNOWN else f"{format_value(step.before)} → "
    return f"{step.name}: {before}{format_value(step.after)}" + ", as configured" * step.is_reset


def _format_value(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    [shown] = shorten_values({"": json.dumps(value, ensure_ascii=False)}).values()
    return str(shown)
