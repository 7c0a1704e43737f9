"""The result of a job's HTTP call, before it is decided whether the job is retried."""

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

#: answered: the response is not retried. busy: the response is a 429 that is retried. failed: the
#: response is missing or incomplete (then `status` is None), or has another status that is retried.
#: refused: the call is not allowed, or its response is too large; never retried.
ResultKind: TypeAlias = Literal["answered", "busy", "failed", "refused"]

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
#: The status that nginx logs if the client was gone before the response.
_CLIENT_GONE = 499


def describe_status(status: int, *, is_online: bool = False) -> str:
    """Return the error text for a status that fails a job. `is_online`: a client made the call."""
    if is_online and status == _CLIENT_GONE:
        return f"the client closed the connection before the answer ({status})"
    hint = ", a redirect" if status in _REDIRECTS and not is_online else ""
    return f"the target says {status}{hint}"


@dataclass(frozen=True, slots=True)
class CallResult:
    kind: ResultKind
    #: A message for people, without URLs and header values. Empty if the call succeeded.
    error: str = ""
    status: int | None = None
    #: The response headers: names in lower case; values of the same name are joined by commas.
    headers: dict[str, str] = field(default_factory=dict)
    #: The response body. Empty if it is larger than CHUNK_BYTES: then the database has it in parts.
    body: bytes = b""
    #: The size of the whole response body, in bytes.
    size: int = 0
    #: The Retry-After header, in seconds. None if it is missing or unreadable.
    retry_after_s: float | None = None
    took_us: int = 0
