"""The lean client of the load generator."""

import os
import socket
import threading
from types import SimpleNamespace
from unittest.mock import patch

import pytest

# Locust would patch the modules of the tests' own process.
with patch.dict(os.environ, LOCUST_SKIP_MONKEY_PATCH="1"):
    from loadtest import wire
    from loadtest.wire import LeanWire


@pytest.fixture
def server():
    """Answers one request after the other with what a test put down; with nothing, not at all."""
    listener = socket.create_server(("127.0.0.1", 0))
    answers, asked = [], []

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            for pieces in answers:
                asked.append(connection.recv(65536))
                for piece in pieces:
                    connection.sendall(piece)
            connection.recv(1)

    thread = threading.Thread(target=serve, daemon=True)
    yield SimpleNamespace(
        url=f"http://127.0.0.1:{listener.getsockname()[1]}", start=thread.start,
        answers=answers, asked=asked,
    )  # fmt: skip
    listener.close()


def lean(url):
    seen = []
    request = SimpleNamespace(fire=lambda **said: seen.append(said))
    events = SimpleNamespace(request=request)
    return LeanWire(SimpleNamespace(host=url, environment=SimpleNamespace(events=events))), seen


def send(client):
    return client.send("GET", "/", {"Accept": "text/html"}, lambda _: ("page", None))


def test_answers_in_pieces_and_chunks(server):
    """A length, chunks, none; a cookie that was given is brought back, until it is taken away."""
    server.answers += [
        [b"HTTP/1.1 200 OK\r\nSet-Cookie: a=1; Path=/\r\nContent-", b"Length: 4\r\n\r\nwh", b"le"],
        [b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nin", b"\r\n0\r\n\r\n"],
        [b"HTTP/1.1 204 No Content\r\nSet-Cookie: a=; Max-Age=0\r\n\r\n"],
        [b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"],
    ]
    server.start()
    client, seen = lean(server.url)
    replies = [send(client) for _ in server.answers]
    assert [(reply.status, reply.content) for reply in replies] == [
        (200, b"whle"), (200, b"in"), (204, b""), (503, b""),
    ]  # fmt: skip
    assert [b"Cookie: a=1" in asked for asked in server.asked] == [False, True, True, False]
    assert len(seen) == 4


def test_an_answer_that_never_comes_is_an_error(server, monkeypatch):
    monkeypatch.setattr(wire, "TIMEOUT_S", 0.3)
    monkeypatch.setattr(wire, "_TIMEOUTS", wire._Timeouts())
    server.answers.append([b""])
    server.start()
    client, _ = lean(server.url)
    reply = send(client)
    assert (reply.status, str(reply.error)) == (0, "no answer")
