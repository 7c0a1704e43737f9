"""The model of all settings. Each nested table has its own model (see rooms/settings.py)."""

from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
)

from sidecar.history.settings import HistorySection
from sidecar.http.auth.accounts import Account, Accounts, ProxySignIn
from sidecar.http.auth.rights import OWNERS, SCOPES, Role, Scope
from sidecar.jobs.settings import DEFAULT_DATABASE, TargetSettings
from sidecar.kit.names import RESERVED_NAMES, is_plain_name
from sidecar.kit.setting_types import (
    DEFAULT_OPS_LISTEN,
    Count,
    Database,
    HoldsSecrets,
    Listen,
    Seconds,
    Store,
    check_listen,
    split_list,
)
from sidecar.leases.settings import LeaseSettings
from sidecar.limits.settings import LimitSettings
from sidecar.rooms.settings import RoomSettings
from sidecar.settings.operators import (  # pydantic reads these types
    Header,
    OperatorAccount,
    OperatorName,
    Sources,
)
from sidecar.webhooks.settings import Webhook

T = TypeVar("T")

MEMORY = "memory://"
DEMO_SECRET = "demo-secret-that-everybody-knows-0000"  # noqa: S105 - refused outside the demo
MIN_SECRET_LENGTH = 32
MIN_ADMIN_TOKEN_LENGTH = 16


def _check_name(value: str) -> str:
    """Check that a name can be used in environment variables, in the log and in Redis keys."""
    if not is_plain_name(value):
        raise ValueError("a name has lower-case letters, digits, - and _, 48 at most")
    return value


def _check_room_name(value: str) -> str:
    if _check_name(value) in RESERVED_NAMES:
        raise ValueError(
            "the name is taken: an endpoint of /_waitroom/ or a cookie of our own is called so"
        )
    return value


def _check_optional_listen(value: str) -> str:
    return check_listen(value) if value else value


Name = Annotated[str, AfterValidator(_check_name)]
RoomName = Annotated[str, AfterValidator(_check_room_name)]


class Settings(HistorySection):
    """The settings of a replica or worker."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    demo: bool = False
    """Whether the demo's public secret and short tokens are accepted. Set it only for a demo."""
    store: Store = Field(default=MEMORY, repr=False)
    """The URL of Redis, which stores queues, sessions, leases and limits. All replicas need the
    same URL. `memory://` is for trials only: the data is in the memory of one process, is lost when
    the process stops, and is not shared with a second replica."""
    secret_keys: Annotated[list[str], BeforeValidator(split_list)] = Field(
        default=[], validate_default=True, repr=False
    )
    """The keys that sign cookies, oldest first. The last key signs new cookies, and cookies signed
    with any of the keys are valid. A key has at least 32 characters, without commas or spaces:
    `openssl rand -hex 32` creates one. In one string, separate them with commas or line breaks."""
    grant_keys: Annotated[list[str], BeforeValidator(split_list)] = Field(default=[], repr=False)
    """The keys that sign grants, written like `secret_keys`. Empty: `secret_keys` sign grants. Set
    these keys if your own server creates grants, because that server must not have `secret_keys`,
    which also sign visitors' cookies."""
    admin_token: str = Field(default="", repr=False)
    """The token for `/admin/`, the dashboard and the commands for operators, with at least 16
    characters. Empty: administration is off, unless there are `operators`."""
    operators: Annotated[dict[OperatorName, OperatorAccount], HoldsSecrets] = Field(default={})
    """One table for each operator who logs in to the dashboard under their own name:
    `[operators.NAME]`. A name may be an email address in quotes."""
    operator_header: Header = ""
    """The header in which a proxy in front of the dashboard names the operator whom it signed in,
    such as `Remote-User` (Authelia) or `X-Forwarded-User` (oauth2-proxy). The proxy must replace
    the header if a client sends it. Empty: no header is read."""
    operator_header_from: Sources = Field(default=[], validate_default=True)
    """The sources from which `operator_header` is trusted: the proxy's IP addresses and networks,
    or `unix` for a Unix socket. Any client at these sources can act as any operator."""
    operator_header_role: Role | None = None
    """The role of operators named in the header but not in `operators`. None: no access."""
    service_token: str = Field(default="", repr=False)
    """The token, of at least 16 characters, with which your programs use the service API, `/v1/`.
    The API accepts `admin_token` and `tokens` too. If no token is set, the API is off."""
    tokens: dict[Name, str] = Field(default={}, repr=False)
    """Further tokens for the service API, by name. A job belongs to the token that submitted it,
    and a lease to the token that acquired it. A name has at most 48 lower-case letters, digits, `-`
    and `_`, and is not `service` or `operator`. A token has at least 16 characters."""
    scopes: dict[str, Annotated[frozenset[Scope], BeforeValidator(split_list)]] = Field(default={})
    """The scopes of each token, by the token's name: a list of `jobs`, `leases`, `limits`, `read`
    and `classes`. Here, `service` stands for `service_token`. A token that is not listed has all
    scopes except `classes`, which lets a program choose a class without a grant."""
    edge_listen: Listen = "127.0.0.1:8400"
    """The address at which nginx reaches the replica. Let only nginx reach it: a client that
    connects to this address can claim any visitor's IP address."""
    ops_listen: Listen = DEFAULT_OPS_LISTEN
    """The address for health checks, metrics, and the admin and service APIs. Keep it private."""
    done_listen: Annotated[str, AfterValidator(_check_optional_listen)] = ""
    """The UDP address or Unix socket to which nginx reports the permit of each call that has ended.
    The replica then counts that call as ended. Empty: off."""
    health_listen: Annotated[str, AfterValidator(_check_optional_listen)] = ""
    """The UDP address or Unix socket to which nginx reports how the sites respond. The reports are
    unsigned, so let only nginx send them. Empty: off."""
    static_dir: Path | None = None
    """The folder with the waiting page's files. None: the folder in the installed package. The
    folder from which nginx serves these files is set in nginx's `settings.conf`."""
    template_dir: Path = Path("templates")
    """The folder with rooms' templates. The path may be relative to the settings file's folder."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """The minimum level of messages in the log, which is written to standard error."""
    log_format: Literal["json", "console"] = "json"
    """`json`: one JSON object per line, including messages from libraries. `console`: coloured
    text."""
    store_timeout: Seconds = Field(default=0.5, gt=0, le=30)
    """How long a call to Redis may take. Visitors' requests wait for the call, and nginx waits at
    most three seconds for a replica's response."""
    shutdown_delay: Seconds = Field(default=0.0, ge=0, le=300)
    """How long a stopping replica reports on `/readyz` that it is not ready, before it closes its
    listeners. Set this to the time that your load balancer needs to notice the report."""
    event_streams: Count = Field(default=0, ge=0, le=100_000)
    """The maximum number of server-sent event streams at one replica. 0: browsers only poll."""
    jobs: Database = Field(default="", repr=False)
    """The database of jobs, of their results, and of changes to targets made at run time. All
    replicas and workers need the same database; SQLite works on one machine only. Empty: the file
    `waitroom-jobs.db` in the working directory, or no database if there are no targets."""
    leases: dict[RoomName, LeaseSettings] = Field(default={})
    """One table for each kind of resource that can be leased: `[leases.NAME]`. Names
    follow the rules for room names, and no room may have the same name."""
    limits: dict[Name, LimitSettings] = Field(default={})
    """One table for each rate limit: `[limits.NAME]`. A name has at most 48 lower-case letters,
    digits, `-` and `_`."""
    targets: Annotated[dict[Name, TargetSettings], HoldsSecrets] = Field(default={})
    """One table for each target, an API that jobs may call: `[targets.NAME]`. Names follow the
    rules for names of limits."""
    rooms: dict[RoomName, RoomSettings] = Field(default={}, validate_default=True)
    """One table for each room: `[rooms.NAME]`. At least one room is needed, unless you have a
    lease, a limit or a target. nginx names the room in `$waitroom_room`. A name has at most 48
    lower-case letters, digits, `-` and `_`, and is not `internal`, `static` or `now`."""
    webhooks: Annotated[dict[Name, Webhook], HoldsSecrets] = Field(default={})
    """One table for each webhook: `[webhooks.NAME]`. Names follow the rules for names of limits."""

    @field_validator("secret_keys", "grant_keys")
    @classmethod
    def _check_keys(cls, keys: list[str], info: ValidationInfo) -> list[str]:
        problems = []
        if not keys and info.field_name == "secret_keys":
            problems.append(
                'at least one is needed; make one with "openssl rand -hex 32" and set '
                "WAITROOM_SECRET_KEYS or WAITROOM_SECRET_KEYS_FILE"
            )
        if any(len(key) < MIN_SECRET_LENGTH for key in keys):
            problems.append(f"a key has fewer than {MIN_SECRET_LENGTH} characters")
        if DEMO_SECRET in keys and info.data.get("demo") is not True:
            problems.append("the demo's secret is known to everybody")
        return _accept_unless(problems, keys)

    @field_validator("admin_token", "service_token")
    @classmethod
    def _check_token(cls, token: str, info: ValidationInfo) -> str:
        if 0 < len(token) < MIN_ADMIN_TOKEN_LENGTH and not info.data.get("demo"):
            raise ValueError(f"fewer than {MIN_ADMIN_TOKEN_LENGTH} characters")
        return token

    @field_validator("operators")
    @classmethod
    def _check_operators(cls, operators: dict[str, OperatorAccount]) -> dict[str, OperatorAccount]:
        folded_names = [name.casefold() for name in operators]
        problems = [
            f"{name}: there is one of this name in other letters"
            for name in operators
            if folded_names.count(name.casefold()) > 1
        ]
        return _accept_unless(problems, operators)

    @field_validator("operator_header_from")
    @classmethod
    def _check_header_sources(cls, sources: list[str], info: ValidationInfo) -> list[str]:
        if "operator_header" not in info.data:
            return sources
        if info.data["operator_header"] and not sources:
            raise ValueError("operator_header needs it: the address of your proxy, or unix")
        if not info.data["operator_header"] and sources:
            raise ValueError("operator_header is not set, so it has no effect")
        problems = [
            f"no password for {name}, and there is no operator_header: nobody can log in so"
            for name, account in info.data.get("operators", {}).items()
            if not (account.password or info.data["operator_header"])
        ]
        return _accept_unless(problems, sources)

    @field_validator("tokens")
    @classmethod
    def _check_tokens(cls, tokens: dict[str, str], info: ValidationInfo) -> dict[str, str]:
        is_demo = info.data.get("demo") is True
        problems = [
            f"{name}: fewer than {MIN_ADMIN_TOKEN_LENGTH} characters"
            for name, token in tokens.items()
            if len(token) < MIN_ADMIN_TOKEN_LENGTH and not (is_demo and token)
        ]
        problems += [f"{name}: the name is taken" for name in tokens if name in OWNERS]
        values = [info.data.get("admin_token"), info.data.get("service_token"), *tokens.values()]
        problems += [
            f"{name}: the same token is there twice, under another name"
            for name, token in tokens.items()
            if token and values.count(token) > 1
        ]
        return _accept_unless(problems, tokens)

    @field_validator("scopes")
    @classmethod
    def _check_scopes(
        cls, scopes: dict[str, frozenset[Scope]], info: ValidationInfo
    ) -> dict[str, frozenset[Scope]]:
        names = [OWNERS[0], *info.data.get("tokens", {})]
        problems = [
            f"{name}: no token has this name; there are {', '.join(names)}"
            for name in scopes
            if "tokens" in info.data and name not in names
        ]
        problems += [
            f"{name}: at least one of {', '.join(sorted(SCOPES))}, or take the token away"
            for name, allowed in scopes.items()
            if not allowed
        ]
        return _accept_unless(problems, scopes)

    @field_validator("rooms")
    @classmethod
    def _check_rooms(
        cls, rooms: dict[str, RoomSettings], info: ValidationInfo
    ) -> dict[str, RoomSettings]:
        others = ("leases", "limits", "targets", "jobs")
        if not rooms and not any(info.data.get(name, True) for name in others):
            raise ValueError(
                "at least one is needed, such as [rooms.shop] with total_active_users = 100, "
                "or a lease, a limit or a target"
            )
        shared_names = rooms.keys() & info.data.get("leases", {}).keys()
        problems = [
            f"{name}: a lease has this name too, and both would have the cookie waitroom_{name}"
            for name in sorted(shared_names)
        ]
        return _accept_unless(problems, rooms)

    @field_validator("webhooks")
    @classmethod
    def _check_webhooks(
        cls, webhooks: dict[str, Webhook], info: ValidationInfo
    ) -> dict[str, Webhook]:
        rooms = info.data.get("rooms")
        problems = [
            f"{name}.rooms: no room is named {room!r}"
            for name, webhook in webhooks.items()
            for room in webhook.rooms
            if rooms is not None and room not in rooms
        ]
        return _accept_unless(problems, webhooks)

    @property
    def is_in_memory(self) -> bool:
        """Return True if the store is this process's memory rather than Redis."""
        return self.store.startswith(MEMORY)

    @property
    def warnings(self) -> list[str]:
        """Return one line of text for each setting that is valid but probably a mistake."""
        adaptive = (
            f"rooms.{name}.adaptive.{warning}"
            for name, room in self.rooms.items()
            if room.adaptive
            for warning in room.adaptive.find_warnings(room.total_active_users)
        )
        unreported = (
            f"rooms.{name}.{setting}: health_listen is not set, so this has no effect. Set it, "
            'such as "127.0.0.1:8403", and let nginx report: docs/adaptive.md, docs/site-headers.md'
            for name, room in self.rooms.items()
            if not self.health_listen
            for setting in room.settings_needing_reports
        )
        rules = (
            f"{kind}.{name}.{warning}"
            for kind, rules in (("limits", self.limits), ("targets", self.targets))
            for name, rule in rules.items()
            for warning in rule.warnings
        )
        return [*self._store_warnings, *adaptive, *unreported, *rules]

    @property
    def _store_warnings(self) -> list[str]:
        if not self.is_in_memory:
            return []
        how = f"is {MEMORY}" if "store" in self.model_fields_set else "is not set"
        text = (
            f"store: {how}, so all state is in this process alone and gone when it stops. A second "
            "replica would have a state, and caps, of its own. Set a store that all share, such as "
            "redis://127.0.0.1:6379/0 (WAITROOM_STORE)"
        )
        offline = sorted(name for name, rule in self.targets.items() if "offline" in rule.kinds)
        if not offline:
            return [text]
        alone = (
            f"targets: no worker can make the offline calls of {', '.join(offline)}: waitroom "
            f"run-jobs needs a store that it shares with the replicas, and the store {how}"
        )
        return [text, alone]

    @property
    def jobs_database(self) -> str:
        """Return the URL of the database of jobs, or "" if there are no jobs."""
        return self.jobs or (DEFAULT_DATABASE if self.targets else "")

    @property
    def accounts(self) -> Accounts:
        """Return the accounts of operators, and how a proxy may sign operators in."""
        accounts = {name: Account(o.role, o.password) for name, o in self.operators.items()}
        sources = frozenset(self.operator_header_from)
        return Accounts(
            accounts, ProxySignIn(self.operator_header, sources, self.operator_header_role)
        )

    @property
    def keys_of_grants(self) -> list[str]:
        """Return the keys that sign and verify grants, oldest first."""
        return self.grant_keys or self.secret_keys


def _accept_unless(problems: list[str], value: T) -> T:
    """Return `value` if there are no problems. Raises ValueError with all problems."""
    if problems:
        raise ValueError("\n".join(problems))
    return value
