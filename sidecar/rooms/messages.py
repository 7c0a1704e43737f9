"""An operator's message to visitors: a text, or a table with a text by language and an end.

Redis stores the texts and the end in a field of their own (TABLE_FIELD), beside `message`, which is
always a text: replicas of 0.1.0 show that one. Such a replica may change `message` alone, so a
table counts only beside its own text.
"""

import json
import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import PlainValidator, WithJsonSchema

from sidecar.kit.clock import iso
from sidecar.kit.errors import InputError
from sidecar.kit.moments import LATEST_MS, read_moment
from sidecar.kit.setting_types import DURATION, parse_duration

MAX_LENGTH = 500
#: The name of the text for visitors of all other languages, and the names that are no languages.
OTHERS = "text"
_END, _LENGTH = "until", "for"
#: The field of the config hash that has a message's table.
TABLE_FIELD = "message_table"
_MAX_LENGTH_S = 366 * 86_400
_LANGUAGE = r"[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8}){0,3}"
_HINT = 'write a text, or a text by language, such as {"en": "Back at 9", "de": "Weiter um 9"}'
_TEXT_SCHEMA = {"type": "string", "maxLength": MAX_LENGTH}
_SCHEMA = {
    "anyOf": [
        _TEXT_SCHEMA,
        {
            "type": "object",
            "properties": {
                OTHERS: {**_TEXT_SCHEMA, "minLength": 1},
                _END: {"anyOf": [{"type": "integer"}, {"type": "string"}]},
                _LENGTH: {
                    "anyOf": [
                        {"type": "number", "exclusiveMinimum": 0},
                        {"type": "string", "pattern": DURATION},
                    ]
                },
            },
            "patternProperties": {f"^{_LANGUAGE}$": {**_TEXT_SCHEMA, "minLength": 1}},
            "additionalProperties": False,
            "examples": [{"en": "Back at 9", "de": "Weiter um 9", "for": "15m"}],
        },
    ]
}


def _read_message(value: object) -> str | dict[str, Any]:
    """Check a message, and convert its end to ms since 1970. Raises ValueError."""
    if isinstance(value, str):
        if problem := _find_text_problem(value):
            raise ValueError(problem)
        return value
    if not isinstance(value, Mapping):
        raise ValueError(_HINT)  # noqa: TRY004 - pydantic expects a ValueError
    table = {name: text for name, text in value.items() if (name, text) != (_END, None)}
    problems = [_HINT] if table.keys() <= {_END} else []
    problems += [
        f"{_show(name)}: {found}" for name in table if (found := _find_problem(name, table))
    ]
    if problems:
        raise ValueError("\n".join(problems))
    return table


def _find_problem(name: str, table: dict[str, Any]) -> str:
    """Return what is wrong with an entry of a table, or "". Converts the end to ms."""
    if name == _END:
        try:
            table[_END] = read_moment(table[_END], "UTC")
        except ValueError as error:
            return str(error)
        return "" if 0 <= table[_END] <= LATEST_MS else "write a time from 1970 to 2199"
    if name == _LENGTH:  # set_end converts it where there is a time that it counts from
        return f"only a change of the room's message may have it: write {_END}"
    if name != OTHERS and not re.fullmatch(_LANGUAGE, str(name)):
        return f"write a language, such as de or pt-BR, or {OTHERS}, {_END}"
    return _find_text_problem(table[name]) or ("" if table[name] else "is needed")


def _find_text_problem(text: object) -> str:
    if not isinstance(text, str):
        return "write a text"
    if len(text) > MAX_LENGTH:
        return f"must have at most {MAX_LENGTH} characters"
    # JSON may have half a character, which Redis' scripts cannot read.
    return "" if _show(text) == text else "has characters that no text has"


def _show(text: object) -> str:
    """Return a text with escapes in place of lone surrogates, which pydantic cannot repeat."""
    return str(text).encode(errors="backslashreplace").decode()


Message = Annotated[str | dict[str, Any], PlainValidator(_read_message), WithJsonSchema(_SCHEMA)]


def to_json(value: Any) -> str:
    """Return a setting's value as JSON. None, which stands for the configured value, is ""."""
    return "" if value is None else json.dumps(value)


def set_end(message: Any, now_ms: int) -> Any:
    """Return the message with the time at which it ends, if it says how long it lasts (`for`).
    Raises InputError."""
    if not isinstance(message, Mapping) or message.get(_LENGTH) is None:
        return message
    texts = {name: text for name, text in message.items() if name != _LENGTH}
    try:
        seconds = parse_duration(message[_LENGTH])
    except ValueError as error:
        raise InputError([f"message: {_LENGTH}: {error}"]) from None
    if not isinstance(seconds, int | float) or not 0 < seconds <= _MAX_LENGTH_S or _END in texts:
        raise InputError([f'message: write {_END}, or {_LENGTH} with a duration such as "15m"'])
    return {**texts, _END: now_ms + round(seconds * 1000)}


def get_text(message: str | dict[str, Any] | None) -> str | None:
    """Return the text for visitors whose language has none of its own: `text`, or else the English
    one, or else the first."""
    if not isinstance(message, dict):
        return message
    texts = get_translations(message)
    return message.get(OTHERS) or texts.get("en") or next(iter(texts.values()), None)


def get_translations(message: str | dict[str, Any] | None) -> dict[str, str]:
    """Return a message's texts by language."""
    table = message if isinstance(message, dict) else {}
    return {name: text for name, text in table.items() if name not in {OTHERS, _END}}


def describe_message(message: str | dict[str, Any] | None) -> str:
    """Return a message's text, its other languages and its end, as the room's log shows them."""
    text, translations = get_text(message), get_translations(message)
    shown = "none" if text is None else json.dumps(text, ensure_ascii=False)
    others = ", ".join(name for name in translations if translations[name] != text)
    end_ms = message.get(_END) if isinstance(message, dict) else None
    until = f", until {iso(end_ms)[:16].replace('T', ' ')} UTC" if end_ms else ""
    return f"{shown}{f' ({others})' if others else ''}{until}"


def drop_ended(message: str | dict[str, Any] | None, now_ms: int) -> str | dict[str, Any] | None:
    """Return the message, or None if its end has come."""
    end_ms = message.get(_END) if isinstance(message, dict) else None
    return None if end_ms is not None and now_ms >= end_ms else message


def split_message(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings as Redis stores them: with a message's table apart from its text."""
    message = values.get("message")
    if "message" not in values:
        return dict(values)
    table = message if isinstance(message, dict) else None
    return {**values, "message": get_text(message), TABLE_FIELD: table}


def split_json_message(values: Mapping[str, str]) -> dict[str, str]:
    """Return the same of JSON values, in which "" is the configured value."""
    if "message" not in values:
        return dict(values)
    parts = split_message({"message": json.loads(values["message"] or "null")})
    return {**values, **{name: to_json(value) for name, value in parts.items()}}


def join_message(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings that Redis has stored, with a message's table in place of its text."""
    joined = dict(values)
    table = joined.pop(TABLE_FIELD, None)
    if table and joined.get("message") == get_text(table):
        joined["message"] = table
    return joined


def join_changes(changes: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """Return the changes of a log entry, with a message's table in place of its text. A change is
    the JSON value before, and the one after; "" is the configured value."""
    if TABLE_FIELD not in changes:
        return dict(changes)
    sides = []
    for side in (0, 1):
        stored = {name: json.loads(change[side] or "null") for name, change in changes.items()}
        sides.append(to_json(join_message(stored).get("message")))
    others = {name: change for name, change in changes.items() if name != TABLE_FIELD}
    return {**others, "message": sides}
