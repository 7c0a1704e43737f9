"""Requests and replies: where to send them, and what a reply means."""

from __future__ import annotations

import json
import re
import ssl
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import quote

import httpx

from sidecar.client.errors import AwayError, RejectedError
from sidecar.kit.errors import ConfigError

_ADDRESS = re.compile(r"https?://[^\s/?#@]+/?\Z")
#: Replies that say something of the call itself; the caller reads them.
_ANSWERS = {200, 202, 409, 429}
#: The replica, or what stands before it, is away for the moment.
_AWAY = {429, 502, 503, 504}
#: What to do, where the replica speaks of HTTP or says no more.
_HINTS = {
    401: "Give the client the service_token of the replica's settings.",
    404: "The client's address is to be that of the ops listener (ops_listen).",
}


@dataclass(frozen=True, slots=True)
class Call:
    """One request. `path` is quoted already."""

    method: str
    path: str
    query: dict[str, str] = field(default_factory=dict)
    body: object = None
    #: What its answer has, each of them where it is a list.
    members: frozenset[str] = frozenset()

    @property
    def content(self) -> bytes | None:
        return None if self.body is None else json.dumps(self.body, separators=(",", ":")).encode()

    def is_answered(self, status: int, document: Any) -> bool:
        """Whether it is a replica that says so, and not something before it."""
        if status not in _ANSWERS:
            return False
        documents = [document]
        if isinstance(self.body, list):
            if not isinstance(document, list) or len(document) != len(self.body):
                return False
            documents = document
        members = set() if status == 409 else self.members
        return all(isinstance(one, dict) and members <= one.keys() for one in documents)


class Answer(NamedTuple):
    status: int
    document: Any


def _lines(errors: object) -> tuple[str, ...]:
    return tuple(map(str, errors)) if isinstance(errors, list) else ()


def path(*parts: str) -> str:
    return "/v1/" + "/".join(quote(part, safe="") for part in parts)


class Wire:
    """One replica's address, and all that is known of it."""

    def __init__(self, address: str, token: str, timeout_s: float) -> None:
        """Raises ConfigError."""
        self.address = address
        self._socket = address.removeprefix("unix:") if address.startswith("unix:") else None
        if self._socket == "" or (self._socket is None and not _ADDRESS.match(address)):
            raise ConfigError(
                [f"address: write http://host:port, https://host or unix:/path (got {address!r})"]
            )
        self._token = token
        self._timeout_s = timeout_s

    def client(self) -> httpx.Client:
        transport = httpx.HTTPTransport(verify=self._tls(), uds=self._socket, limits=_LIMITS)
        return httpx.Client(transport=transport, **self._options())

    def async_client(self) -> httpx.AsyncClient:
        transport = httpx.AsyncHTTPTransport(verify=self._tls(), uds=self._socket, limits=_LIMITS)
        return httpx.AsyncClient(transport=transport, **self._options())

    def _tls(self) -> ssl.SSLContext | bool:
        """The machine's authorities. Reading them takes a while, which plain HTTP is spared."""
        return ssl.create_default_context() if self.address.startswith("https:") else False

    def _options(self) -> dict[str, Any]:
        headers = {"Content-Type": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        return {
            "base_url": "http://localhost" if self._socket else self.address,
            "headers": headers,
            "timeout": self._timeout_s,
            # A replica is asked itself, whatever proxy is for the world outside.
            "trust_env": False,
        }

    def read(self, call: Call, status: int, content: bytes) -> Answer:
        """Raises AwayError where it is worth asking again, RejectedError where it is not."""
        try:
            document = json.loads(content)
        except ValueError:
            document = None
        if call.is_answered(status, document):
            return Answer(status, document)
        told = document if isinstance(document, dict) else {}
        detail = _HINTS.get(status) if status == 401 or "detail" not in told else told["detail"]
        title = told.get("title", "this is no service API")
        text = f"{call.method} {call.path} at {self.address}: {status}, {title}. {detail or ''}"
        if status in _AWAY:
            raise AwayError(text.strip())
        raise RejectedError(text.strip(), status=status, problems=_lines(told.get("errors")))

    def away(self, error: httpx.TransportError) -> AwayError:
        is_sent = not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
        if not is_sent:
            why = (
                f"no replica answers at {self.address} ({error or 'no connection in time'}): is it "
                "running, and is that its ops_listen?"
            )
        elif isinstance(error, httpx.TimeoutException):
            why = f"the replica at {self.address} did not answer within {self._timeout_s:g} s"
        else:
            why = f"the replica at {self.address} closed the connection ({error})"
        return AwayError(why, is_sent=is_sent)


#: A thread or a batch each has one. Idle ones are closed here before the replica does it.
_LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=100, keepalive_expiry=30)
