"""The result of a job's call."""

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

#: What a call came to. answered: a response that is not retried. busy: a 429 that is retried.
#: failed: an incomplete or missing response (then `status` is None), or another status that is
#: retried. refused: the call is not allowed, or its response is too large; never retried.
ResultKind: TypeAlias = Literal["answered", "busy", "failed", "refused"]


@dataclass(frozen=True, slots=True)
class CallResult:
    kind: ResultKind
    #: A message for people, without addresses and without values of headers.
    error: str = ""
    status: int | None = None
    #: The response headers: names in lower case; values of the same name are joined by commas.
    headers: dict[str, str] = field(default_factory=dict)
    #: The response body. Empty if it is larger than CHUNK: then it is in the database, in parts.
    body: bytes = b""
    #: The size of the whole body, in bytes.
    size: int = 0
    #: The Retry-After header, in seconds. None if it is missing or unreadable.
    retry_after_s: float | None = None
    took_us: int = 0
