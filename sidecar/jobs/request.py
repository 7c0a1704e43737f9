"""The request that a job makes: checked when it is submitted, and again when it is called, since
its target may have changed meanwhile."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from math import isfinite
from typing import TYPE_CHECKING, Protocol
from unicodedata import category
from urllib.parse import quote, unquote_to_bytes

from yarl import URL

from sidecar.jobs.settings import problems_of_headers
from sidecar.kit.errors import ConfigError
from sidecar.kit.setting_types import clean_path

if TYPE_CHECKING:
    from sidecar.jobs.settings import TargetSettings

#: Characters. Both together and the target's own path fit the request line of 8 KB that servers
#: commonly read.
MAX_PATH, MAX_QUERY = 2048, 4096
MAX_HEADERS, MAX_HEADERS_BYTES = 64, 16_384
#: What a path and a query may have as it is; the rest is percent-encoded. Of the characters that an
#: address allows, ; and @ are left out, which some servers take for more than themselves.
_PATH = re.compile(r"(?:[A-Za-z0-9._~!$&'()*+,=:/-]|%[0-9A-Fa-f]{2})*\Z")
_QUERY = re.compile(r"(?:[A-Za-z0-9._~!$&'()*+,;=:@/?\[\]|-]|%[0-9A-Fa-f]{2})*\Z")
#: A dot, a slash or a backslash in disguise, and a scheme.
_DISGUISED = re.compile(r"%2[EeFf]|%5[Cc]|:/")
_ODD = "//, ., .., :/, encoded . / \\ % ? # ; or control characters, letters that are not NFKC"
_LINES = {"Cc", "Zl", "Zp"}


class Asked(Protocol):
    """Of a job, and of a Call."""

    @property
    def method(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def query(self) -> str: ...
    @property
    def headers(self) -> dict[str, str]: ...
    @property
    def body(self) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Call:
    """A request below a target's url: the path and the query are as they are sent, encoded."""

    method: str
    path: str = ""
    query: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


def read_request(  # noqa: PLR0913
    settings: TargetSettings,
    *,
    method: object,
    path: object,
    query: object,
    headers: object,
    body: bytes,
) -> Call:
    """A request as a caller says it: the path a text, the query a text or an object of texts,
    numbers and lists of them. Raises ConfigError naming all that is wrong with it."""
    problems: list[str] = []
    verb = method.upper() if isinstance(method, str) else ""
    if verb not in settings.methods:
        problems.append(f"method: {' or '.join(settings.methods)} for this target")
    problems += _problems_of_path(settings, path)
    written = _written_query(query, problems)
    problems += _problems_of_headers(headers)
    if body and verb in {"GET", "HEAD"}:
        problems.append(f"body: a {verb} has none")
    if len(body) > settings.max_body:
        problems.append(f"body: at most {settings.max_body:,} bytes (got {len(body):,})")
    if problems or not isinstance(path, str) or not isinstance(headers, dict):
        raise ConfigError(problems)
    return Call(verb, path, written, dict(headers), body)


def check_again(settings: TargetSettings, asked: Asked) -> tuple[Call, URL]:
    """What was asked, by the settings as they are now, and where it goes. Raises ConfigError."""
    call = read_request(
        settings,
        method=asked.method,
        path=asked.path,
        query=asked.query,
        headers=asked.headers,
        body=asked.body,
    )
    return call, url_of(settings, call)


def url_of(settings: TargetSettings, asked: Asked) -> URL:
    """The address, of which nothing is decoded or normalised on the way. Raises ConfigError where
    it would not lie below the target's."""
    return _url_below(settings.url or "", asked.path, asked.query)


@lru_cache(1024)
def _url_below(target: str, path: str, query: str) -> URL:
    base = URL(target, encoded=True)
    text = f"{target}{path}" + (f"?{query}" if query else "")
    try:
        url = URL(text, encoded=True)
        is_below = (
            (url.scheme, url.raw_host, url.port) == (base.scheme, base.raw_host, base.port)
            and url.raw_authority == base.raw_authority
            and url.raw_path == base.raw_path + path
            and url.raw_query_string == query
            and not (url.raw_user or url.raw_password or url.raw_fragment)
        )
    except ValueError:
        is_below = False
    if not (is_below and url.raw_host):
        raise ConfigError(["path: the address would not be one of the target's"])
    return url


def _problems_of_path(settings: TargetSettings, path: object) -> list[str]:
    if not isinstance(path, str):
        return ["path: a text"]
    if settings.url is None:
        return ["target: has no url, so that only its callers can call it (kind: online)"]
    if not path:
        return []
    if not settings.has_paths:
        return ["path: this target has one address alone; leave it out"]
    if path.startswith("/"):
        return ["path: write it without / at its beginning: it follows the target's url"]
    if len(path) > MAX_PATH:
        return [f"path: at most {MAX_PATH:,} characters (got {len(path):,})"]
    if not _PATH.match(path):
        return ["path: percent-encode what is no letter, digit or one of -._~!$&'()*+,=:/"]
    decoded = clean_path(f"/{path}")
    if decoded is None or _DISGUISED.search(path) or any(category(c) in _LINES for c in decoded):
        return [f"path: may not have what two servers read in two ways: {_ODD}"]
    return []


def _written_query(query: object, problems: list[str]) -> str:
    """As it is sent; what is wrong with it is added to the problems."""
    if isinstance(query, dict):
        query = _joined(query, problems)
    if not isinstance(query, str):
        problems.append("query: a text, or an object of texts, numbers and lists of them")
    elif len(query) > MAX_QUERY:
        problems.append(f"query: at most {MAX_QUERY:,} characters (got {len(query):,})")
    elif query.startswith("?"):
        problems.append("query: write it without ? at its beginning")
    elif not _QUERY.match(query):
        problems.append("query: percent-encode what is no letter, digit or sign of an address")
    elif b"\0" in unquote_to_bytes(query):
        problems.append("query: may not have %00")
    else:
        return query
    return ""


def _joined(members: dict[object, object], problems: list[str]) -> str | None:
    """None: it has something that cannot be written."""
    parts = []
    for name, value in members.items():
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, bool) or not isinstance(one, (str, int, float)):
                return None
            if not isinstance(name, str) or (isinstance(one, float) and not isfinite(one)):
                return None
            try:
                parts.append(f"{quote(name, safe='')}={quote(str(one), safe='')}")
            except (UnicodeEncodeError, ValueError):  # half a character, thousands of digits
                problems.append("query: has characters that no text has")
                return ""
    return "&".join(parts)


def _problems_of_headers(headers: object) -> list[str]:
    if not isinstance(headers, dict) or not all(
        isinstance(name, str) and isinstance(value, str) for name, value in headers.items()
    ):
        return ["headers: an object of texts"]
    if len(headers) > MAX_HEADERS:
        return [f"headers: at most {MAX_HEADERS} (got {len(headers)})"]
    size = sum(len(name) + len(value) + 4 for name, value in headers.items())
    if size > MAX_HEADERS_BYTES:
        return [f"headers: at most {MAX_HEADERS_BYTES:,} bytes in all (got {size:,})"]
    return problems_of_headers(headers)
