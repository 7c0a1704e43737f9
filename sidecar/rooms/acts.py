"""Describes operators' actions in words, and finds the action that stopped a room.

An action is an entry of the room's log, as Lists.log returns it, or the same fields from the
history. In `changes`, an old value that is unknown is None."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pydantic_core import to_jsonable_python

from sidecar.kit.shorten import shorten_values
from sidecar.rooms.messages import describe_message
from sidecar.rooms.settings import RoomSettings
from sidecar.visitors.visitor_number import visitor_number

Act = Mapping[str, Any]

#: For each mode of a stopped room: the setting that causes the mode, and that setting's value.
_STOPS: dict[str, tuple[str, Any]] = {
    "paused": ("queue_all", True),
    "draining": ("max_waiting", 0),
    "open": ("suspended", True),
}
#: Rules for the verb of a change: a setting, a side of the change (before or after), the setting's
#: value on that side, the verb, and the settings that the verb covers. The first match applies.
_VERBS: tuple[tuple[str, str, Any, str, set[str]], ...] = (
    ("suspended", "after", True, "suspended", {"suspended"}),
    ("queue_all", "after", True, "paused", {"queue_all"}),
    ("max_waiting", "after", 0, "drained", {"queue_all", "max_waiting"}),
    ("queue_all", "after", False, "resumed", {"queue_all", "max_waiting"}),
    ("max_waiting", "before", 0, "resumed", {"queue_all", "max_waiting"}),
    ("suspended", "after", False, "ended the suspension", {"suspended"}),
)
_VISITOR_ACT_FORMATS = {
    "move": "moved {} from {}",
    "back": "moved {} back, from {}",
    "grade": "gave {} another class, from {}",
    "release": "released {}",
}
#: Stands for an old value that is unknown.
_UNKNOWN = object()


class _Change(NamedTuple):
    """One changed setting. If the change reset the setting, `after` is the configured value."""

    name: str
    before: Any
    after: Any
    is_reset: bool


def describe_act(act: Act, file_settings: RoomSettings) -> str:
    """Return what an operator did, such as "paused: no stock" or "total_active_users: 3 → 500"."""
    what, detail, visitor = act["what"], act["detail"], act["visitor"]
    short = visitor_number(visitor) if visitor else ""
    if what in _VISITOR_ACT_FORMATS:
        return _VISITOR_ACT_FORMATS[what].format(short, detail)
    if what == "reset":
        return f"reset the queue: {int(detail):,} places"
    if what == "reset-learned":
        return "reset what the room learned of the site"
    changes = [each for each in _read_changes(act, file_settings) if each.before != each.after]
    if what not in {"change", "undo"} or not (changes or act.get("changes")):
        return " ".join(filter(None, (what, short, detail)))
    verb, covered = next(
        (
            (verb, covered)
            for name, side, value, verb, covered in _VERBS
            if any(each.name == name and getattr(each, side) == value for each in changes)
        ),
        ("", set[str]()),
    )
    parts = [verb, *(_format_change(each) for each in changes if each.name not in covered)]
    text = "; ".join(filter(None, parts)) or "no change"
    why = find_reason(act)
    return ("undid a change: " if what == "undo" else "") + text + (f": {why}" if why else "")


def add_earlier_values(acts: Sequence[Act]) -> list[Act]:
    """Return these actions of the history, latest first, with `changes`. An old value is None if no
    earlier action in the list has set it."""
    values: dict[str, str] = {}
    result: list[Act] = []
    for act in reversed(acts):
        changes = {
            name: (values.get(name), "" if value is None else json.dumps(value))
            for name, value in _read_detail(act).items()
            if name != "why"
        }
        values |= {name: after for name, (_, after) in changes.items()}
        result.append({**act, "changes": changes} if changes else act)
    return result[::-1]


def find_reason(act: Act) -> str:
    """Return the reason that an operator gave for a change of settings, or ""."""
    return str(_read_detail(act).get("why", ""))


def find_stop(acts: Iterable[Act], settings: RoomSettings, file_settings: RoomSettings) -> Any:
    """Return who stopped a room (`by`), when (`at`, in ms) and why (`why`), and for a hold also its
    end (`until`). `acts` is the room's log, latest first. Return None if the room runs, or if the
    log lacks the action. `by` is "" if the settings file stops the room."""
    if settings.mode not in _STOPS:
        return None
    if settings.hold:
        hold = settings.hold.model_dump()
        for act in acts:
            if any(change.after == hold for change in _read_changes(act, file_settings)):
                return hold | {"by": act["by"], "at": act["at"]}
        return hold | {"by": "the site", "at": None}
    name, value = _STOPS[settings.mode]
    if getattr(settings, name) != value:  # the queueing_method causes this mode
        return None
    for act in acts:
        for change in _read_changes(act, file_settings) if act.get("changes") else ():
            if change.name == name and change.before != change.after:
                stop = {"by": act["by"], "at": act["at"], "why": find_reason(act)}
                return stop if change.after == value else None
    is_configured = getattr(file_settings, name) == value
    return {"by": "", "at": None, "why": ""} if is_configured else None


def _read_changes(act: Act, file_settings: RoomSettings) -> Iterator[_Change]:
    for name, (before, after) in (act.get("changes") or {}).items():
        old, new = (
            _UNKNOWN if text is None else json.loads(text or "null") for text in (before, after)
        )
        default = to_jsonable_python(getattr(file_settings, name, None))
        yield _Change(
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


def _format_change(change: _Change) -> str:
    format_value = describe_message if change.name == "message" else _format_value
    before = "" if change.before is _UNKNOWN else f"{format_value(change.before)} → "
    after = format_value(change.after) + ", as configured" * change.is_reset
    return f"{change.name}: {before}{after}"


def _format_value(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    [shown] = shorten_values({"": json.dumps(value, ensure_ascii=False)}).values()
    return str(shown)
