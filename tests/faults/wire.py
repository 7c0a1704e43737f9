"""An HTTP/1.1 client that behaves as a browser's connection, for a thousand visitors at once."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

#: A response that takes longer counts as an error.
TIMEOUT_S = 5.0
_LIMIT = 1 << 20


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str:
        return next((value for key, value in self.headers if key == name), "")

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key == name]


class Wire:
    """A keep-alive connection that sends one request at a time.

    As browsers do, it reconnects once if the server has closed a used connection before sending
    any part of the response.
    """

    def __init__(self, url: str, timeout_s: float = TIMEOUT_S) -> None:
        parts = urlsplit(url)
        self._address = parts.hostname or "", parts.port or 80
        self.host = f"{self._address[0]}:{self._address[1]}"
        self._timeout_s = timeout_s
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def send(self, method: str, path: str, headers: Iterable[tuple[str, str]] = ()) -> Reply:
        """Send a request, and return the response. Raise OSError, TimeoutError or EOFError if there
        is no complete response."""
        lines = [f"{method} {path} HTTP/1.1", f"Host: {self.host}"]
        lines += [f"{name}: {value}" for name, value in headers]
        if method != "GET":
            lines.append("Content-Length: 0")
        return await self.exchange("\r\n".join([*lines, "", ""]).encode("latin-1"))

    async def exchange(
        self, data: bytes, *, has_body: bool = True, timeout_s: float | None = None
    ) -> Reply:
        """Send the bytes of a request, and return the first response that is not a 1xx response.
        Raise the same exceptions as `send`."""
        try:
            async with asyncio.timeout(timeout_s or self._timeout_s):
                reply = await self._exchange(data, has_body=has_body)
        except BaseException:
            self.close()
            raise
        if reply.header("connection").lower() == "close":
            self.close()
        return reply

    async def _exchange(self, data: bytes, *, has_body: bool) -> Reply:
        is_reused = self._streams is not None
        try:
            reader, head = await self._ask(data)
        except (ConnectionError, asyncio.IncompleteReadError) as error:
            if not is_reused or getattr(error, "partial", b""):
                raise
            self.close()
            reader, head = await self._ask(data)
        while True:
            reply = await _read_rest(reader, head, has_body=has_body)
            if reply.status >= 200:
                return reply
            head = await reader.readuntil(b"\r\n\r\n")

    async def _ask(self, data: bytes) -> tuple[asyncio.StreamReader, bytes]:
        if self._streams is None:
            self._streams = await asyncio.open_connection(*self._address, limit=_LIMIT)
        reader, writer = self._streams
        writer.write(data)
        return reader, await reader.readuntil(b"\r\n\r\n")

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


async def _read_rest(reader: asyncio.StreamReader, head: bytes, *, has_body: bool) -> Reply:
    first, *lines = head.decode("latin-1").split("\r\n")
    status = int(first.split(" ", 2)[1])
    headers = []
    for line in filter(None, lines):
        name, _, value = line.partition(":")
        headers.append((name.lower(), value.strip()))
    reply = Reply(status, headers, b"")
    if not has_body or status < 200 or status in {204, 304}:
        return reply
    return Reply(status, headers, await _read_body(reader, reply))


async def _read_body(reader: asyncio.StreamReader, reply: Reply) -> bytes:
    if "chunked" in reply.header("transfer-encoding").lower():
        pieces = []
        while size := int(await reader.readline(), 16):
            pieces.append(await reader.readexactly(size))
            await reader.readline()
        await reader.readline()
        return b"".join(pieces)
    length = reply.header("content-length")
    return await (reader.readexactly(int(length)) if length else reader.read())
