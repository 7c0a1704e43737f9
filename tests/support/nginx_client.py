"""An HTTP client that keeps cookies, opens a connection per request, and can send invalid HTTP."""

import json
import re
import socket
from dataclasses import dataclass, field
from http.client import HTTPMessage, HTTPResponse
from typing import Any

HTML = "text/html,application/xhtml+xml,*/*;q=0.8"
JSON = "application/json"


@dataclass(frozen=True)
class Reply:
    status: int
    headers: HTTPMessage
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    def json(self) -> Any:
        return json.loads(self.body)

    def all(self, name: str) -> list[str]:
        """Return the values of all headers with this name."""
        return self.headers.get_all(name) or []

    @property
    def waits(self) -> bool:
        """Return True if this is the waiting page."""
        return b"data-room=" in self.body

    def data(self, name: str) -> str:
        """Return the value of a data attribute of the waiting page."""
        found = re.search(rf'data-{name}="([^"]*)"', self.text)
        assert found, f"no data-{name}"
        return found[1]


@dataclass
class Visitor:
    """A visitor who sends `headers` with every request. If a value is None, the header is not sent,
    even if the client would set it."""

    url: str
    headers: dict[str, str | None] = field(default_factory=dict)
    cookies: dict[str, str] = field(default_factory=dict)

    def get(self, path: str | bytes = "/", **options: Any) -> Reply:
        return self.send("GET", path, **options)

    def post(self, path: str | bytes = "/", body: bytes = b"", **options: Any) -> Reply:
        return self.send("POST", path, body=body, **options)

    def hold(self, path: str) -> None:
        """Take a free slot, and send the cookie back with a second request. Otherwise the session
        would end after claim_window, too soon for a browser that starts on a busy machine."""
        for _ in range(2):
            reply = self.get(path)
            assert (reply.status, reply.waits) == (200, False)

    def send(
        self,
        method: str,
        path: str | bytes,
        *,
        headers: dict[str, str | None] | None = None,
        body: bytes | None = None,
        chunked: bool = False,
        version: str = "HTTP/1.1",
    ) -> Reply:
        host, port = self.url.removeprefix("http://").split(":")
        lines: dict[str, str | None] = {
            "Host": f"{host}:{port}",
            "Connection": "close",
            "Accept": HTML,
            "Cookie": "; ".join(f"{k}={v}" for k, v in self.cookies.items()) or None,
            **self.headers,
            **(headers or {}),
        }
        if chunked:
            lines["Transfer-Encoding"] = "chunked"
            body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body or b""), body)
        elif body is not None:
            lines["Content-Length"] = str(len(body))
        target = path.encode() if isinstance(path, str) else path
        head = b"%b %b %b\r\n" % (method.encode(), target, version.encode())
        head += b"".join(
            f"{name}: {value}\r\n".encode("latin-1")
            for name, value in lines.items()
            if value is not None
        )
        with socket.create_connection((host, int(port)), timeout=20) as connection:
            connection.sendall(head + b"\r\n" + (body or b""))
            return self._read(connection, method)

    def _read(self, connection: socket.socket, method: str) -> Reply:
        response = HTTPResponse(connection, method=method)
        try:
            response.begin()
            reply = Reply(response.status, response.headers, response.read())
        finally:
            response.close()
        for line in reply.all("Set-Cookie"):
            name, _, rest = line.partition("=")
            self.cookies[name] = rest.partition(";")[0]
        return reply


def room_cookies(reply: Reply, room: str) -> list[str]:
    """Return the values of the Set-Cookie headers that set a room's cookie."""
    return [line for line in reply.all("Set-Cookie") if line.startswith(f"waitroom_{room}=")]
