"""Checks and stores an operator's message to visitors: a text, or a table of texts by language with
the time at which the message ends.

Redis stores a table in a field of its own (TABLE_FIELD). The field `message` always has a text, for
replicas of 0.1.0. Such a replica may change `message` alone, so a table is valid only while
`message` is the text that get_text() returns for it."""

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
#: The names in a table that are no languages: the text for all other languages, the end, and, only
#: in a request, the duration until the end.
_OTHER_LANGUAGES, _END, _DURATION = "text", "until", "for"
#: The field of the hash `look` that stores a message's table.
TABLE_FIELD = "message_table"
_MAX_DURATION_S = 366 * 86_400
_LANGUAGE = r"[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8}){0,3}"
_HINT = 'write a text, or a text by language, such as {"en": "Back at 9", "de": "Weiter um 9"}'
_TEXT_SCHEMA = {"type": "string", "maxLength": MAX_LENGTH}
_SCHEMA = {
    "anyOf": [
        _TEXT_SCHEMA,
        {
            "type": "object",
            "properties": {
                _OTHER_LANGUAGES: {**_TEXT_SCHEMA, "minLength": 1},
                _END: {"anyOf": [{"type": "integer"}, {"type": "string"}]},
                _DURATION: {
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
        f"{_escape_surrogates(name)}: {problem}"
        for name in table
        if (problem := _find_entry_problem(name, table))
    ]
    if problems:
        raise ValueError("\n".join(problems))
    return table


def _find_entry_problem(name: str, table: dict[str, Any]) -> str:
    """Return the problem of one entry of a table, or "". Convert the end to ms in the table."""
    if name == _END:
        try:
            table[_END] = read_moment(table[_END], "UTC")
        except ValueError as error:
            return str(error)
        return "" if 0 <= table[_END] <= LATEST_MS else "write a time from 1970 to 2199"
    if name == _DURATION:  # in a change of the message, set_message_end() has replaced it
        return f"only a change of the room's message may have it: write {_END}"
    if name != _OTHER_LANGUAGES and not re.fullmatch(_LANGUAGE, str(name)):
        return f"write a language, such as de or pt-BR, or {_OTHER_LANGUAGES}, {_END}"
    return _find_text_problem(table[name]) or ("" if table[name] else "is needed")


def _find_text_problem(text: object) -> str:
    if not isinstance(text, str):
        return "write a text"
    if len(text) > MAX_LENGTH:
        return f"must have at most {MAX_LENGTH} characters"
    # JSON may contain lone surrogates, which the Lua scripts cannot read.
    return "" if _escape_surrogates(text) == text else "has characters that no text has"


def _escape_surrogates(text: object) -> str:
    """Return the text with escapes for lone surrogates, which pydantic's errors cannot contain."""
    return str(text).encode(errors="backslashreplace").decode()


Message = Annotated[str | dict[str, Any], PlainValidator(_read_message), WithJsonSchema(_SCHEMA)]


def to_json(value: Any) -> str:
    """Return a setting's value as JSON, or "" for None, which stands for the configured value."""
    return "" if value is None else json.dumps(value)


def set_message_end(message: Any, now_ms: int) -> Any:
    """Return the message with its end (`until`) in place of its duration (`for`). Without a
    duration, return the message unchanged. Raises InputError if the duration is invalid."""
    if not isinstance(message, Mapping) or message.get(_DURATION) is None:
        return message
    texts = {name: text for name, text in message.items() if name != _DURATION}
    try:
        seconds = parse_duration(message[_DURATION])
    except ValueError as error:
        raise InputError([f"message: {_DURATION}: {error}"]) from None
    if not isinstance(seconds, int | float) or not 0 < seconds <= _MAX_DURATION_S or _END in texts:
        raise InputError([f'message: write {_END}, or {_DURATION} with a duration such as "15m"'])
    return {**texts, _END: now_ms + round(seconds * 1000)}


def get_text(message: str | dict[str, Any] | None) -> str | None:
    """Return the message's text for visitors into whose language the message is not translated:
    `text`, or else the English text, or else the first one."""
    if not isinstance(message, dict):
        return message
    texts = get_translations(message)
    return message.get(_OTHER_LANGUAGES) or texts.get("en") or next(iter(texts.values()), None)


def get_translations(message: str | dict[str, Any] | None) -> dict[str, str]:
    table = message if isinstance(message, dict) else {}
    return {name: text for name, text in table.items() if name not in {_OTHER_LANGUAGES, _END}}


def describe_message(message: str | dict[str, Any] | None) -> str:
    """Return a message's text, its other languages and its end, as the room's log shows them."""
    text, translations = get_text(message), get_translations(message)
    quoted_text = "none" if text is None else json.dumps(text, ensure_ascii=False)
    others = ", ".join(name for name in translations if translations[name] != text)
    end_ms = message.get(_END) if isinstance(message, dict) else None
    until = f", until {iso(end_ms)[:16].replace('T', ' ')} UTC" if end_ms else ""
    return f"{quoted_text}{f' ({others})' if others else ''}{until}"


def drop_if_ended(message: str | dict[str, Any] | None, now_ms: int) -> str | dict[str, Any] | None:
    """Return the message, or None if it has ended."""
    end_ms = message.get(_END) if isinstance(message, dict) else None
    return None if end_ms is not None and now_ms >= end_ms else message


def split_message(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings as Redis stores them: a message's text in `message`, and its table apart."""
    message = values.get("message")
    if "message" not in values:
        return dict(values)
    table = message if isinstance(message, dict) else None
    return {**values, "message": get_text(message), TABLE_FIELD: table}


def split_json_message(values: Mapping[str, str]) -> dict[str, str]:
    """Do the same as split_message() for settings whose values are JSON ("": as configured)."""
    if "message" not in values:
        return dict(values)
    parts = split_message({"message": json.loads(values["message"] or "null")})
    return {**values, **{name: to_json(value) for name, value in parts.items()}}


def join_message(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings from Redis with the message's table, if it is valid, in place of its text."""
    joined = dict(values)
    table = joined.pop(TABLE_FIELD, None)
    if table and joined.get("message") == get_text(table):
        joined["message"] = table
    return joined


def join_changes(changes: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """Return the changes of a log entry with a message's tables in place of its texts. Each change
    is the JSON value before and the one after; "" stands for the configured value."""
    if TABLE_FIELD not in changes:
        return dict(changes)
    sides = []
    for side in (0, 1):
        stored = {name: json.loads(change[side] or "null") for name, change in changes.items()}
        sides.append(to_json(join_message(stored).get("message")))
    others = {name: change for name, change in changes.items() if name != TABLE_FIELD}
    return {**others, "message": sides}
