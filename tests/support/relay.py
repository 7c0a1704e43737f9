"""A relay between nginx and a replica, which counts connections and records requests."""

import contextlib
import select
import socket
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any, Self


class Listener(AbstractContextManager[Any]):
    """A server on a free port. A subclass handles each connection in a thread, in `_serve`."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.port: int = self._listener.getsockname()[1]
        self._stopping = threading.Event()

    def _serve(self, near: socket.socket) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(near,), daemon=True).start()


class Relay(Listener):
    """A relay that forwards connections to `target`, which is HOST:PORT."""

    def __init__(self, target: str) -> None:
        super().__init__()
        host, port = target.rsplit(":", 1)
        self._target = (host, int(port))
        self._lock = threading.Lock()
        self.connections = 0
        self._sent = bytearray()

    def forget(self) -> None:
        """Forget all requests and connections so far."""
        with self._lock:
            self.connections = 0
            self._sent.clear()

    @property
    def requests(self) -> list[dict[str, str]]:
        """Return the headers of each request by lower-case name, with the request line as "".

        This works only for requests without bodies.
        """
        with self._lock:
            heads = bytes(self._sent).decode("latin-1").split("\r\n\r\n")[:-1]
        return [dict(_read_fields(head)) for head in heads]

    def checks(self) -> list[dict[str, str]]:
        """Return the requests for /check, with which nginx asks for verdicts."""
        return [fields for fields in self.requests if fields[""].startswith("GET /check ")]

    def _serve(self, near: socket.socket) -> None:
        with self._lock:
            self.connections += 1
        self._pump(near)

    def _pump(self, near: socket.socket) -> None:
        with near, contextlib.suppress(OSError), socket.create_connection(self._target) as far:
            while not self._stopping.is_set():
                for source in select.select([near, far], [], [], 0.5)[0]:
                    piece = source.recv(65536)
                    if not piece:
                        return
                    if source is near:
                        with self._lock:
                            self._sent += piece
                        far.sendall(piece)
                    else:
                        near.sendall(piece)


def _read_fields(head: str) -> Iterator[tuple[str, str]]:
    first, *lines = head.split("\r\n")
    yield "", first
    for line in lines:
        name, _, value = line.partition(":")
        yield name.lower(), value.strip()
