"""Defines requests to replicas and parses the responses."""

import json
import re
import ssl
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from waitroom.errors import (
    ConfigError,
    Problem,
    Refused,
    RejectedError,
    UnavailableError,
    get_retry_s,
)

_ADDRESS = re.compile(r"https?://[^\s/?#@]+/?\Z")
#: The statuses with which a replica, or a proxy before it, reports a temporary failure.
_UNAVAILABLE = {429, 502, 503, 504}
#: The codes of problems with status 429 that mean a refusal, not a failure.
_REFUSALS = {"queue_full", "over_limit"}
#: Hints for the user, by status. They replace a missing detail. The hint for 401 is always shown.
_HINTS = {
    401: "Give the client the service_token of the replica's settings.",
    404: "The client's address is to be that of the ops listener (ops_listen).",
}
Document = dict[str, Any]
#: Seconds after which the client closes an idle connection. A replica closes it later.
KEEPALIVE_S = 30
#: The maximum number of idle connections to a replica. Connections in use are not counted.
MAX_IDLE = 100


@dataclass(frozen=True, slots=True)
class Request:
    """One request to a replica. `path` is percent-encoded."""

    method: str
    path: str
    query: dict[str, str] = field(default_factory=dict)
    body: object = None
    #: The members that the response's document, or each document in a list, must have.
    members: frozenset[str] = frozenset()
    #: The statuses other than 2xx that are not errors.
    statuses: frozenset[int] = frozenset()
    #: Whether the request may be repeated even if a replica may have acted on it.
    is_repeatable: bool = True
    #: Seconds that a long poll may last, in addition to the timeout.
    wait_s: float = 0
    #: Whether the response stays open, so that its body can be read in chunks.
    is_streamed: bool = False

    @property
    def content(self) -> bytes | None:
        return None if self.body is None else json.dumps(self.body, separators=(",", ":")).encode()

    def is_expected(self, status: int, document: Any) -> bool:
        """Return True if the status is not an error and the document is of the expected form."""
        if not 200 <= status < 300 and status not in self.statuses:
            return False
        documents = [document]
        if isinstance(self.body, list):
            if not isinstance(document, list) or len(document) != len(self.body):
                return False
            documents = document
        members = set() if status == 409 else self.members
        return all(isinstance(item, dict) and members <= item.keys() for item in documents)


@dataclass(frozen=True, slots=True)
class AcquireCall:
    """A call that needs a limit's permission. Several calls may share a request."""

    rule: str
    parameters: Document
    #: The id by which a replica recognises a repeated call. Empty if the call must not be repeated.
    call_id: str = ""
    #: Whether the client generated `call_id`, so that the caller cannot repeat the call.
    has_generated_id: bool = True

    @property
    def is_repeatable(self) -> bool:
        return bool(self.call_id)

    @property
    def body(self) -> Document:
        return {**self.parameters, "id": self.call_id} if self.call_id else self.parameters


class Response(NamedTuple):
    status: int
    document: Any
    #: time.monotonic() before the request was sent to the replica that responded.
    sent_at: float = 0.0


class OpenResponse(NamedTuple):
    """A response whose body has not been read yet. Closing `chunks` closes the response."""

    status: int
    chunks: AsyncGenerator[bytes, None]


def build_path(*parts: str, root: str = "/v1") -> str:
    return "/".join([root, *(quote(part, safe="") for part in parts)])


class Replica:
    """A replica's address. For a unix socket, `url` has a made-up host. Raises ConfigError."""

    def __init__(self, address: str, number: int) -> None:
        self.address = address
        self.socket = address.removeprefix("unix:") if address.startswith("unix:") else None
        if self.socket == "" or (self.socket is None and not _ADDRESS.match(address)):
            raise ConfigError(
                [f"address: write http://host:port, https://host or unix:/path (got {address!r})"]
            )
        self.url = address.rstrip("/") if self.socket is None else f"http://socket-{number}"

    def get_url(self, request: Request) -> str:
        query = f"?{urlencode(request.query)}" if request.query else ""
        return self.url + request.path + query

    def parse(self, request: Request, status: int, content: bytes) -> Response:
        """Parse a response. Raises UnavailableError if a retry may help, else RejectedError."""
        try:
            document = json.loads(content)
        except ValueError:
            document = None
        if request.is_expected(status, document):
            return Response(status, document)
        problem = Problem.from_document(status, document)
        hint = _HINTS.get(status, "")
        detail = hint if status == 401 else problem.detail or hint
        title = problem.title or "this is no service API"
        place = f"{request.method} {request.path} at {self.address}"
        text = f"{place}: {status}, {title}. {detail}".strip()
        if problem.code in _REFUSALS:
            raise Refused(text, get_retry_s(document), document)
        if status in _UNAVAILABLE:
            raise UnavailableError(text, problem=problem)
        raise RejectedError(text, problem)

    def make_unreachable_error(self, reason: object) -> UnavailableError:
        """Return the error for a request that was never sent. `reason` is empty for a timeout."""
        text = re.sub(r"\[.*\] ", "", str(reason)).lower() or "no connection in time"
        return UnavailableError(
            f"no replica answers at {self.address}: {text}; is it running, and is that its "
            "ops_listen?",
            is_sent=False,
        )

    def make_timeout_error(self, read_timeout_s: float) -> UnavailableError:
        text = f"the replica at {self.address} did not answer within {read_timeout_s:g} s"
        return UnavailableError(text)

    def make_closed_error(self, reason: object) -> UnavailableError:
        return UnavailableError(f"the replica at {self.address} closed the connection ({reason})")


class Wire:
    """The replicas, and the settings of all requests to them. Raises ConfigError."""

    def __init__(
        self, addresses: str | Sequence[str], *, token: str, operator: str, timeout_s: float
    ) -> None:
        addresses = [addresses] if isinstance(addresses, str) else addresses
        self.replicas = [Replica(address, number) for number, address in enumerate(addresses)]
        if not self.replicas:
            raise ConfigError(["address: none is given"])
        self.timeout_s = timeout_s
        self.headers = {"Content-Type": "application/json"}
        if token:
            self.headers["Authorization"] = f"Bearer {token}"
        if operator:
            self.headers["X-Waitroom-Operator"] = operator

    def get_read_timeout_s(self, request: Request) -> float:
        """Return how many seconds to wait for each part of the response."""
        return self.timeout_s + request.wait_s

    def make_tls_context(self) -> ssl.SSLContext:
        """Return a TLS context. Load the system's authorities, which is slow, only for HTTPS."""
        if any(replica.url.startswith("https:") for replica in self.replicas):
            return ssl.create_default_context()
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
