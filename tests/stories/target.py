"""A server that receives payments and records them: `target.py PORT`.

`POST /v1/RULE/NUMBER` is a payment. `GET /v1/` returns all payments in the order in which they
came, each as [path, time in ms since 1970].
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
        self.respond({})

    def do_GET(self) -> None:
        self.respond(self.seen)

    def respond(self, document: object) -> None:
        body = json.dumps(document).encode()
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))

    def log_message(self, *_: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1024


if __name__ == "__main__":
    Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
