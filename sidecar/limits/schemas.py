"""Models of the requests and responses of the API for rate limits."""

from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, model_validator
from typing_extensions import TypeAliasType

from sidecar.http.long_poll import MAX_WAIT_S
from sidecar.http.models import (
    Body,
    Headers,
    Name,
    PageParameters,
    PageReply,
    Parameters,
    Reply,
    Seconds,
    Time,
    Whole,
    matching,
    optional,
    wanted,
)
from sidecar.http.problem_kinds import Kind, unknown
from sidecar.limits.model import Outcome
from sidecar.limits.settings import (
    KEY,
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
    "Retry after the time in `Retry-After`.",
)

#: The maximum number of calls that one request may list.
MAX_CALLS = 1_000
#: The length of the longest permit, which consists of a cost and an id.
MAX_PERMIT = 128
ID_HINT = "1 to 64 letters, digits and . _ - : @ +"
PERMIT_HINT = "a permit, as the call got it"
VALUE_HINT = f"a whole number from 0 to {MAX_LIMIT}, or {UNLIMITED} for no limit"

#: The values of the fields that form the limit's key, by name.
LimitFields = TypeAliasType(
    "LimitFields",
    dict[
        str, Annotated[str, Field(json_schema_extra={"minLength": 1, "maxLength": MAX_KEY_LENGTH})]
    ],
)
Key = Annotated[str, *matching(KEY, f"at most {MAX_KEY_LENGTH} characters, ASCII without spaces")]
Value = Annotated[Whole, Field(ge=UNLIMITED, le=MAX_LIMIT), wanted(VALUE_HINT)]
_NOT_EMPTY: Any = {"pattern": f"^[!-~]{{1,{MAX_KEY_LENGTH}}}$"}
_NULL: Any = {"type": "null"}
#: JSON Schema of a call that has `fields` or `key`, but not both.
_FIELDS_OR_KEY: Any = {"anyOf": [{"properties": {"fields": _NULL}}, {"properties": {"key": _NULL}}]}


def _with_examples(*examples: dict[str, Any]) -> ConfigDict:
    return ConfigDict(json_schema_extra={**_FIELDS_OR_KEY, "examples": list(examples)})


class LimitAddress(Parameters):
    name: Annotated[Name, Field(examples=["pay"])]
    """The name of a configured limit."""


class LookParameters(LimitAddress):
    fields: LimitFields | None = None
    """Each field of the key as a separate parameter, such as `?biz=refund&channel=wx`."""
    key: Key | None = None
    """The whole key, in place of its fields."""


class AcquireParameters(LimitAddress):
    wait: Annotated[int, Field(ge=0, le=MAX_WAIT_S)] = 0
    """Holds the response until the call may proceed, for at most this many seconds. The rest of the
    wait is in `wait_seconds`. If the client disconnects meanwhile, the permit is released, unless
    the call has an `id`. A list of calls cannot wait."""


class AcquireHeaders(Headers):
    idempotency_key: str | None = None
    """The same as `id` of a single call, with or without quotes. The two must match."""


class ValueAddress(LimitAddress):
    key: Annotated[Key, Field(examples=["refund:wx"], json_schema_extra=_NOT_EMPTY)]
    """The whole key as in a decision, percent-encoded once more. If the limit's key has no fields,
    omit it: `/v1/limits/pay/values/`."""


class NamedCall(Body):
    fields: Annotated[LimitFields, wanted("an object of texts")] | None = None
    """The values of the fields in the limit's key, by name."""
    key: Key | None = None
    """The whole key, in place of `fields`."""

    @model_validator(mode="after")
    def _check_one_name(self) -> Self:
        if self.key is not None and self.fields is not None:
            raise ValueError("key: in place of fields, not beside them")
        return self


class LimitCall(NamedCall):
    """A call, with its fields or its key. A member that is null counts as missing."""

    model_config = _with_examples(
        {"fields": {"biz": "refund", "channel": "wx"}},
        {"key": "refund:wx", "cost": 2, "id": "order-4711"},
    )
    cost: Annotated[Whole, Field(ge=1, le=MAX_COST)] | None = None
    """How much the call counts. Default: 1."""
    id: Annotated[str, *matching(PERMIT_ID, ID_HINT)] | None = None
    """An id that you choose for the call. Another request with the same id is treated as a retry of
    the same call and is not counted again."""


LimitCalls = Annotated[list[LimitCall], Field(min_length=1, max_length=MAX_CALLS)]


class ReleasePermit(NamedCall):
    """A permit to release, with the key or the fields of its call."""

    model_config = _with_examples({"key": "refund:wx", "permit": "1~~7ae318c2934d.2"})
    permit: Annotated[
        str,
        Field(min_length=1, max_length=MAX_PERMIT, pattern=r"^[\x00-\x7f]*$"),
        wanted(PERMIT_HINT),
    ]
    """The `permit` in the decision on the call."""


class CountsPage(LimitAddress, PageParameters):
    """A page of the keys that have used some of their limit, found in a part of Redis."""

    after: Annotated[str, *matching("[0-9]{0,19}", "the `next` of the page before")] = ""
    """The `next` of the previous page."""


class SetValue(Body):
    model_config = ConfigDict(json_schema_extra={"examples": [{"limit": 2}, {"limit": -1}]})
    limit: Value
    """The new limit. -1: no limit."""


class KeyCount(Reply):
    """How much a key has used of its limit."""

    key: Key
    """The key of the call. You can send it instead of `fields`."""
    limit: int | None
    """The limit of this key. null: the key has no limit, or Redis is unavailable."""
    remaining: int | None
    """The highest cost that a call may have now."""
    wait_seconds: Seconds | None
    """How long to wait before a call, or before a retry if the call was refused. null: never, or
    Redis is unavailable."""
    reset_seconds: Seconds | None
    """How long until the whole limit is available."""


class LimitDecision(KeyCount):
    """The decision on a call."""

    __qualname__ = "Decision"  # its name in the OpenAPI document

    allowed: bool
    """Whether the call may proceed, now or at `at`."""
    outcome: Outcome
    """`granted`: proceed now. `paced`: proceed at `at`. `refused`: do not proceed. `unlimited`: the
    key has no limit. `admitted_alone`, `refused_alone`: the replica decided alone, by
    `on_store_failure`, because Redis is unavailable."""
    permit: str | None
    """The permit, which you can release if the call ends early. null: there is none."""
    at: Time | None
    """When the wait of `wait_seconds` ends, by the clock of Redis."""
    expires_in_seconds: Seconds | None
    """Only for `concurrency`: the time until the permit expires. null: there is no permit."""


class LimitRule(LimitSettings, Reply):
    """A limit as configured. Durations are in seconds."""

    name: str
    """The limit's name."""
    key: str
    """The pattern of the key of a call, with fields in braces."""
    limit: int | None
    """The limit of keys that have no limit of their own. null: no limit."""
    names: list[str] = Field(alias="fields")
    """The names of the fields in the key, in order."""
    values: dict[str, int] = Field(default={}, exclude=True)


class LimitRules(Reply):
    limits: list[LimitRule]
    """All limits."""


class LimitLook(LimitRule, LimitDecision):
    """A limit, and the decision for a call of cost 1. `key` and `limit` are those of the call."""

    key: str
    """The key of this call."""
    limit: int | None
    """The limit of this key. null: no limit."""


class PermitReleased(Reply):
    released: bool
    """Whether there was anything to release."""


class KeyValues(Reply):
    file: dict[str, int]
    """Limits of keys in the configuration file. -1: no limit."""
    set: dict[str, int]
    """Limits of keys that were set at run time. They take precedence over `file`."""


class KeyValue(Reply):
    key: Key
    """The key."""
    limit: int
    """The key's limit. -1: no limit."""
    warning: Annotated[str | None, optional] = None
    """A warning, if no call that sends fields can have this key."""


class KeyCounts(PageReply):
    """A page of keys, which are sorted only within the page, because Redis has no index of keys."""

    keys: list[KeyCount]
    """Keys that have used some of their limit, lowest remaining share first."""
    found: int
    """How many of these keys the searched part of Redis has."""


class MinuteDecisions(Reply):
    at: Time
    """When the minute begins."""
    allowed: int
    """How many calls could proceed at once."""
    paced: int
    """How many calls had to wait for their time."""
    refused: int
    """How many calls were refused."""


class RefusedKey(Reply):
    key: Key
    """The key of the calls."""
    refused: int
    """The minimum number of refused calls: for each minute, a replica reports only the ten keys
    that it refused most."""


class RecentHistory(Reply):
    minutes: list[MinuteDecisions]
    """All minutes of the last three hours, oldest first. The last one has just begun."""
    refused_keys: list[RefusedKey]
    """The keys that were refused most in the last hour, at most 100."""


class KeyReset(Reply):
    key: Key
    """The key."""
    reset: bool
    """Whether the key had used some of its limit."""


class CheckLimit(Headers):
    x_waitroom_limit: Name
    """The limit's name."""
    x_waitroom_key: str | None = None
    """The whole key, percent-encoded where needed. Long keys are replaced by digests, and IPv6
    addresses by their /64 networks. Without this header, all calls share one key."""
    x_original_method: str | None = None
    """The method of the visitor's request. Default: GET. A CORS preflight passes uncounted."""
    x_waitroom_given: str | None = None
    """The X-Waitroom-Limit of the first response, if the proxy checks the same request again. It is
    then counted only once."""


class _RateHeaders(Headers):
    policy: str | None = Field(None, alias="RateLimit-Policy")
    """The limit's name, the limit (q) and its window (w, in seconds), as in
    draft-ietf-httpapi-ratelimit-headers. Missing if the key has no limit or Redis is down."""
    rate: str | None = Field(None, alias="RateLimit")
    """The limit's name, how many calls are left (r), and the seconds (t) until the whole limit is
    available, or until a refused call may be retried."""


class LimitPassed(_RateHeaders):
    x_waitroom_state: Literal["admitted"]
    """The result."""
    x_waitroom_limit: str | None = None
    """The limit's name."""


class LimitRefused(_RateHeaders):
    x_waitroom_state: Literal["limited", "limit-away", "unknown-limit"]
    """`limit-away`: Redis is unavailable, and `on_store_failure` is `refuse`."""
    retry_after: Annotated[int, Field(ge=1)] | None = None
    """How many seconds to wait before trying again."""
