"""The types of settings: durations, counts, addresses to listen on, URLs, networks and paths."""

import ipaddress
import re
from collections.abc import Mapping
from typing import Annotated, Any
from unicodedata import is_normalized
from urllib.parse import quote, unquote_to_bytes, urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, ValidationError

from sidecar.kit.did_you_mean import did_you_mean, find_sibling_names

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?\Z")
#: The pattern of a duration for JSON Schema.
DURATION = r"^\s*[0-9]+(\.[0-9]+)?\s*([mM][sS]|[sSmMhHdD])?\s*$"
_UNIT_S = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, None: 1}
STORES = (
    *("redis://", "rediss://", "unix://", "memory://"),
    *("redis+sentinel://", "rediss+sentinel://", "redis+cluster://", "rediss+cluster://"),
)
DATABASES = ("sqlite:///", "mysql://", "mariadb://", "postgresql://")
#: A server in a store's URL: a host name, IPv4 address or [IPv6 address], with an optional port.
_SERVER = re.compile(r"([^\s:/@\[\]]+|\[[\da-fA-F:.]+\])(?::([0-9]{1,5}))?")
#: How many characters of a rejected value an error message repeats.
_MAX_SHOWN = 120
_READING_HINT = (
    "a port is a number up to 65535, and in a password / is written %2F, @ is written %40"
)
_DURATION_HINT = 'write a number of seconds, or text such as "30s", "5m", "2h"'


def parse_duration(value: object) -> object:
    """Convert a string such as "90s", "5m", "1.5h" or "2d" to seconds. Return numbers unchanged."""
    match = _DURATION.match(value.strip().lower()) if isinstance(value, str) else None
    if isinstance(value, str | bool) and match is None:
        raise ValueError(_DURATION_HINT)
    return float(match[1]) * _UNIT_S[match[2]] if match else value


def _no_boolean(hint: str) -> BeforeValidator:
    """Return a validator that rejects booleans, which pydantic would accept as numbers."""

    def check(value: object) -> object:
        if isinstance(value, bool):
            raise ValueError(hint)  # noqa: TRY004 - pydantic expects a ValueError
        return value

    return BeforeValidator(check)


def from_text(value: object) -> object:
    """Convert a string of digits to a number, because pydantic does not do so for a Literal. Return
    all other values unchanged."""
    return int(value) if isinstance(value, str) and value.isdecimal() else value


def split_list(value: object) -> object:
    """Split a string at commas and white space into a list. Return other values unchanged."""
    if isinstance(value, str):
        return [part for part in re.split(r"[,\s]+", value) if part]
    return value


Seconds = Annotated[float, BeforeValidator(parse_duration), Field(allow_inf_nan=False)]
Count = Annotated[int, _no_boolean("write a whole number")]


def check_listen(value: str) -> str:
    """Return the value if it is an address to listen on. Raises ValueError."""
    if value.startswith("unix:") and len(value) > len("unix:"):
        return value
    host, colon, port = value.rpartition(":")
    if not colon or not host or not port.isdecimal() or not 0 <= int(port) <= 65535:
        raise ValueError("write host:port (such as 127.0.0.1:8400) or unix:/path")
    return value


def check_store(value: str) -> str:
    """Return the value if it is a URL of Redis. Raises ValueError."""
    if not value.startswith(STORES):
        raise ValueError(
            "write redis://, rediss://, unix:///path, redis+sentinel://, redis+cluster:// "
            "or memory://"
        )
    if "+" in value.partition("://")[0]:
        read_servers(value)
    else:
        _check_port(value)
    return value


def check_database(value: str) -> str:
    """Return the value if it is a URL of an SQL database, or "". Raises ValueError."""
    if value and not value.startswith(DATABASES):
        raise ValueError("write sqlite:///path, mysql://, mariadb:// or postgresql://")
    _check_port(value)
    return value


def _check_port(url: str) -> None:
    try:
        urlsplit(url).port  # noqa: B018 - reading the port checks it
    except ValueError:
        raise ValueError(f"the address cannot be read: {_READING_HINT}") from None


def read_servers(url: str) -> tuple[list[tuple[str, int]], list[str]]:
    """Parse a redis+sentinel:// or redis+cluster:// URL. Return its hosts with ports, and the parts
    of its path: the name of the Sentinel service and the number of the database.

    Raises ValueError for an error in the servers or the path. The message repeats no part of the
    URL, because that part might be the rest of a password."""
    kind, _, rest = url.partition("://")
    authority, _, path = rest.partition("?")[0].partition("/")
    servers = []
    for number, server in enumerate(authority.rpartition("@")[2].split(","), start=1):
        match = _SERVER.fullmatch(server)
        if match is None or int(match[2] or 1) not in range(1, 65536):
            wrong = "has no host" if server.partition(":")[0] == "" else "cannot be read"
            raise ValueError(f"server {number} {wrong}: {_READING_HINT}")
        port = int(match[2] or (26379 if kind.endswith("+sentinel") else 6379))
        servers.append((match[1].strip("[]"), port))
    parts = path.strip("/").split("/") if path.strip("/") else []
    if kind.endswith("+cluster") and parts:
        raise ValueError("a cluster has no databases: nothing comes after the servers")
    if len(parts) > 2:
        raise ValueError("after the servers come /SERVICE and /DATABASE, and no more")
    if parts and parts[0].isdecimal():
        raise ValueError("the database comes after the service: /SERVICE/DATABASE")
    if len(parts) == 2 and not parts[1].isdecimal():
        raise ValueError("the database is a number: /SERVICE/DATABASE")
    return servers, parts


#: How many networks and paths a room may have. Each request is compared with all of them.
MAX_NETWORKS, MAX_PATHS = 1000, 100
#: Characters that some servers take for a separator or for the end of a path. A % in a decoded path
#: comes from double encoding.
_AMBIGUOUS = re.compile(r"[\x00-\x1f\x7f\\;%?#]|//")


def _split_unique(value: object, limit: int) -> list[str]:
    """Return the distinct parts of a string or list. Raises ValueError for over `limit` parts."""
    value = split_list(value)
    if not isinstance(value, (list, tuple)) or not all(isinstance(part, str) for part in value):
        raise ValueError("write a list of texts, or one text with commas between")
    if len(value) > limit:
        raise ValueError(f"at most {limit} are allowed")
    return list(dict.fromkeys(value))


def read_networks(value: object) -> tuple[str, ...] | None:
    """Split and check networks, such as 192.0.2.0/24 and 2001:db8::/32, and single addresses."""
    if value is None:
        return None
    problems = []
    networks = _split_unique(value, MAX_NETWORKS)
    for part in networks:
        try:
            network = ipaddress.ip_network(part)
            mapped = getattr(network.network_address, "ipv4_mapped", None)
            if network.prefixlen == 0 or (mapped is not None and network.prefixlen == 96):
                problems.append(f"{part} is everybody: that is what suspended is for")
        except ValueError as error:
            problems.append(f"{error}: write 192.0.2.7, 192.0.2.0/24 or 2001:db8::/32")
    if problems:
        raise ValueError("\n".join(problems))
    return tuple(networks)


def read_paths(value: object) -> tuple[str, ...] | None:
    """Split and check decoded paths. /static/ stands for all paths below /static/, and /feed.xml
    for itself and all paths below it."""
    if value is None:
        return None
    paths = _split_unique(value, MAX_PATHS)
    problems = [
        f"{part!r} cannot be exempt: write a path such as /static/ or /feed.xml, without "
        "encoding, //, .., ; and \\"
        for part in paths
        if part == "/" or clean_path(quote(part)) != part
    ]
    if problems:
        raise ValueError("\n".join(problems))
    return tuple(paths)


def clean_path(target: str) -> str | None:
    """Return the decoded path of a request target, such as `/a%20b?c=d`. Return None if servers
    might read it differently, due to dots, empty parts, odd separators or double encoding."""
    raw = target.partition("?")[0]
    if not raw.startswith("/") or not raw.isascii():
        raw = ""
    try:
        path = unquote_to_bytes(raw).decode("utf-8")
    except UnicodeDecodeError:
        return None
    if not path or path.count("/") != raw.count("/") or _AMBIGUOUS.search(path):
        return None
    if not is_normalized("NFKC", path):  # some servers treat a full-width dot as a dot
        return None
    # Some file systems ignore trailing dots and spaces, and take a part such as "... " for "..".
    if any(part and not part.strip(". ") for part in path.split("/")):
        return None
    return path


Percent = Annotated[float, _no_boolean("write a number from 0 to 100"), Field(allow_inf_nan=False)]
Networks = Annotated[tuple[str, ...] | None, BeforeValidator(read_networks)]
Paths = Annotated[tuple[str, ...] | None, BeforeValidator(read_paths)]
Listen = Annotated[str, AfterValidator(check_listen)]
DEFAULT_OPS_LISTEN = "127.0.0.1:8401"
Store = Annotated[str, AfterValidator(check_store)]
Database = Annotated[str, AfterValidator(check_database)]


class HoldsSecrets:
    """Marks a table of settings as having secret values: Annotated[Table, HoldsSecrets]."""


#: Maps the type of a pydantic error, or the first word of the type, to what a value must be.
_REQUIREMENTS = {
    "literal_error": "must be {expected}",
    "greater_than": "must be greater than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "string_too_short": "must have at least {min_length} characters",
    "string_too_long": "must have at most {max_length} characters",
    "string_pattern_mismatch": "must match {pattern}",
    "too_short": "must have {min_length} or more entries",
    "too_long": "must have at most {max_length} entries",
    "bool": "must be true or false",
    "int": "must be a whole number",
    "float": "must be a number",
    "finite": "must be a number",
    "path": "must be a path",
    "frozen": "must be a list",
    "string": "must be text",
    "list": "must be a list",
    "tuple": "must be a list",
    "dict": "must be a table",
    "model": "must be a table",
}


def describe_requirement(problem: Mapping[str, Any]) -> str:
    """Return what a value must be, from an error of pydantic, in plain words."""
    kind = problem["type"]
    if text := _REQUIREMENTS.get(kind) or _REQUIREMENTS.get(kind.partition("_")[0]):
        bounds = problem.get("ctx", {}).items()
        return text.format_map({name: _drop_zero_fraction(bound) for name, bound in bounds})
    return str(problem["msg"]).removeprefix("Value error, ")


def _drop_zero_fraction(bound: Any) -> Any:
    return int(bound) if isinstance(bound, float) and bound.is_integer() else bound


def describe_problems(error: ValidationError, model: type[BaseModel] | None = None) -> list[str]:
    """Return one line for each problem: the setting's name and what is allowed. `model` is the
    model that was validated. If it is given, similar names are suggested, and the values of secret
    settings (`repr=False`, HoldsSecrets) are hidden."""
    lines = []
    for problem in error.errors(include_url=False):
        name = ".".join(str(part) for part in problem["loc"] if part != "[key]")
        field = model.model_fields.get(str(problem["loc"][0])) if model and problem["loc"] else None
        is_secret = field is not None and (not field.repr or HoldsSecrets in field.metadata)
        text = describe_requirement(problem)
        if problem["type"] == "extra_forbidden":
            names = find_sibling_names(model, problem["loc"]) if model else None
            text = f"unknown setting{did_you_mean(str(problem['loc'][-1]), names or ())}"
        elif problem["type"] == "missing":
            text = "is needed"
        elif not isinstance(problem["input"], dict | list | tuple) and not is_secret:
            value = repr(problem["input"])
            text += f" (got {value if len(value) <= _MAX_SHOWN else value[:_MAX_SHOWN] + '…'})"
        lines += [f"{name}: {line}" if name else line for line in text.split("\n")]
    return lines
