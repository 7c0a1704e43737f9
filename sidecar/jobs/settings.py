"""The settings of targets: which requests jobs may make, and how many calls a target allows."""

import re
from ipaddress import ip_address
from typing import Annotated, Any, Literal
from urllib.parse import unquote

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from yarl import URL

from sidecar.jobs.model import JobKind
from sidecar.kit.addresses import is_public
from sidecar.kit.errors import InputError
from sidecar.kit.setting_types import Count, Seconds, describe_problems, split_list
from sidecar.kit.signing import (
    MIN_WEBHOOK_SECRET_LENGTH,
    STANDARD_PREFIX,
    check_webhook_secret,
)
from sidecar.limits.settings import MAX_LIMIT, check_burst
from sidecar.visitors.classes import Classes, find_class_problems, table_validator

DEFAULT_DATABASE = "sqlite:///waitroom-jobs.db"
_CALLBACK_SECRETS = ("callback_secret", "previous_callback_secret")
#: The text that is shown in place of secrets (the values of headers, and _CALLBACK_SECRETS).
HIDDEN = "***"
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
#: Headers that jobs and targets may not set, because the worker or its HTTP client sets them (Host,
#: Accept-Encoding, hop-by-hop headers, and Idempotency-Key, which contains the job's id).
RESERVED_HEADERS = frozenset({
    "host", "connection", "content-length", "transfer-encoding", "te", "trailer", "upgrade",
    "keep-alive", "expect", "proxy-connection", "proxy-authorization", "proxy-authenticate",
    "idempotency-key", "accept-encoding",
})  # fmt: skip
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}\Z")
#: A header's value: visible ASCII, with spaces and tabs inside. Servers differ on other values.
_HEADER_VALUE = re.compile(r"(?:[!-~](?:[ \t!-~]{0,8190}[!-~])?)?\Z")
#: The value in `retry_on` that stands for a missing or incomplete response.
CONNECTION = "connection"
#: A status from 300 to 599, or a class of statuses such as 5xx.
_STATUS = re.compile(r"[345](?:[0-9]{2}|xx)\Z")
#: A host that URL parsers read as an IPv4 address, because its last part is a number.
_NUMERIC_HOST = re.compile(r"(?:.*\.)?(?:\d+|0[xX][0-9a-fA-F]*)\.?\Z")


def normalize_header_name(name: str) -> str:
    """Return a header's name in lower case, with - for _, because CGI servers treat both alike."""
    return name.lower().replace("_", "-")


def find_header_problems(headers: dict[str, str]) -> list[str]:
    """Return problems with the names and values of headers that a job or target sets."""
    problems = []
    for name, value in headers.items():
        plain_name = normalize_header_name(name)
        if not _HEADER_NAME.match(name):
            problems.append(f"{name[:40]!r} is no header's name")
        elif plain_name in RESERVED_HEADERS or plain_name.startswith("x-waitroom-"):
            problems.append(f"{name} is written by the worker")
        elif not _HEADER_VALUE.match(value):
            problems.append(f"the value of {name} has characters that no header may have")
    if len({normalize_header_name(name) for name in headers}) < len(headers):
        problems.append("a name is there twice")
    return problems


def _check_url(value: str) -> str:
    """Check that a URL has only a scheme, a host, a port and a path, and is not ambiguous."""
    try:
        url = URL(value)
    except (ValueError, IndexError):  # yarl raises IndexError for [] before a @
        raise ValueError("the address cannot be read: a port is a number up to 65535") from None
    if url.scheme not in {"http", "https"} or not url.host:
        raise ValueError("write an address such as https://images.example/v1/")
    if any(not "!" <= c <= "~" or c in "\\?#@" for c in value):
        raise ValueError("write it without a user, a query, a fragment, spaces and \\")
    if not _is_unambiguous_host(url.host, is_bracketed="[" in value):
        raise ValueError("write its host as a name, as 192.0.2.7 or as [2001:db8::7]")
    path = "/" + value.partition("://")[2].partition("/")[2]
    if "//" in path or not {".", ".."}.isdisjoint(unquote(path).split("/")):
        raise ValueError("its path may not have ., .. or //")
    return value


def _is_unambiguous_host(host: str, *, is_bracketed: bool) -> bool:
    """Return False for a host that URL parsers read in different ways, such as 0x7f.1."""
    if is_bracketed or _NUMERIC_HOST.match(host):
        try:
            ip_address(host)
        except ValueError:
            return False
    return "%" not in host


def _is_private_host(host: str) -> bool:
    """Return True for a private address or localhost. Makes no DNS lookup."""
    name = host.lower().rstrip(".")
    try:
        ip_address(name)
    except ValueError:
        return name == "localhost" or name.endswith(".localhost")
    return not is_public(name)


def _check_methods(value: tuple[str, ...]) -> tuple[str, ...]:
    methods = tuple(dict.fromkeys(word.upper() for word in value))
    if not methods or not set(methods) <= set(METHODS):
        raise ValueError(f"write some of {', '.join(METHODS)}")
    return methods


def _check_prefixes(value: tuple[str, ...]) -> tuple[str, ...]:
    for prefix in value:
        if _check_url(prefix).count("/") < 3:
            raise ValueError(
                "write where callbacks may go with a path: https://shop.example/hooks/"
            )
    return value


def _is_url_below(url: URL, prefix: URL) -> bool:
    origin = (url.scheme, url.raw_host, url.port)
    return origin == (prefix.scheme, prefix.raw_host, prefix.port) and url.raw_path.startswith(
        prefix.raw_path
    )


def _make_status_validator(hint: str, *others: str) -> BeforeValidator:
    """Return a validator for a list of statuses, status classes such as 5xx, and values in
    `others`. `hint` is the error text for an invalid list."""

    def parse_statuses(value: object) -> object:
        parts = split_list(value)
        if not isinstance(parts, list | tuple):
            return parts
        words = dict.fromkeys(str(part).lower() for part in parts)
        if not all(word in others or _STATUS.match(word) for word in words):
            raise ValueError(hint)
        return [int(word) if word.isdecimal() else word for word in words]

    return BeforeValidator(parse_statuses)


_PARSE_RETRY_ON = _make_status_validator(
    f"write statuses from 300 to 599, 3xx, 4xx, 5xx, or {CONNECTION}", CONNECTION
)
_PARSE_FAIL_ON = _make_status_validator(
    "write statuses from 300 to 599, 3xx, 4xx or 5xx (where no answer comes the job fails in any "
    "case)"
)


Methods = Annotated[tuple[str, ...], BeforeValidator(split_list), AfterValidator(_check_methods)]
UrlPrefixes = Annotated[
    tuple[str, ...], BeforeValidator(split_list), AfterValidator(_check_prefixes)
]


#: By how much two calls of a target with `strict` may be closer together than their claims, in s.
STRICT_SPREAD_S = 0.15


class TargetSettings(BaseModel):
    """One target, `[targets.NAME]`. Durations are in seconds, or strings such as "5m"."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: Annotated[str, AfterValidator(_check_url)] | None = None
    """The URL to call, without a user name, a query or a fragment, and without `.`, `..` or `//` in
    its path. A job may add a query and, if the URL ends with `/`, a path. The URL can be omitted
    only with `kinds = ["online"]`."""
    kinds: Annotated[tuple[JobKind, ...], BeforeValidator(split_list)] = Field(
        default=("offline", "online"), validate_default=True
    )
    """`offline`: a worker makes the call. `online`: the client that submitted the job gets a
    permit and makes the call itself. In an environment variable, separate kinds with commas."""
    methods: Methods = ("GET", "POST")
    """The HTTP methods that jobs may use: `GET`, `HEAD`, `POST`, `PUT`, `PATCH` or `DELETE`."""
    headers: Annotated[dict[str, str], table_validator('{"Authorization": "Bearer ..."}')] = Field(
        default={}, repr=False
    )
    """Headers that the worker adds to each call. These headers replace the job's own headers of the
    same name. Use them for the target's API key: their values are never shown. `Host`,
    `Content-Length`, `Idempotency-Key` and some others are not allowed: the worker sets them."""
    private: bool = False
    """Whether calls to private addresses, such as those of this machine or its network, are
    allowed. If false, a call is also refused if a public name resolves to a private address."""
    paused: bool = False
    """If true, no calls are made, and jobs wait."""
    concurrency: Count = Field(default=10, ge=1, le=100_000)
    """The maximum number of calls in progress at a time, across all workers."""
    rate: Count | None = Field(default=None, ge=1, le=MAX_LIMIT)
    """The maximum number of calls in each `window`, across all workers. Retries count too. None:
    only `concurrency` limits the calls."""
    window: Seconds = Field(default=1, ge=0.001, le=86_400)
    """The period to which `rate` applies."""
    algorithm: Literal["fixed_window", "sliding_window", "token_bucket", "leaky_bucket"] = (
        "sliding_window"
    )
    """How calls are counted for `rate`. After you change the algorithm, no call begins until a
    `window` has passed since the last call."""
    burst: Count | None = Field(default=None, ge=1, le=MAX_LIMIT)
    """How many calls may start at the same time after an idle period. Only for `token_bucket`.
    None: as many as `rate`."""
    strict: bool = False
    """If true, the target never sees more than `rate` calls begin in any `window`. In exchange,
    each call is delayed by 0.2 s, and workers begin at most `rate` calls in any `window` + 0.15 s.
    Requires `kinds = ["offline"]`, a `window` of at least 1 s, and the algorithm `sliding_window`
    or `leaky_bucket`."""
    timeout: Seconds = Field(default=60, ge=0.1, le=86_400)
    """How long a call may take, including its response. For online jobs: how long a used permit
    counts as a call in progress, unless the client reports that the call has ended."""
    expected_seconds: Seconds = Field(default=1, gt=0, le=86_400)
    """The expected duration of a call, used for estimates until calls have been measured."""
    retry_on: Annotated[tuple[int | str, ...], _PARSE_RETRY_ON] = (
        408, 425, 429, 502, 503, 504, CONNECTION,
    )  # fmt: skip
    """The responses after which a call is retried: statuses from 300 to 599, `3xx`, `4xx`, `5xx`,
    and `connection` (no complete response within `timeout`). After the last attempt, the job is
    `failed`. Your list replaces the default list."""
    fail_on: Annotated[tuple[int | str, ...], _PARSE_FAIL_ON] = ("3xx", "4xx", "5xx")
    """The responses after which a job is `failed` at once, unless they are in `retry_on`: statuses
    as there, without `connection`. After responses in neither list, the job is `completed`. Your
    list replaces the default list, and may be `[]`."""
    retries: Count = Field(default=3, ge=0, le=100)
    """The maximum number of attempts after the first one."""
    retry_delay: Seconds = Field(default=1, ge=0.01, le=3600)
    """The pause before the second attempt. It doubles with each further attempt, up to 5 minutes,
    and is then shortened by a random amount. A longer `Retry-After`, up to an hour, replaces it."""
    break_after: Count = Field(default=3, ge=1, le=1000)
    """After this many failures in a row, calls stop for 5 s. Then one call tests the target. Each
    time the test fails, the pause doubles, up to a minute. Responses in `retry_on`, except 429,
    count as failures."""
    claim_window: Seconds = Field(default=30, ge=1, le=3600)
    """For online jobs: how long a client has to use its permit."""
    abort: bool = False
    """Whether clients can abort a call in progress by cancelling its job."""
    pending_ttl: Seconds = Field(default=3 * 3600, ge=1, le=86_400 * 30)
    """How long a job may wait for its call, counted from its submission or its `run_at`. After this
    time, the job expires."""
    result_ttl: Seconds = Field(default=3 * 86_400, ge=1, le=86_400 * 366)
    """How long a job and its result are kept after the job has ended."""
    delete_after_read: bool = False
    """Whether a job and its result are removed 20 s after the result was first read."""
    max_pending: Count | None = Field(default=None, ge=0, le=100_000_000)
    """The maximum number of waiting jobs. Further jobs are refused with 429."""
    notify_above: Count | None = Field(default=None, ge=1, le=100_000_000)
    """The webhook `target_queue_over` is sent when more jobs than this are waiting, and again only
    if fewer than 80 % of this number were waiting in the meantime. None: it is not sent."""
    max_body: Count = Field(default=131_072, ge=0, le=131_072)
    """The maximum size of a job's body, in bytes."""
    max_result: Count = Field(default=1_048_576, ge=0, le=104_857_600)
    """The maximum size of a response's body, in bytes. If a body is larger, the job fails."""
    classes: Classes = {}
    """At most 7 priority classes of jobs, in which `line` is not allowed. A job gets a class from a
    grant, or from a client whose token has the scope `classes`."""
    callback_urls: UrlPrefixes = ()
    """The URL prefixes to which callbacks may go, each with a path. Empty: no callbacks."""
    callback_secret: str = Field(default="", repr=False, validate_default=True)
    """The secret that signs callbacks. It has at least 16 characters: for example, `whsec_`
    followed by 24 to 64 random bytes in base64. Required with `callback_urls`."""
    previous_callback_secret: str = Field(default="", repr=False)
    """The old secret, while you replace `callback_secret`: each callback has two Standard Webhooks
    signatures, one with each secret. Remove the old secret when the receivers have the new one."""

    @field_validator("kinds")
    @classmethod
    def _check_kinds(cls, kinds: tuple[JobKind, ...], info: ValidationInfo) -> tuple[JobKind, ...]:
        if not kinds:
            raise ValueError("write offline, online or both")
        if "offline" in kinds and info.data.get("url", "") is None:
            raise ValueError(
                'a worker needs the target\'s url; without one, say kinds = ["online"]'
            )
        return tuple(dict.fromkeys(kinds))

    @field_validator("headers")
    @classmethod
    def _check_headers(cls, headers: dict[str, str]) -> dict[str, str]:
        unknown = [name for name, value in headers.items() if value == HIDDEN]
        problems = find_header_problems(headers)
        problems += [
            f"{HIDDEN} stands for a value that is there, and {name} has none" for name in unknown
        ]
        if problems:
            raise ValueError("\n".join(problems))
        return headers

    @field_validator("burst")
    @classmethod
    def _check_burst(cls, value: int | None, info: ValidationInfo) -> int | None:
        return check_burst(value, info.data.get("algorithm"))

    @field_validator("strict")
    @classmethod
    def _check_strict(cls, value: bool, info: ValidationInfo) -> bool:
        data = info.data
        if not value or not {"kinds", "rate", "window", "algorithm"} <= data.keys():
            return value  # missing fields are invalid, which is reported separately
        needs = {
            "a rate": data["rate"] is not None,
            'kinds = ["offline"], because others make the calls of online jobs': (
                data["kinds"] == ("offline",)
            ),
            "a window of 1 s or more": data["window"] >= 1,
            "the algorithm sliding_window or leaky_bucket": (
                data["algorithm"] in {"sliding_window", "leaky_bucket"}
            ),
        }
        if missing := [need for need, is_met in needs.items() if not is_met]:
            raise ValueError(f"needs {'; '.join(missing)}")
        return value

    @field_validator("classes")
    @classmethod
    def _check_classes(cls, value: Classes) -> Classes:
        problems = find_class_problems(value, None)
        problems += [
            f"{name}.line: a target has one line; leave this out"
            for name, rules in value.items()
            if rules.line is not None
        ]
        if problems:
            raise ValueError("\n".join(problems))
        return value

    @field_validator("callback_secret")
    @classmethod
    def _check_callback_secret(cls, secret: str, info: ValidationInfo) -> str:
        if info.data.get("callback_urls") and len(secret) < MIN_WEBHOOK_SECRET_LENGTH:
            raise ValueError(
                f"callbacks are signed: at least {MIN_WEBHOOK_SECRET_LENGTH} characters"
            )
        if secret.startswith(STANDARD_PREFIX):
            check_webhook_secret(secret)
        return secret

    @field_validator("previous_callback_secret")
    @classmethod
    def _check_previous_callback_secret(cls, secret: str, info: ValidationInfo) -> str:
        if secret and info.data.get("callback_secret") == "":
            raise ValueError("needs a callback_secret beside it, the new one")
        if secret:
            check_webhook_secret(secret)
        return secret

    @property
    def counted_window(self) -> float:
        """Return how many seconds a claimed call counts against `rate`. With `strict`, two calls
        that are claimed that many seconds apart are sent at least a `window` apart."""
        return self.window + STRICT_SPREAD_S if self.strict else self.window

    @property
    def callback_secrets(self) -> list[str]:
        """Return the secrets that sign callbacks, the newest first."""
        return [
            secret for secret in (self.callback_secret, self.previous_callback_secret) if secret
        ]

    @property
    def warnings(self) -> list[str]:
        """Return warnings about settings that are valid but probably not intended."""
        host = URL(self.url).host if self.url and "offline" in self.kinds else None
        if host is None or self.private or not _is_private_host(host):
            return []
        text = (
            f"url: {host} is an address of this machine or its network, so that every call is "
            "refused: set private = true if that is meant"
        )
        return [text]

    @property
    def has_paths(self) -> bool:
        """Return True if jobs may add a path to the url."""
        return self.url is not None and self.url.endswith("/")

    def retries_on(self, status: int | None) -> bool:
        """Return whether to retry after this status. None: no complete response arrived."""
        return CONNECTION in self.retry_on if status is None else _has_status(self.retry_on, status)

    def fails_on(self, status: int) -> bool:
        """Return whether a job fails if its last response has this status."""
        return _has_status(self.retry_on, status) or _has_status(self.fail_on, status)

    def may_call_back(self, url: str) -> bool:
        """Return whether a callback may go to a URL. Compares parsed URLs: a string may begin like
        an allowed URL and yet name another host."""
        try:
            parsed = URL(url)
        except (ValueError, IndexError):
            return False
        if parsed.user is not None or parsed.password is not None or parsed.fragment:
            return False
        if any(not "!" <= c <= "~" or c == "\\" for c in url) or ".." in parsed.path:
            return False
        return any(_is_url_below(parsed, URL(prefix)) for prefix in self.callback_urls)

    def with_changes(self, overrides: dict[str, Any]) -> "TargetSettings":
        """Return these settings with the overrides applied; *** leaves a secret unchanged. Raises
        InputError for invalid settings, or if a header kept by *** would go to another server."""
        values = dict(overrides)
        headers = values.get("headers", dict.fromkeys(self.headers, HIDDEN))
        if isinstance(headers, dict):
            hidden = [name for name, value in headers.items() if value == HIDDEN]
            if hidden and self.changes_server(values):
                names = " and ".join(hidden)
                raise InputError(
                    [f"headers: the url is on another server: give {names} again, or {{}} for none"]
                )
            values["headers"] = headers | {name: self.headers.get(name, HIDDEN) for name in hidden}
        for name in _CALLBACK_SECRETS:
            if values.get(name) == HIDDEN:
                values[name] = getattr(self, name)
        return read_target({**self.model_dump(exclude_unset=True), **values})

    def changes_server(self, overrides: dict[str, Any]) -> bool:
        """Return whether overrides change the scheme, host or port of the url."""
        return overrides.get("url") is not None and _get_origin(overrides["url"]) != _get_origin(
            self.url
        )

    def without_secrets(self) -> "TargetSettings":
        """Return these settings with *** in place of each secret."""
        headers = dict.fromkeys(self.headers, HIDDEN)
        secrets = {name: HIDDEN if getattr(self, name) else "" for name in _CALLBACK_SECRETS}
        return self.model_copy(update={"headers": headers, **secrets})


def _get_origin(url: object) -> object:
    try:
        return URL(str(url)).origin()
    except ValueError:  # reported by the validation of url
        return url


def _has_status(statuses: tuple[int | str, ...], status: int) -> bool:
    return status in statuses or f"{status // 100}xx" in statuses


def read_target(values: dict[str, Any]) -> TargetSettings:
    """Validate a target's settings and return them. Raises InputError with all problems."""
    try:
        return TargetSettings.model_validate(values)
    except ValidationError as error:
        raise InputError(describe_problems(error, TargetSettings)) from None
