"""A stub of a replica: a server whose responses a test sets."""

import contextlib
import socket

from tests.support.relay import Listener


def make_reply(status: int, *headers: str, body: bytes = b"") -> bytes:
    """Build the bytes of a response. `headers` are complete lines."""
    lines = [f"HTTP/1.1 {status} Stub", f"Content-Length: {len(body)}", *headers, "", ""]
    if status == 204:
        del lines[1]
    return "\r\n".join(lines).encode("latin-1") + body


class Stub(Listener):
    """A server that responds to each request with `reply`. If `reply` is empty, it closes the
    connection without a response."""

    def __init__(self) -> None:
        super().__init__()
        self.reply = make_reply(204)
        #: Responses by path, in place of `reply`.
        self.replies: dict[str, bytes] = {}
        #: Heads of the requests that arrived.
        self.asked: list[str] = []
        self.address = f"127.0.0.1:{self.port}"

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            waiting = b""
            while True:
                while b"\r\n\r\n" not in waiting:
                    piece = connection.recv(65536)
                    if not piece:
                        return
                    waiting += piece
                head, _, waiting = waiting.partition(b"\r\n\r\n")
                self.asked.append(head.decode("latin-1"))
                reply = self.replies.get(self.asked[-1].split(" ", 2)[1], self.reply)
                if not reply:
                    return
                connection.sendall(reply)
