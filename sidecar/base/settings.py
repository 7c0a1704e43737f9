"""Settings: a TOML file, overridden by WAITROOM_* environment variables.

`load` reports every problem at once. Room settings can also be changed at run time;
`RoomSettings.changed` checks such a change by the same rules.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

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

from sidecar.base.errors import ConfigError
from sidecar.base.model import RELEASE_HOLD_MS, SESSION_GRACE_MS

DEFAULT_FILE = "waitroom.toml"
ENV_PREFIX = "WAITROOM_"
DEMO_SECRET = "demo-secret-that-everybody-knows-0000"  # noqa: S105 - refused outside the demo
MIN_SECRET_LENGTH = 32
MIN_ADMIN_TOKEN_LENGTH = 16
#: Never repeated in a problem: they are secrets, or may hold a password.
_HIDDEN = {"secret_keys", "admin_token", "store"}

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?\Z")
_UNIT_S = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, None: 1}
RESERVED_NAMES = {"internal", "static"}
STORES = (
    "redis://", "rediss://", "unix://", "memory://",
    "redis+sentinel://", "rediss+sentinel://", "redis+cluster://", "rediss+cluster://",
)  # fmt: skip
#: A name, an IPv4 address or an IPv6 one in brackets; and a port.
_SERVER = re.compile(r"([^\s:/@\[\]]+|\[[\da-fA-F:.]+\])(?::([0-9]{1,5}))?")
_READING_HINT = (
    "a port is a number up to 65535, and in a password / is written %2F, @ is written %40"
)
ROOM_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,47}\Z")


def parse_duration(value: object) -> object:
    """Seconds from a number or from text such as "90s", "5m", "1.5h", "2d"."""
    if isinstance(value, str):
        match = _DURATION.match(value.strip().lower())
        if match is None:
            raise ValueError('write a number of seconds, or text such as "30s", "5m", "2h"')
        return float(match[1]) * _UNIT_S[match[2]]
    if isinstance(value, bool):
        raise ValueError('write a number of seconds, or text such as "30s", "5m", "2h"')  # noqa: TRY004 - pydantic turns ValueError into a problem
    return value


def _not_bool(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("write a whole number")  # noqa: TRY004
    return value


def _from_text(value: object) -> object:
    """The environment has text only, and Literal takes a number as it is."""
    return int(value) if isinstance(value, str) and value.isdecimal() else value


Seconds = Annotated[float, BeforeValidator(parse_duration), Field(allow_inf_nan=False)]
Count = Annotated[int, BeforeValidator(_not_bool)]


#: What a replica does by itself.
_NOT_FOR_SCRIPTS = {
    "message",
    "suspended",
    "sweep_interval",
    "queueing_status_code",
    "shield_above",
    "on_store_failure",
    "bind_pass",
}


class RoomSettings(BaseModel):
    """One room. Durations are in seconds; text such as "5m" is understood."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    total_active_users: Count = Field(ge=0, le=10_000_000)
    new_users_per_minute: Count | None = Field(default=None, ge=1, le=10_000_000)
    session_duration: Seconds = Field(default=300, ge=5, le=86_400 * 7)
    session_max_duration: Seconds | None = Field(default=None, ge=5, le=86_400 * 30)
    disable_session_renewal: bool = False
    queueing_method: Literal["fifo", "random", "passthrough", "reject"] = "fifo"
    queue_all: bool = False
    suspended: bool = False
    max_waiting: Count | None = Field(default=None, ge=0)
    heartbeat_timeout: Seconds = Field(default=120, ge=10, le=86_400)
    heartbeat_interval: Seconds | None = Field(default=None, ge=1, le=3600)
    sweep_interval: Seconds = Field(default=120, ge=1, le=3600)
    claim_window: Seconds = Field(default=30, ge=5, le=3600, validate_default=True)
    poll_limit: Count = Field(default=30, ge=1)
    shield_above: Count = Field(default=500, ge=1, le=10_000_000)
    on_store_failure: Literal["bounded", "admit", "wait"] = "bounded"
    recovery_window: Seconds | None = Field(default=None, ge=0, le=3600)
    bind_pass: Literal["none", "user_agent", "ip"] = "none"  # noqa: S105 - not a password
    max_places_per_address: Count | None = Field(default=None, ge=1, le=100)
    queueing_status_code: Annotated[Literal[200, 202, 429, 503], BeforeValidator(_from_text)] = 503
    message: str | None = Field(default=None, max_length=500)

    # Rules between fields are rules of the later field: pydantic asks a model's own
    # validator only when every field is right, and then a problem would hide another.
    @field_validator("heartbeat_interval")
    @classmethod
    def _beats_within_the_timeout(cls, value: float | None, info: ValidationInfo) -> float | None:
        timeout: float | None = info.data.get("heartbeat_timeout")
        if value is not None and timeout is not None and value > timeout / 2:
            raise ValueError(f"must be at most half of heartbeat_timeout ({timeout:g} s)")
        return value

    @field_validator("claim_window")
    @classmethod
    def _claims_within_the_timeout(cls, value: float, info: ValidationInfo) -> float:
        timeout: float | None = info.data.get("heartbeat_timeout")
        if timeout is not None and value > timeout:
            raise ValueError(f"must not be longer than heartbeat_timeout ({timeout:g} s)")
        return value

    def for_scripts(self) -> str:
        """The settings as the scripts read them: JSON, unset ones left out."""
        values = self.model_dump(exclude_none=True, exclude=_NOT_FOR_SCRIPTS)
        values["session_grace_ms"] = SESSION_GRACE_MS
        values["release_hold_ms"] = RELEASE_HOLD_MS
        return json.dumps(values)

    def changed(self, overrides: dict[str, Any]) -> RoomSettings:
        """These settings with some replaced.

        Raises ConfigError naming each field that is unknown or not allowed.
        """
        try:
            return RoomSettings.model_validate({**self.model_dump(), **overrides})
        except ValidationError as error:
            raise ConfigError(_problems(error)) from None


def _listen(value: str) -> str:
    if value.startswith("unix:") and len(value) > len("unix:"):
        return value
    host, colon, port = value.rpartition(":")
    if not colon or not host or not port.isdecimal() or not 0 <= int(port) <= 65535:
        raise ValueError("write host:port (such as 127.0.0.1:8400) or unix:/path")
    return value


def _store(value: str) -> str:
    if not value.startswith(STORES):
        raise ValueError(
            "write redis://, rediss://, unix:///path, redis+sentinel://, redis+cluster:// "
            "or memory://"
        )
    try:
        if "+" in value.partition("://")[0]:
            read_servers(value)
        else:
            urlsplit(value).port  # noqa: B018 - reading it is what checks it
    except StoreAddressError as error:
        raise ValueError(str(error)) from None
    except ValueError:
        raise ValueError(f"the address cannot be read: {_READING_HINT}") from None
    return value


class StoreAddressError(ValueError):
    """What is wrong with the servers or the path of a store's address. It repeats no part of
    the address: what looks like a host may be the rest of a password."""


def read_servers(url: str) -> tuple[list[tuple[str, int]], list[str]]:
    """Hosts and ports that a redis+sentinel:// or redis+cluster:// URL names, and the parts of
    its path: the service's name and the database, where they are given.

    Raises StoreAddressError.
    """
    kind, _, rest = url.partition("://")
    authority, _, path = rest.partition("?")[0].partition("/")
    servers = []
    for number, server in enumerate(authority.rpartition("@")[2].split(","), start=1):
        match = _SERVER.fullmatch(server)
        if match is None or int(match[2] or 1) not in range(1, 65536):
            wrong = "has no host" if server.partition(":")[0] == "" else "cannot be read"
            raise StoreAddressError(f"server {number} {wrong}: {_READING_HINT}")
        port = int(match[2] or (26379 if kind.endswith("+sentinel") else 6379))
        servers.append((match[1].strip("[]"), port))
    parts = path.strip("/").split("/") if path.strip("/") else []
    if kind.endswith("+cluster") and parts:
        raise StoreAddressError("a cluster has no databases: nothing comes after the servers")
    if len(parts) > 2:
        raise StoreAddressError("after the servers come /SERVICE and /DATABASE, and no more")
    if parts and parts[0].isdecimal():
        raise StoreAddressError("the database comes after the service: /SERVICE/DATABASE")
    if len(parts) == 2 and not parts[1].isdecimal():
        raise StoreAddressError("the database is a number: /SERVICE/DATABASE")
    return servers, parts


def _room_name(value: str) -> str:
    if not ROOM_NAME.match(value):
        raise ValueError("a name has lower-case letters, digits, - and _, 48 at most")
    if value in RESERVED_NAMES:
        raise ValueError("the name is taken: /_waitroom/ has doors of its own called so")
    return value


def _secrets(value: object) -> object:
    """Keys in a variable have commas between them, those in a file a line each."""
    if isinstance(value, str):
        return [key for key in re.split(r"[,\s]+", value) if key]
    return value


Listen = Annotated[str, AfterValidator(_listen)]


class Settings(BaseModel):
    """Everything one replica needs."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    #: Lets the well-known demo secret through. Never on a site that matters.
    demo: bool = False
    store: Annotated[str, AfterValidator(_store)] = "memory://"
    #: Oldest to newest; the last one signs.
    secret_keys: Annotated[list[str], BeforeValidator(_secrets)] = Field(
        default=[], validate_default=True
    )
    admin_token: str = ""
    edge_listen: Listen = "127.0.0.1:8400"
    ops_listen: Listen = "127.0.0.1:8401"
    static_dir: Path | None = None
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["json", "console"] = "json"
    store_timeout: Seconds = Field(default=0.5, gt=0, le=30)
    shutdown_delay: Seconds = Field(default=0.0, ge=0, le=300)
    rooms: dict[Annotated[str, AfterValidator(_room_name)], RoomSettings] = Field(
        default={}, validate_default=True
    )

    @field_validator("secret_keys")
    @classmethod
    def _secrets_are_safe(cls, keys: list[str], info: ValidationInfo) -> list[str]:
        problems = []
        if not keys:
            problems.append(
                'at least one is needed; make one with "openssl rand -hex 32" and set '
                "WAITROOM_SECRET_KEYS or WAITROOM_SECRET_KEYS_FILE"
            )
        if any(len(key) < MIN_SECRET_LENGTH for key in keys):
            problems.append(f"a key has fewer than {MIN_SECRET_LENGTH} characters")
        if DEMO_SECRET in keys and not info.data.get("demo"):
            problems.append("the demo's secret is known to everybody")
        if problems:
            raise ValueError("\n".join(problems))
        return keys

    @field_validator("admin_token")
    @classmethod
    def _token_is_safe(cls, token: str, info: ValidationInfo) -> str:
        """Empty switches administration off."""
        if 0 < len(token) < MIN_ADMIN_TOKEN_LENGTH and not info.data.get("demo"):
            raise ValueError(f"fewer than {MIN_ADMIN_TOKEN_LENGTH} characters")
        return token

    @field_validator("rooms")
    @classmethod
    def _there_is_a_room(cls, rooms: dict[str, RoomSettings]) -> dict[str, RoomSettings]:
        if not rooms:
            raise ValueError(
                "at least one is needed, such as [rooms.shop] with total_active_users = 100"
            )
        return rooms


def load(path: str | None, environ: dict[str, str] | None = None) -> Settings:
    """Read the file and the environment.

    `path` None means `waitroom.toml` when that exists, and no file otherwise.
    Raises ConfigError with every problem.
    """
    environ = dict(os.environ) if environ is None else environ
    values: dict[str, Any] = {}
    file = Path(path or DEFAULT_FILE)
    if path is not None or file.exists():
        try:
            values = tomllib.loads(file.read_text(encoding="utf-8"))
        except OSError as error:
            raise ConfigError([f"{file}: cannot be read: {error.strerror}"]) from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigError([f"{file}: is not valid TOML: {error}"]) from None
    problems = _add_environment(values, environ)
    try:
        settings = Settings.model_validate(values)
    except ValidationError as error:
        problems += _problems(error)
    if problems:
        raise ConfigError(problems)
    return settings


def _add_environment(values: dict[str, Any], environ: dict[str, str]) -> list[str]:
    """Lay WAITROOM_* over the values; `__` goes a level down, `_FILE` reads a file."""
    problems = []
    for variable, text in sorted(environ.items()):
        if not variable.startswith(ENV_PREFIX):
            continue
        path = variable.removeprefix(ENV_PREFIX).lower().split("__")
        if not all(path):
            problems.append(f"{variable}: names no setting")
            continue
        value: str = text
        if path[-1].endswith("_file"):
            path[-1] = path[-1].removesuffix("_file")
            try:
                value = Path(text).read_text(encoding="utf-8").strip()
            except (OSError, UnicodeDecodeError) as error:
                problems.append(f"{variable}: {text} cannot be read: {error}")
                continue
        level = values
        for part in path[:-1]:
            below = level.setdefault(part, {})
            if not isinstance(below, dict):
                problems.append(f"{variable}: {part} is not a table")
                break
            level = below
        else:
            level[path[-1]] = value
    return problems


def _problems(error: ValidationError) -> list[str]:
    """One line for each problem: the setting's name, and what is allowed."""
    lines = []
    for problem in error.errors(include_url=False, include_context=False):
        name = ".".join(str(part) for part in problem["loc"] if part != "[key]")
        text = problem["msg"].removeprefix("Value error, ")
        if problem["type"] == "extra_forbidden":
            text = "there is no such setting"
        elif problem["type"] == "missing":
            text = "is needed"
        elif not isinstance(problem["input"], dict) and name.split(".")[0] not in _HIDDEN:
            text += f" (got {problem['input']!r})"
        lines += [f"{name}: {line}" if name else line for line in text.split("\n")]
    return lines
