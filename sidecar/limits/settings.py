"""The settings of rate limits, and the key of a call."""

import re
from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Literal
from urllib.parse import quote

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from sidecar.kit.errors import ConfigError
from sidecar.kit.setting_types import Count, Seconds

#: The value of a limit that limits nothing.
UNLIMITED = -1
MAX_LIMIT = 1_000_000
#: The highest cost of one call.
MAX_COST = 1_000
MAX_KEY_LENGTH = 256
#: A caller's own id for a call, to ask for the same permit again.
PERMIT_ID = re.compile(r"[A-Za-z0-9._:@+-]{1,64}\Z")
#: The key of a call.
KEY = re.compile(rf"[!-~]{{0,{MAX_KEY_LENGTH}}}\Z")
_FIELD = re.compile(r"\{([a-z][a-z0-9_]{0,31})\}")
#: The punctuation that a field's value keeps. Everything else is percent-encoded, so that no value
#: reads as two.
_PLAIN = "@+,"
_IS_PLAIN = re.compile(rf"[A-Za-z0-9_.~{_PLAIN}-]*\Z")
#: A field's value after percent-encoding.
_PART = r"(?:[A-Za-z0-9_.~@+,-]|%[0-9A-F]{2})+"
#: The names of a request's other members and parameters.
_WORDS = frozenset({"key", "cost", "id", "wait", "rule", "self"})

_NEEDS_WINDOW = {"fixed_window", "sliding_window", "token_bucket", "leaky_bucket"}


def _key(value: str) -> str:
    for name in _FIELD.findall(value):
        if name in _WORDS:
            raise ValueError(f"no field can be called {name}, which is a word of the service API")
    rest = _FIELD.sub("", value)
    if "{" in rest or "}" in rest or any(not "!" <= c <= "~" for c in rest):
        raise ValueError('write fields in braces, such as "{biz}:{channel}"')
    return value


def _value(value: int) -> int:
    if not UNLIMITED <= value <= MAX_LIMIT:
        raise ValueError(f"write a whole number from 0 to {MAX_LIMIT}, or -1 for no limit")
    return value


def _keys(value: dict[str, int]) -> dict[str, int]:
    problems = [
        f"{key[:40]!r} is a key of no call: at most {MAX_KEY_LENGTH} characters, ASCII without "
        "spaces; what a field has beside is percent-encoded"
        for key in value
        if not KEY.match(key)
    ]
    if problems:
        raise ValueError("\n".join(problems))
    return value


Value = Annotated[Count, AfterValidator(_value)]


def burst_of(value: int | None, algorithm: str | None) -> int | None:
    """Return a setting `burst`. Raises ValueError if the algorithm has no burst."""
    if value is not None and algorithm not in {None, "token_bucket"}:
        raise ValueError(f"is for token_bucket; {algorithm} has none")
    return value


class LimitSettings(BaseModel):
    """One limit, `[limits.NAME]`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    algorithm: Literal[
        "fixed_window", "sliding_window", "token_bucket", "leaky_bucket", "concurrency"
    ]
    """How calls are counted."""
    key: Annotated[str, Field(max_length=128), AfterValidator(_key)] = ""
    """What tells calls apart: each key has a limit of its own. ASCII without spaces. Fields stand
    in braces; a field has lower-case letters, digits and `_`, and is not `key`, `cost`, `id`,
    `wait`, `rule` or `self`. Empty: all calls share one limit."""
    limit: Value | None = None
    """How many calls a key may make in a window, or at a time with `concurrency`. It is for keys
    without a line in `values`. None or -1: no limit. 0: no call."""
    window: Seconds | None = Field(default=None, ge=0.001, le=86_400 * 31, validate_default=True)
    """The time that the limit counts in. Needed for all algorithms but `concurrency`, which has
    none."""
    burst: Count | None = Field(default=None, ge=1, le=MAX_LIMIT)
    """How many calls may come at once after a rest. Only for `token_bucket`. None: as many as
    `limit`."""
    on_exceed: Literal["refuse", "pace"] = "refuse"
    """What a call over the limit gets. `refuse`: a refusal. `pace`: the time when it may go.
    `concurrency` only refuses."""
    max_wait: Seconds = Field(default=60, gt=0, le=86_400)
    """The longest wait that `pace` gives. A call that would wait longer is refused."""
    lease: Seconds = Field(default=60, ge=0.1, le=86_400)
    """With `concurrency`: a permit that is not given back ends after this time."""
    idempotency_window: Seconds = Field(default=60, ge=1, le=86_400)
    """How long after its moment a call with the same id counts as the same call."""
    on_store_failure: Literal["admit", "refuse"] = "admit"
    """What happens to calls while Redis is unavailable. `admit`: they may go. `refuse`: they are
    refused."""
    values: Annotated[dict[str, Value], AfterValidator(_keys)] = {}
    """Limits of single keys, in place of `limit`. `waitroom check-config` warns of keys that no
    fields can make. Values that are set at run time go before these."""

    @field_validator("window")
    @classmethod
    def _window_fits(cls, value: float | None, info: ValidationInfo) -> float | None:
        algorithm = info.data.get("algorithm")
        if value is None and algorithm in _NEEDS_WINDOW:
            raise ValueError(f'is needed for {algorithm}, such as "1s"')
        if value is not None and algorithm == "concurrency":
            raise ValueError("concurrency has none: how long a permit lasts is its lease")
        return value

    @field_validator("burst")
    @classmethod
    def _burst_fits(cls, value: int | None, info: ValidationInfo) -> int | None:
        return burst_of(value, info.data.get("algorithm"))

    @field_validator("on_exceed")
    @classmethod
    def _can_pace(cls, value: str, info: ValidationInfo) -> str:
        if value == "pace" and info.data.get("algorithm") == "concurrency":
            raise ValueError("nobody knows when a permit is given back: for a line use a lease")
        return value

    @cached_property
    def fields(self) -> tuple[str, ...]:
        """The fields that a call names, in the key's order."""
        return tuple(dict.fromkeys(_FIELD.findall(self.key)))

    @cached_property
    def _pieces(self) -> list[str]:
        """The key, split into literal text and the names of fields, in turn."""
        return _FIELD.split(self.key)

    def warning_of(self, key: str) -> str:
        """Warn of a value for a key that no fields can make, only a call that sends the whole key.
        Return "" if there is nothing to warn of, and for a limit without a key pattern."""
        if not self.key or self._pattern.fullmatch(key):
            return ""
        return (
            f"no call that names its fields has the key {key!r}: such keys are {self.key}, with a "
            "value for each field, percent-encoded where it is not plain"
        )

    @property
    def _pattern(self) -> re.Pattern[str]:
        pieces, known = self._pieces.copy(), set[str]()
        for n in range(1, len(pieces), 2):
            name = pieces[n]
            pieces[n] = f"(?P={name})" if name in known else f"(?P<{name}>{_PART})"
            known.add(name)
        pieces[::2] = [re.escape(piece) for piece in pieces[::2]]
        return re.compile("".join(pieces))

    @property
    def warnings(self) -> list[str]:
        """Warnings of settings that are allowed and probably not meant."""
        return [f"values: {text}" for key in self.values if (text := self.warning_of(key))]

    def key_of(self, named: Mapping[str, str]) -> str:
        """Make the key of a call from its fields: "{biz}:{channel}" with biz=refund, channel=wx is
        refund:wx. Characters that could be taken for a part of the key are percent-encoded.

        Raises ConfigError naming each field that is missing, unknown, empty or too long.
        """
        wanted = self.fields
        if len(named) != len(wanted) or not all(map(named.get, wanted)):
            raise ConfigError(self._problems_of(named))
        pieces = self._pieces.copy()
        for n in range(1, len(pieces), 2):
            value = named[pieces[n]]
            is_plain = _IS_PLAIN.match(value)
            pieces[n] = value if is_plain else quote(value, safe=_PLAIN, errors="surrogatepass")
        key = "".join(pieces)
        if len(key) > MAX_KEY_LENGTH:
            raise ConfigError([f"the key is longer than {MAX_KEY_LENGTH} characters"])
        return key

    def _problems_of(self, named: Mapping[str, str]) -> list[str]:
        wanted = self.fields
        missing = [name for name in wanted if not named.get(name)]
        problems = [f"{name}: is needed, a part of the key {self.key}" for name in missing]
        if unknown := [name for name in named if name not in wanted]:
            known = ", ".join(wanted) or "this limit has no fields"
            problems += [f"{name[:40]}: is no part of the key ({known})" for name in unknown]
        return problems
