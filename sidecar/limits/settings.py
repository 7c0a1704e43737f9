"""The settings of rate limits, and how the key of a call is made from its fields."""

import re
from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Literal
from urllib.parse import quote

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from sidecar.kit.errors import InputError
from sidecar.kit.setting_types import Count, Seconds

#: The value of `limit` that means no limit.
UNLIMITED = -1
MAX_LIMIT = 1_000_000
#: The highest cost of one call.
MAX_COST = 1_000
MAX_KEY_LENGTH = 256
#: The pattern of an id that a client chooses for a call, so that it can retry the request safely.
PERMIT_ID = re.compile(r"[A-Za-z0-9._:@+-]{1,64}\Z")
#: The pattern of a call's key.
KEY = re.compile(rf"[!-~]{{0,{MAX_KEY_LENGTH}}}\Z")
_FIELD = re.compile(r"\{([a-z][a-z0-9_]{0,31})\}")
#: The punctuation that is not encoded in a field's value. Other punctuation is percent-encoded, so
#: that a value cannot be mistaken for two values with a separator.
_SAFE = "@+,"
_PLAIN_VALUE = re.compile(rf"[A-Za-z0-9_.~{_SAFE}-]*\Z")
#: The pattern of a field's value after percent-encoding.
_ENCODED_VALUE = r"(?:[A-Za-z0-9_.~@+,-]|%[0-9A-F]{2})+"
#: Names that a field cannot have, because requests use them for other members and parameters.
_RESERVED_NAMES = frozenset({"key", "cost", "id", "wait", "rule", "self"})


def _check_key_pattern(value: str) -> str:
    for name in _FIELD.findall(value):
        if name in _RESERVED_NAMES:
            raise ValueError(f"no field can be called {name}, which is a word of the service API")
    literals = _FIELD.sub("", value)
    if "{" in literals or "}" in literals or any(not "!" <= c <= "~" for c in literals):
        raise ValueError('write fields in braces, such as "{biz}:{channel}"')
    return value


def _check_value(value: int) -> int:
    if not UNLIMITED <= value <= MAX_LIMIT:
        raise ValueError(f"write a whole number from 0 to {MAX_LIMIT}, or -1 for no limit")
    return value


def _check_keys(limits: dict[str, int]) -> dict[str, int]:
    problems = [
        f"{key[:40]!r} is a key of no call: at most {MAX_KEY_LENGTH} characters, ASCII without "
        "spaces; other characters of a field are percent-encoded"
        for key in limits
        if not KEY.match(key)
    ]
    if problems:
        raise ValueError("\n".join(problems))
    return limits


Value = Annotated[Count, AfterValidator(_check_value)]


def check_burst(value: int | None, algorithm: str | None) -> int | None:
    """Return the value of a setting `burst`. Raises ValueError if the algorithm has no burst."""
    if value is not None and algorithm not in {None, "token_bucket"}:
        raise ValueError(f"is for token_bucket; {algorithm} has none")
    return value


class LimitSettings(BaseModel):
    """A rate limit, `[limits.NAME]`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    algorithm: Literal[
        "fixed_window", "sliding_window", "token_bucket", "leaky_bucket", "concurrency"
    ]
    """How calls are counted."""
    key: Annotated[str, Field(max_length=128), AfterValidator(_check_key_pattern)] = ""
    """The pattern of a call's key, in ASCII without spaces. Each key has its own limit. Write
    fields in braces. A field's name has lower-case letters, digits and `_`, and is not `key`,
    `cost`, `id`, `wait`, `rule` or `self`. Empty: all calls share one limit."""
    limit: Value | None = None
    """The maximum number of calls for one key in a window or, with `concurrency`, at a time. It
    applies to keys that are not in `values`. None or -1: no limit. 0: no calls are allowed."""
    window: Seconds | None = Field(default=None, ge=0.001, le=86_400 * 31, validate_default=True)
    """The period in which calls are counted. Required, but not allowed with `concurrency`."""
    burst: Count | None = Field(default=None, ge=1, le=MAX_LIMIT)
    """How many calls may be made at once after an idle period. Only for `token_bucket`. None: as
    many as `limit`."""
    on_exceed: Literal["refuse", "pace"] = "refuse"
    """What happens to a call over the limit. `refuse`: it is refused. `pace`: a later time is
    reserved for the call. With `concurrency`, only `refuse` is allowed."""
    max_wait: Seconds = Field(default=60, gt=0, le=86_400)
    """The longest wait with `pace`. A call that would wait longer is refused."""
    lease: Seconds = Field(default=60, ge=0.1, le=86_400)
    """With `concurrency`: a permit that is not released expires after this time."""
    idempotency_window: Seconds = Field(default=60, ge=1, le=86_400)
    """How long another request with the same id counts as a retry of the same call, starting at the
    time when the call may proceed."""
    on_store_failure: Literal["admit", "refuse"] = "admit"
    """What happens to calls while Redis is unavailable. `admit`: they may proceed. `refuse`: they
    are refused."""
    values: Annotated[dict[str, Value], AfterValidator(_check_keys)] = {}
    """Limits of individual keys, in place of `limit`. `waitroom check-config` warns about keys that
    do not match the pattern in `key`. A limit that is set at run time takes precedence."""

    @field_validator("window")
    @classmethod
    def _check_window(cls, value: float | None, info: ValidationInfo) -> float | None:
        algorithm = info.data.get("algorithm")
        if value is None and algorithm not in {None, "concurrency"}:
            raise ValueError(f'is needed for {algorithm}, such as "1s"')
        if value is not None and algorithm == "concurrency":
            raise ValueError("is not for concurrency, where `lease` says how long a permit lasts")
        return value

    @field_validator("burst")
    @classmethod
    def _check_burst(cls, value: int | None, info: ValidationInfo) -> int | None:
        return check_burst(value, info.data.get("algorithm"))

    @field_validator("on_exceed")
    @classmethod
    def _check_on_exceed(cls, value: str, info: ValidationInfo) -> str:
        if value == "pace" and info.data.get("algorithm") == "concurrency":
            raise ValueError("concurrency cannot pace calls: if calls have to queue, use a lease")
        return value

    @cached_property
    def fields(self) -> tuple[str, ...]:
        """Return the names of the fields in the key, in order."""
        return tuple(dict.fromkeys(_FIELD.findall(self.key)))

    @cached_property
    def _pieces(self) -> list[str]:
        """Return the parts of the key: literal strings and names of fields, alternating."""
        return _FIELD.split(self.key)

    def find_warning(self, key: str) -> str:
        """Return a warning if no values of the fields form this key, so that only a call that sends
        the whole key can have it. Otherwise, return ""."""
        if not self.key or self._pattern.fullmatch(key):
            return ""
        return (
            f"no call that names its fields has the key {key!r}: such keys are {self.key}, with a "
            "value for each field, percent-encoded where it is not plain"
        )

    @property
    def _pattern(self) -> re.Pattern[str]:
        pieces, names = self._pieces.copy(), set[str]()
        for n in range(1, len(pieces), 2):
            name = pieces[n]
            pieces[n] = f"(?P={name})" if name in names else f"(?P<{name}>{_ENCODED_VALUE})"
            names.add(name)
        pieces[::2] = [re.escape(piece) for piece in pieces[::2]]
        return re.compile("".join(pieces))

    @property
    def warnings(self) -> list[str]:
        """Return warnings about settings that are allowed but probably mistakes."""
        return [f"values: {text}" for key in self.values if (text := self.find_warning(key))]

    def make_key(self, values: Mapping[str, str]) -> str:
        """Make the key of a call from the values of its fields: "{biz}:{channel}" with biz=refund,
        channel=wx is refund:wx. Percent-encode characters in values that might be separators.
        Raises InputError if fields are missing, unknown or empty, or if the key is too long."""
        if len(values) != len(self.fields) or not all(map(values.get, self.fields)):
            raise InputError(self._find_problems(values))
        pieces = self._pieces.copy()
        for n in range(1, len(pieces), 2):
            value = values[pieces[n]]
            is_plain = _PLAIN_VALUE.match(value)
            pieces[n] = value if is_plain else quote(value, safe=_SAFE, errors="surrogatepass")
        key = "".join(pieces)
        if len(key) > MAX_KEY_LENGTH:
            raise InputError([f"the key is longer than {MAX_KEY_LENGTH} characters"])
        return key

    def _find_problems(self, values: Mapping[str, str]) -> list[str]:
        missing = [name for name in self.fields if not values.get(name)]
        problems = [f"{name}: is needed, a part of the key {self.key}" for name in missing]
        if unknown := [name for name in values if name not in self.fields]:
            fields = ", ".join(self.fields) or "this limit has no fields"
            problems += [f"{name[:40]}: is no part of the key ({fields})" for name in unknown]
        return problems
