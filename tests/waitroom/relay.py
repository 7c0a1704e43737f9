"""A relay between a client and a replica that loses or delays responses as a test demands."""

import contextlib
import select
import socket
import threading

from tests.support.relay import Relay

AWAY = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/problem+json\r\n"
    b'Content-Length: 35\r\n\r\n{"title": "The store is not there"}'
)
BROKEN = b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 2\r\n\r\n{}"


class Faulty(Relay):
    """A faulty relay to a replica at `url`.

    It responds to the next `away` requests itself, with a 503, or to one as `respond` says. It
    loses the next `lose` responses, and closes their connections. While the event `lets_pass` is
    not set, it holds responses back, and sets the event `holds` when there is one. With `path`, it
    listens on a unix socket.
    """

    def __init__(self, url: str, *, lose: int = 0, away: int = 0, path: str = "") -> None:
        super().__init__(url.removeprefix("http://"))
        self.address = f"unix:{path}" if path else f"http://127.0.0.1:{self.port}"
        if path:
            self._listener.close()
            self._listener = socket.socket(socket.AF_UNIX)
            self._listener.bind(path)
            self._listener.listen()
        self._lose, self._away, self._response = lose, away, AWAY
        self.lets_pass, self.holds = threading.Event(), threading.Event()
        self.lets_pass.set()

    def lose(self) -> None:
        """Lose the next response."""
        with self._lock:
            self._lose += 1

    def respond(self, response: bytes) -> None:
        """Respond to the next request with this."""
        with self._lock:
            self._away, self._response = 1, response

    @property
    def asked(self) -> int:
        """The number of requests that have arrived."""
        with self._lock:
            return bytes(self._sent).count(b" HTTP/1.1\r\n")

    def _pump(self, near: socket.socket) -> None:
        with near, contextlib.suppress(OSError), socket.create_connection(self._target) as far:
            while not self._stopping.is_set():
                for source in select.select([near, far], [], [], 0.5)[0]:
                    piece = source.recv(65536)
                    if not piece or not self._pass_on(source is near, piece, near, far):
                        return

    def _pass_on(
        self, is_request: bool, piece: bytes, near: socket.socket, far: socket.socket
    ) -> bool:
        """Forward a piece of data. Return False if the connection must be closed instead."""
        with self._lock:
            if is_request:
                self._sent += piece
            if is_request and self._away:
                self._away -= 1
                near.sendall(self._response)
                return False
            if not is_request and self._lose:
                self._lose -= 1
                return False
        if is_request:
            far.sendall(piece)
            return True
        self.holds.set()
        self.lets_pass.wait(30)
        near.sendall(piece)
        return True
