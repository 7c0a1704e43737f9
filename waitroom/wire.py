"""Requests and responses: their addresses, and how to read a response."""

import json
import re
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import quote

import httpx

from waitroom.errors import ConfigError, Problem, RejectedError, UnavailableError

_ADDRESS = re.compile(r"https?://[^\s/?#@]+/?\Z")
#: The statuses of a replica, or a proxy before it, that is unavailable for now.
_UNAVAILABLE = {429, 502, 503, 504}
#: Hints by status, if the response has none.
_HINTS = {
    401: "Give the client the service_token of the replica's settings.",
    404: "The client's address is to be that of the ops listener (ops_listen).",
}
Document = dict[str, Any]
#: Each thread or batch has a connection. Idle ones are closed here before the replica closes them.
_LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=100, keepalive_expiry=30)


@dataclass(frozen=True, slots=True)
class Request:
    """One request. `path` is percent-encoded."""

    method: str
    path: str
    query: dict[str, str] = field(default_factory=dict)
    body: object = None
    #: The members that its document must have; of a list, each document.
    members: frozenset[str] = frozenset()
    #: Statuses beside 2xx that are no errors.
    statuses: frozenset[int] = frozenset()
    #: It may be sent again when it may have arrived.
    is_repeatable: bool = True
    #: How long the replica may hold the response, beyond the timeout, seconds.
    wait_s: float = 0
    #: The response is left open, to read its body in pieces.
    is_streamed: bool = False

    @property
    def content(self) -> bytes | None:
        return None if self.body is None else json.dumps(self.body, separators=(",", ":")).encode()

    def is_answered(self, status: int, document: Any) -> bool:
        """Return whether a response is an answer of a replica, and not of a proxy before it."""
        if not 200 <= status < 300 and status not in self.statuses:
            return False
        documents = [document]
        if isinstance(self.body, list):
            if not isinstance(document, list) or len(document) != len(self.body):
                return False
            documents = document
        members = set() if status == 409 else self.members
        return all(isinstance(one, dict) and members <= one.keys() for one in documents)


@dataclass(frozen=True, slots=True)
class LimitCall:
    """One call of a limit, which may share a request with others."""

    rule: str
    call: Document
    #: Tells the replica that a repeated call is the same one; empty: do not repeat it.
    name: str = ""
    #: The name was made here, so that nobody else knows of its permit.
    is_own: bool = True

    @property
    def is_repeatable(self) -> bool:
        return bool(self.name)

    @property
    def body(self) -> Document:
        return {**self.call, "id": self.name} if self.name else self.call


class Response(NamedTuple):
    status: int
    document: Any


class OpenResponse(NamedTuple):
    """A response whose body is not read yet."""

    replica: "Replica"
    response: Any


def path(*parts: str, root: str = "/v1") -> str:
    return "/".join([root, *(quote(part, safe="") for part in parts)])


class Replica:
    """One replica's address. The `url` of a unix socket is only a name. Raises ConfigError."""

    def __init__(self, address: str, number: int) -> None:
        self.address = address
        self.socket = address.removeprefix("unix:") if address.startswith("unix:") else None
        if self.socket == "" or (self.socket is None and not _ADDRESS.match(address)):
            raise ConfigError(
                [f"address: write http://host:port, https://host or unix:/path (got {address!r})"]
            )
        self.url = address.rstrip("/") if self.socket is None else f"http://socket-{number}"

    def read(self, call: Request, response: httpx.Response) -> Response | OpenResponse:
        """Read a response. Raises UnavailableError if another try may succeed, or RejectedError."""
        if call.is_streamed and response.is_success:
            return OpenResponse(self, response)
        status = response.status_code
        try:
            document = json.loads(response.content)
        except ValueError:
            document = None
        if call.is_answered(status, document):
            return Response(status, document)
        problem = Problem.read(status, document)
        hint = _HINTS.get(status, "")
        detail = hint if status == 401 else problem.detail or hint
        title = problem.title or "this is no service API"
        text = f"{call.method} {call.path} at {self.address}: {status}, {title}. {detail}".strip()
        if status in _UNAVAILABLE:
            raise UnavailableError(text, problem=problem)
        raise RejectedError(text, problem)

    def unavailable(self, error: httpx.TransportError) -> UnavailableError:
        is_sent = not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
        if not is_sent:
            reason = re.sub(r"\[.*\] ", "", str(error)).lower() or "no connection in time"
            why = (
                f"no replica answers at {self.address}: {reason}; is it running, and is that its "
                "ops_listen?"
            )
        elif isinstance(error, httpx.TimeoutException):
            allowed_s = error.request.extensions["timeout"]["read"]
            why = f"the replica at {self.address} did not answer within {allowed_s:g} s"
        else:
            why = f"the replica at {self.address} closed the connection ({error})"
        return UnavailableError(why, is_sent=is_sent)


class Wire:
    """The replicas, and the parts that all requests to them share. Raises ConfigError."""

    def __init__(
        self, addresses: str | Sequence[str], *, token: str, operator: str, timeout_s: float
    ) -> None:
        listed = [addresses] if isinstance(addresses, str) else addresses
        self.replicas = [Replica(address, number) for number, address in enumerate(listed)]
        if not self.replicas:
            raise ConfigError(["address: none is given"])
        self._timeout_s = timeout_s
        self._headers = httpx.Headers({"Content-Type": "application/json"}, encoding="utf-8")
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        if operator:
            self._headers["X-Waitroom-Operator"] = operator

    def options(
        self, transport: type[httpx.HTTPTransport | httpx.AsyncHTTPTransport]
    ) -> dict[str, Any]:
        """Return the arguments of an httpx client."""
        return {
            "transport": transport(verify=self._tls(), limits=_LIMITS),
            "mounts": {
                f"all://{replica.url.removeprefix('http://')}": transport(
                    uds=replica.socket, limits=_LIMITS, verify=False
                )
                for replica in self.replicas
                if replica.socket is not None
            },
            "headers": self._headers,
            "trust_env": False,  # a proxy in the environment is for the outside world
        }

    def request(self, call: Request, replica: Replica) -> dict[str, Any]:
        """Return the arguments of an httpx request."""
        return {
            "method": call.method,
            "url": replica.url + call.path,
            "params": call.query or None,
            "content": call.content,
            "timeout": httpx.Timeout(self._timeout_s, read=self._timeout_s + call.wait_s),
        }

    def _tls(self) -> ssl.SSLContext | bool:
        """Load the machine's certificate authorities, which takes a while, only for HTTPS."""
        is_used = any(replica.url.startswith("https:") for replica in self.replicas)
        return ssl.create_default_context() if is_used else False
