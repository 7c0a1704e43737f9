"""A stand-in for a replica, with the responses that a test sets."""

import contextlib
import socket
import threading
from contextlib import AbstractContextManager


def answer(status: int, *headers: str, body: bytes = b"") -> bytes:
    """Return a response's bytes."""
    lines = [f"HTTP/1.1 {status} Stub", f"Content-Length: {len(body)}", *headers, "", ""]
    if status == 204:
        del lines[1]
    return "\r\n".join(lines).encode("latin-1") + body


class Stub(AbstractContextManager["Stub"]):
    """Sends `reply` for each request; if it is empty, closes the connection."""

    def __init__(self) -> None:
        self.reply = answer(204)
        #: Responses for single paths.
        self.replies: dict[str, bytes] = {}
        self.asked: list[str] = []
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> "Stub":
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

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
