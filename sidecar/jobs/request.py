"""Checks the HTTP request of a job: when the job is submitted, and again before each call, because
the target's settings may have changed meanwhile."""

import re
from functools import lru_cache
from typing import TypeAlias
from unicodedata import category
from urllib.parse import quote, unquote_to_bytes

from pydantic import FiniteFloat
from yarl import URL

from sidecar.jobs.model import Job, NewJob
from sidecar.jobs.settings import TargetSettings, find_header_problems
from sidecar.kit.errors import InputError
from sidecar.kit.setting_types import clean_path
from sidecar.kit.trace_context import HEADERS as TRACE_HEADERS

#: The maximum lengths of a path and of a query, in characters. With the target's own path, both fit
#: into the request line of 8 KB that most servers accept.
MAX_PATH_LENGTH, MAX_QUERY_LENGTH = 2048, 4096
#: The maximum number of headers, and the maximum size of all headers together in bytes.
MAX_HEADERS, MAX_HEADERS_BYTES = 64, 16_384
#: Characters that a path and a query may have unencoded. A path may not have ; and @, because some
#: servers give them a special meaning.
_PATH = re.compile(r"(?:[A-Za-z0-9._~!$&'()*+,=:/-]|%[0-9A-Fa-f]{2})*\Z")
_QUERY = re.compile(r"(?:[A-Za-z0-9._~!$&'()*+,;=:@/?\[\]|-]|%[0-9A-Fa-f]{2})*\Z")
#: Text that servers read in different ways: an encoded dot, slash or backslash, or a scheme's :/.
_AMBIGUOUS = re.compile(r"%2[EeFf]|%5[Cc]|:/")
_EXCLUDED_HINT = (
    "//, ., .., :/, encoded . / \\ % ? # ; or control characters, letters that are not NFKC"
)
#: The Unicode categories of control characters and line separators.
_CONTROLS = {"Cc", "Zl", "Zp"}

#: A value in a query that is submitted as an object.
QueryValue: TypeAlias = str | int | FiniteFloat


def check_request(settings: TargetSettings, request: NewJob | Job) -> URL:
    """Check a job's request against its target's settings, and return the URL to call. Raises
    InputError with all problems."""
    method, body = request.method.upper(), request.body
    problems = []
    if method not in settings.methods:
        problems.append(f"method: {' or '.join(settings.methods)} for this target")
    problems += _find_path_problems(settings, request.path)
    problems += _find_query_problems(request.query)
    problems += _find_header_problems(request.headers)
    if body and method in {"GET", "HEAD"}:
        problems.append(f"body: a {method} has none")
    if len(body) > settings.max_body:
        problems.append(f"body: at most {settings.max_body:,} bytes (got {len(body):,})")
    if problems:
        raise InputError(problems)
    return make_url(settings.url or "", request.path, request.query)


@lru_cache(1024)
def make_url(target_url: str, path: str, query: str) -> URL:
    """Append a path and a query to a target's url, without decoding or normalising them. Raises
    InputError if the URL would not lie below the target's url."""
    base = URL(target_url, encoded=True)
    text = f"{target_url}{path}" + (f"?{query}" if query else "")
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
        raise InputError(["path: the address would not be one of the target's"])
    return url


def _find_path_problems(settings: TargetSettings, path: str) -> list[str]:
    if settings.url is None:
        return ["target: has no url, so that only its callers can call it (kind: online)"]
    if not path:
        return []
    if not settings.has_paths:
        return ["path: this target has one address alone; leave it out"]
    if path.startswith("/"):
        return ["path: write it without / at its beginning: it follows the target's url"]
    if len(path) > MAX_PATH_LENGTH:
        return [f"path: at most {MAX_PATH_LENGTH:,} characters (got {len(path):,})"]
    if not _PATH.match(path):
        return ["path: percent-encode what is no letter, digit or one of -._~!$&'()*+,=:/"]
    decoded = clean_path(f"/{path}")
    if decoded is None or _AMBIGUOUS.search(path) or any(category(c) in _CONTROLS for c in decoded):
        return [f"path: may not have what two servers read in two ways: {_EXCLUDED_HINT}"]
    return []


def encode_query(query: str | dict[str, QueryValue | list[QueryValue]] | None) -> str:
    """Return a submitted query as the encoded string that is sent. Raises InputError."""
    if query is None or isinstance(query, str):
        return query or ""
    pairs = [
        (name, value)
        for name, values in query.items()
        for value in (values if isinstance(values, list) else [values])
    ]
    try:
        return "&".join(
            f"{quote(name, safe='')}={quote(str(value), safe='')}" for name, value in pairs
        )
    except ValueError:  # for a lone surrogate, or a number with thousands of digits
        raise InputError(["query: has characters that no text has"]) from None


def _find_query_problems(query: str) -> list[str]:
    if not query:
        return []
    if len(query) > MAX_QUERY_LENGTH:
        return [f"query: at most {MAX_QUERY_LENGTH:,} characters (got {len(query):,})"]
    if query.startswith("?"):
        return ["query: write it without ? at its beginning"]
    if not _QUERY.match(query):
        return ["query: percent-encode what is no letter, digit or sign of an address"]
    if b"\0" in unquote_to_bytes(query):
        return ["query: may not have %00"]
    return []


def _find_header_problems(headers: dict[str, str]) -> list[str]:
    # Trace headers do not count, because the client may not know that its library sends them.
    headers = {name: text for name, text in headers.items() if name not in TRACE_HEADERS}
    if len(headers) > MAX_HEADERS:
        return [f"headers: at most {MAX_HEADERS} (got {len(headers)})"]
    size = sum(len(name) + len(value) + 4 for name, value in headers.items())
    if size > MAX_HEADERS_BYTES:
        return [f"headers: at most {MAX_HEADERS_BYTES:,} bytes in all (got {size:,})"]
    return [f"headers: {problem}" for problem in find_header_problems(headers)]
