"""Requests and responses of rate limits."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field
from typing_extensions import TypeAliasType

from sidecar.kit.http.long_poll import MAX_WAIT_S
from sidecar.kit.http.models import (
    DEPRECATED,
    Body,
    Headers,
    Name,
    Parameters,
    Reply,
    Seconds,
    Time,
    Whole,
    matching,
    optional,
    wanted,
)
from sidecar.kit.http.problem_kinds import Kind, unknown
from sidecar.limits.model import Outcome
from sidecar.limits.settings import (
    MAX_COST,
    MAX_KEY_LENGTH,
    MAX_LIMIT,
    PERMIT_ID,
    UNLIMITED,
    LimitSettings,
)

UNKNOWN_LIMIT = unknown("limit")
OVER_LIMIT = Kind(
    "over_limit",
    429,
    "Over the limit",
    "The call is over the limit, or would wait longer than `max_wait`. Nothing was counted.",
    "Try again after `Retry-After`.",
)

#: Calls in one request, at most.
MAX_CALLS = 1_000
#: A permit's text: what it cost and an id.
MAX_PERMIT = 128
NO_PERMIT = "a permit, as the call got it"
VALUE = f"a whole number from 0 to {MAX_LIMIT}, or {UNLIMITED} for no limit"

#: Those that the limit's key is made of.
LimitFields = TypeAliasType(
    "LimitFields",
    dict[
        str, Annotated[str, Field(json_schema_extra={"minLength": 1, "maxLength": MAX_KEY_LENGTH})]
    ],
)
Key = Annotated[str, Field(json_schema_extra={"pattern": f"^[!-~]{{0,{MAX_KEY_LENGTH}}}$"})]
Value = Annotated[Whole, Field(ge=UNLIMITED, le=MAX_LIMIT), wanted(VALUE)]
_NULL: Any = {"type": "null"}
#: A call is named by its fields, or by its key.
_EITHER: Any = {"anyOf": [{"properties": {"fields": _NULL}}, {"properties": {"key": _NULL}}]}


def _shown(*examples: dict[str, Any]) -> ConfigDict:
    return ConfigDict(json_schema_extra={**_EITHER, "examples": list(examples)})


class LimitAddress(Parameters):
    name: Annotated[Name, Field(examples=["pay"])]
    """A limit that is configured."""


class LookParameters(LimitAddress):
    fields: LimitFields | None = None
    """Each field of the key by its name, as in `?biz=refund&channel=wx`."""
    key: Key | None = None
    """The whole key, instead."""


class AcquireParameters(LimitAddress):
    wait: Annotated[int, Field(ge=0, le=MAX_WAIT_S)] = 0
    """The answer comes when the call may go, so many seconds later at most, with the rest in
    `wait_seconds`. A client that goes away before gives the moment back, unless the call has an id.
    A replica that stops answers at once. Not with a list."""
    hold: Annotated[bool, Field(json_schema_extra=DEPRECATED)] = False
    """As `wait`, however long it takes."""


class ValueAddress(LimitAddress):
    key: Annotated[
        str,
        Field(
            examples=["refund:wx"],
            json_schema_extra={"pattern": f"^[!-~]{{1,{MAX_KEY_LENGTH}}}$"},
        ),
    ]
    """The whole key, as decisions have it, percent-encoded once more. Of a limit whose key has no
    fields: nothing, as in `/v1/limits/pay/values/`."""


class NamedCall(Body):
    fields: LimitFields | None = None
    key: Key | None = None
    """As decisions have it, in place of fields."""


class LimitCall(NamedCall):
    """Named by its fields, or by its key. null means the same as leaving it out."""

    model_config = _shown(
        {"fields": {"biz": "refund", "channel": "wx"}},
        {"key": "refund:wx", "cost": 2, "id": "order-4711"},
    )
    cost: Annotated[Whole, Field(ge=1, le=MAX_COST)] | None = None
    """1, if not said."""
    id: Annotated[str, *matching(PERMIT_ID, "")] | None = None
    """The caller's own name for it: asked for again, it is the same call."""


LimitCalls = Annotated[list[LimitCall], Field(min_length=1, max_length=MAX_CALLS)]


class ReleasePermit(NamedCall):
    """Named as the call was."""

    model_config = _shown({"key": "refund:wx", "permit": "1~~7ae318c2934d.2"})
    permit: Annotated[
        str,
        Field(min_length=1, max_length=MAX_PERMIT, pattern=r"^[\x00-\x7f]*$"),
        wanted(NO_PERMIT),
    ]
    """As the call got it."""


class SetValue(Body):
    model_config = ConfigDict(json_schema_extra={"examples": [{"limit": 2}, {"limit": -1}]})
    limit: Value
    """-1: no limit."""


class Decision(Reply):
    """The decision on a call."""

    allowed: bool
    """Whether it may go, at its moment."""
    outcome: Outcome
    """admitted_alone, refused_alone: Redis was unavailable, and the limit says what then."""
    permit: str | None
    """Gives it back. null: there is nothing to give back."""
    key: str
    """The call's key, to name it as a whole."""
    limit: int | None
    """Of that key. null: it has none, or nobody knows."""
    remaining: int | None
    """What a call that came now could cost."""
    wait_seconds: Seconds | None
    """Until it may go, or you may ask again. null: never, or unknown."""
    at: Time | None
    """The same moment, by the store's clock."""
    reset_seconds: Seconds | None
    """Until all of the limit is free."""
    expires_in_seconds: Seconds | None
    """Of concurrency: until this permit ends by itself. null: it was given none."""


class LimitRule(LimitSettings, Reply):
    """A limit as the file has it; durations in seconds."""

    name: str
    key: str
    """What calls are counted by, with the fields in braces."""
    limit: int | None
    """Of a key without a value of its own. null: none."""
    names: list[str] = Field(alias="fields")
    """What a call names, in the key's order."""
    values: dict[str, int] = Field(default={}, exclude=True)


class LimitRules(Reply):
    limits: list[LimitRule]


class LimitLook(LimitRule, Decision):
    """The rule, and the decision on a call of cost 1: granted, paced or refused. `key` and `limit`
    are the call's."""

    key: str
    limit: int | None


class PermitReleased(Reply):
    released: bool
    """Whether there was anything to give back."""


class KeyValues(Reply):
    file: dict[str, int]
    """Those that the file has. -1: no limit."""
    set: dict[str, int]
    """Those that were set since, which go before."""


class KeyValue(Reply):
    key: str
    limit: int
    """-1: no limit."""
    warning: Annotated[str | None, optional] = None
    """There where no call that names its fields can have the key."""


class CheckLimit(Headers):
    x_waitroom_limit: Name
    """The rule."""
    x_waitroom_key: str | None = None
    """The whole key that calls are counted by. What a key may not contain is percent-encoded; one
    that is too long is its digest, and an IPv6 address by its network of 64 bits. Without it, all
    without it are one."""
    x_original_method: str | None = None
    """How the visitor asked, otherwise GET: a CORS preflight passes uncounted."""
    x_waitroom_given: str | None = None
    """The X-Waitroom-Limit of the last answer, where a request is asked about twice: it counts
    once. RateLimit and RateLimit-Policy are sent with it then."""


class _Rate(Headers):
    policy: str | None = Field(None, alias="RateLimit-Policy")
    """The rule's name, its limit (q) and window (w, seconds), as
    draft-ietf-httpapi-ratelimit-headers has it. Missing where nothing is limited, or nobody
    knows."""
    rate: str | None = Field(None, alias="RateLimit")
    """The rule's name, how many calls are left (r), and seconds (t) until all are, or until a
    refused one may be tried again."""


class LimitPassed(_Rate):
    x_waitroom_state: Literal["admitted"]
    x_waitroom_limit: str | None = None
    """The rule."""


class LimitRefused(_Rate):
    x_waitroom_state: Literal["limited", "limit-away", "unknown-limit"]
    retry_after: Annotated[int, Field(ge=1)] | None = None
    """Seconds."""
