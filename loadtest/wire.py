"""The HTTP clients of users: that of FastHttpUser, and a lean client for machines that run all.

On one core of a small machine Locust's own client sends some 4,000 requests a second, a plain
socket eight times as many. The lean client understands what nginx on loopback sends: HTTP/1.1, a
length or chunks, no TLS, no compression. A request is one write; gevent's loop waits for the
response, not gevent's sockets.
"""

import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias
from urllib.parse import urlsplit
from weakref import WeakSet

import gevent
from locust import FastHttpUser

TIMEOUT_S = 30.0


@dataclass(slots=True)
class Reply:
    """A response; status 0 with `error` if there was none. Times are this machine's, ms."""

    status: int
    head: Any = None
    content: bytes = b""
    error: Exception | None = None
    sent: float = 0.0
    received: float = 0.0
    #: `head` in lower case, once a header was read.
    folded: bytes = b""

    def header(self, name: str) -> str:
        if self.head is None:
            return ""
        if not isinstance(self.head, bytes):
            return str(self.head.get(name) or "")
        if not self.folded:
            self.folded = self.head.lower()
        at = self.folded.find(f"\r\n{name.lower()}:".encode())
        if at < 0:
            return ""
        start = at + len(name) + 3
        return self.head[start : self.head.index(b"\r\n", start)].strip().decode("latin-1")


#: Returns the name under which a reply counts, and a description of the problem, if any.
Judge: TypeAlias = Callable[[Reply], tuple[str, str | None]]


class FastWire:
    """The client of Locust's FastHttpUser, with TLS and compression."""

    def __init__(self, user: FastHttpUser) -> None:
        self._client = user.client

    def send(self, method: str, path: str, headers: dict[str, str], judge: Judge) -> Reply:
        sent = time.time() * 1000
        with self._client.request(
            method, path, headers=headers, catch_response=True, allow_redirects=False
        ) as answer:
            status = answer.status_code or 0
            reply = Reply(status, answer.headers, answer.content or b"", None, sent)
            reply.received = time.time() * 1000
            if not status:
                reply.error = answer.error
            name, complaint = judge(reply)
            answer.request_meta["name"] = name
            if complaint:
                answer.failure(complaint)
            else:
                answer.success()
        return reply

    def forget(self, *, keep_connection: bool = False) -> None:  # noqa: ARG002 - it keeps it
        """Delete all cookies, so that the next request is that of a new visitor."""
        self._client.cookiejar.clear()


class LeanWire:
    """A lean client: a keep-alive connection and a dictionary of cookies."""

    def __init__(self, user: FastHttpUser) -> None:
        url = urlsplit(user.host or "")
        if url.scheme != "http":
            raise ValueError("the lean client speaks http only; use --waitroom-client fast")
        self._address = (url.hostname or "", url.port or 80)
        self._host = url.netloc
        self._fire = user.environment.events.request.fire
        self._socket: socket.socket | None = None
        self._readable: Any = None
        self._began = 0.0
        self._cookies: dict[str, str] = {}
        _lean_wires.add(self)
        _watch_timeouts()

    def send(self, method: str, path: str, headers: dict[str, str], judge: Judge) -> Reply:
        lines = [f"{method} {path} HTTP/1.1\r\nHost: {self._host}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if self._cookies:
            lines.append("Cookie: " + "; ".join(f"{n}={v}" for n, v in self._cookies.items()))
        if method == "POST":
            lines.append("Content-Length: 0")
        request = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
        began, sent = time.perf_counter(), time.time() * 1000
        try:
            reply = self._exchange(request)
        except (OSError, ValueError) as error:
            self.close()
            reply = Reply(0, error=error)
        took = (time.perf_counter() - began) * 1000
        reply.sent, reply.received = sent, sent + took
        if reply.head is not None:
            self._take_cookies(reply.head)
        name, complaint = judge(reply)
        self._fire(
            request_type=method, name=name, response_time=took,
            response_length=len(reply.content), context={},
            exception=RuntimeError(complaint) if complaint else None,
        )  # fmt: skip
        return reply

    def forget(self, *, keep_connection: bool = False) -> None:
        """Delete all cookies, as FastWire does."""
        self._cookies.clear()
        if not keep_connection:
            self.close()

    def close(self) -> None:
        self._began = 0.0
        if self._socket is not None:
            self._readable.close()
            self._socket.close()
            self._socket = None

    def give_up(self, now: float) -> None:
        """End the request if it has waited too long."""
        if self._began and now - self._began > TIMEOUT_S:
            gevent.get_hub().cancel_wait(self._readable, TimeoutError("no answer"))

    def _exchange(self, request: bytes) -> Reply:
        if self._socket is None:
            self._socket = socket.create_connection(self._address, TIMEOUT_S)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._readable = gevent.get_hub().loop.io(self._socket.fileno(), _READ)
        self._began = time.monotonic()
        if os.write(self._socket.fileno(), request) < len(request):
            raise ValueError("the request does not fit into the connection's buffer")
        data = b""
        while (end := data.find(b"\r\n\r\n")) < 0:
            data += self._receive()
        reply = Reply(int(data[9:12]), data[: end + 2])
        body = data[end + 4 :]
        if reply.header("Transfer-Encoding") == "chunked":
            while not body.endswith(b"0\r\n\r\n"):
                body += self._receive()
            body = _join_chunks(body)
        elif reply.status not in {204, 304}:
            length = int(reply.header("Content-Length") or 0)
            while len(body) < length:
                body += self._receive()
        if reply.header("Connection").lower() == "close":
            self.close()
        reply.content = body
        self._began = 0.0
        return reply

    def _receive(self) -> bytes:
        assert self._socket is not None
        gevent.get_hub().wait(self._readable)
        data = os.read(self._socket.fileno(), 65536)
        if not data:
            raise ConnectionResetError("the connection was closed before the answer was whole")
        return data

    def _take_cookies(self, head: bytes) -> None:
        if b"set-cookie" not in head.lower():
            return
        for line in head.decode("latin-1").split("\r\n")[1:]:
            field, _, value = line.partition(":")
            if field.lower() == "set-cookie":
                pair, _, attributes = value.partition(";")
                name, _, text = pair.strip().partition("=")
                if "max-age=0" in attributes.lower().replace(" ", ""):
                    self._cookies.pop(name, None)
                else:
                    self._cookies[name] = text


_READ = 1  # in gevent's loop
_lean_wires: "WeakSet[LeanWire]" = WeakSet()


@cache
def _watch_timeouts() -> None:
    """Start a periodic check of all requests in this process. A timer for each request would cost a
    twentieth of the process' time."""
    gevent.spawn(_check_timeouts)


def _check_timeouts() -> None:
    while True:
        gevent.sleep(TIMEOUT_S / 6)
        now = time.monotonic()
        for wire in list(_lean_wires):
            wire.give_up(now)


def _join_chunks(body: bytes) -> bytes:
    joined = b""
    while body:
        size, _, rest = body.partition(b"\r\n")
        length = int(size, 16)
        joined += rest[:length]
        body = rest[length + 2 :] if length else b""
    return joined
