"""Parses times in settings, which have a time zone, and times in queries about the past."""

import contextlib
import re
import time
from datetime import UTC, datetime
from typing import Annotated
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo

from sidecar.kit.setting_types import parse_duration

#: The latest time of a setting, ms since 1970: the year 2200.
LATEST_MS = 7_258_118_400_000
_TIME = re.compile(
    r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d(:\d\d)?)?", re.ASCII
)
_HINT = 'write a date and a time, such as "2026-12-01 10:00", or "2026-12-01T10:00+01:00"'


def read_moment(value: object, zone: str) -> int:
    """Convert a time in the settings, a string, a TOML date-time or ms, to ms since 1970. A time
    without an offset is in `zone`. Raises ValueError that says how to write a time."""
    moment = _parse_text(value) if isinstance(value, str) else value
    if isinstance(moment, datetime):
        if moment.tzinfo is None:
            moment = _add_offset(moment, zone)
        return round(moment.timestamp() * 1000)
    if isinstance(moment, bool) or not isinstance(moment, int | float) or moment % 1 != 0:
        raise ValueError(_HINT)
    return int(moment)


def _parse_text(value: str) -> datetime:
    text = value.strip().upper()
    if _TIME.fullmatch(text):  # fromisoformat would accept many other forms
        with contextlib.suppress(ValueError):
            return datetime.fromisoformat(text)
    raise ValueError(_HINT)


def _add_offset(moment: datetime, zone: str) -> datetime:
    """Add the zone's offset to a local time. Raises ValueError if clocks skip or repeat it."""
    zone_info = ZoneInfo(zone)
    before, after = (moment.replace(tzinfo=zone_info, fold=fold) for fold in (0, 1))
    if before.utcoffset() == after.utcoffset():
        return before
    # Conversion to UTC and back gives two times that the clocks do show.
    candidates = [time.astimezone(UTC).astimezone(zone_info) for time in (before, after)]
    if candidates[0].replace(tzinfo=None) == moment:
        fault, change = "comes twice", "put back then: say which with its offset,"
    else:
        fault, change = "never comes", "put forward then: write the time that is meant,"
    first, second = (_format(time) for time in sorted(candidates))
    raise ValueError(
        f"{_format(moment)} {fault} in {zone}, where the clocks are {change} {first} or {second}"
    )


def _format(moment: datetime) -> str:
    has_seconds = moment.second or moment.microsecond
    return moment.isoformat(" ", "auto" if has_seconds else "minutes")


def parse_moment(value: object, info: ValidationInfo) -> int:
    """Parse a time in the settings for pydantic, in the time zone of the field `timezone`."""
    moment_ms = read_moment(value, str(info.data.get("timezone", "UTC")))
    if not 0 <= moment_ms <= LATEST_MS:
        raise ValueError("write a time from 1970 to 2199")
    return moment_ms


Moment = Annotated[int, BeforeValidator(parse_moment), Field(ge=0, le=LATEST_MS)]


def read_zoned(value: object) -> int:
    """Convert a time with a zone (ISO 8601) to ms since 1970. Raises ValueError that says how to
    write a time."""
    with contextlib.suppress(ValueError, OverflowError):
        if isinstance(value, str) and (moment := _parse_text(value)).tzinfo is not None:
            return round(moment.timestamp() * 1000)
    raise ValueError("write a date, a time and its zone, such as 2026-12-01T10:00+01:00")


_AGO = r"[0-9]{1,5}(\.[0-9]+)?(ms|s|m|h|d)"
_AT = r"[0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{3})?)?(Z|[+-][0-9]{2}:[0-9]{2})?"
_PAST = f"^(|now|{_AGO}|[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}(T{_AT})?)$"
_PAST_HINT = "write a time such as 2026-11-27T18:00Z, or how long ago: 90m, 24h, 7d"
#: The first and last times that a datetime can have, ms since 1970. Databases can store both.
_FIRST_MS, _LAST_MS = -62_135_596_800_000, 253_402_300_799_999


def _check_past(text: str) -> str:
    moment_ms = read_past(text, round(time.time() * 1000)) if text else 0
    if not _FIRST_MS <= moment_ms <= _LAST_MS:
        raise ValueError(_PAST_HINT)
    return text


#: A time in the past as a string that read_past accepts, or "".
Past = Annotated[str, Field(json_schema_extra={"pattern": _PAST})]
#: A Past that a datetime can represent.
DatedPast = Annotated[Past, AfterValidator(_check_past)]


def read_past(text: str, now_ms: int) -> int:
    """Convert a time to ms since 1970. The text is ISO 8601 (in UTC if it has no offset), "now", or
    how long ago the time was ("24h"). Raises ValueError that says how to write a time."""
    if text == "now":
        return now_ms
    try:
        if text[-1:].isalpha() and not text.endswith(("Z", "z")):
            seconds_ago = float(parse_duration(text))  # type: ignore[arg-type] # it converts text
            return now_ms - int(seconds_ago * 1000)
        moment = datetime.fromisoformat(text)
        return int(moment.replace(tzinfo=moment.tzinfo or UTC).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise ValueError(_PAST_HINT) from None
