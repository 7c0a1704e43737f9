"""An HTTP server on loopback whose responses come from a function of the test."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple


class Received(NamedTuple):
    """A request that the server has received."""

    path: str
    headers: dict[str, str]
    body: bytes


#: Status, body and further headers.
Response = tuple[int, bytes, dict[str, str]]


@contextlib.contextmanager
def serve(respond: Callable[[Received], Response]) -> Iterator[str]:
    """Run a server that gives each request the response that `respond` returns. Yield its URL,
    without a slash at the end."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"] or 0))
            status, text, headers = respond(Received(self.path, dict(self.headers), body))
            self.send_response(status)
            for name, value in {"Content-Length": str(len(text)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(text)

        do_POST = do_DELETE = do_GET  # noqa: N815 - names of http.server

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
