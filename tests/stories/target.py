"""The receiver of payments and refunds: `target.py PORT` records all calls.

`POST /v1/RULE/NUMBER` is one call. `GET /v1/` returns all calls in the order in which they came:
[path, time (ms since 1970)].
"""

import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    seen: ClassVar[list[tuple[str, float]]] = []

    def do_POST(self) -> None:
        self.seen.append((self.path, 1000 * time.time()))
        self.answer({})

    def do_GET(self) -> None:
        self.answer(self.seen)

    def answer(self, document: object) -> None:
        body = json.dumps(document).encode()
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))

    def log_message(self, *_: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1024


if __name__ == "__main__":
    Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
