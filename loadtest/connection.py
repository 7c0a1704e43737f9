"""A client with little cost of its own: it sends prepared requests to a replica, and parses almost
nothing of the responses."""

import asyncio
import json
import re
from urllib.parse import urlsplit

from tests.support.service import TOKEN


class Connection:
    """Keep-alive connection to a replica."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(cls, url: str) -> "Connection":
        host, _, port = urlsplit(url).netloc.partition(":")
        return cls(*await asyncio.open_connection(host, int(port), limit=2**20))

    async def ask(self, request: bytes) -> bytes:
        """Send a request and return the body of the response. Raises RuntimeError if the status is
        not 20x."""
        self._writer.write(request)
        head = await self._reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: (\d+)", head)
        body = await self._reader.readexactly(int(length[1]) if length else 0)
        if not head.startswith(b"HTTP/1.1 20"):
            raise RuntimeError(f"the replica responded {head[:40]!r} {body[:400]!r}")
        return body

    def close(self) -> None:
        self._writer.close()


def prepare(method: str, path: str, body: object = None) -> bytes:
    """Return the bytes of a request to the service API."""
    content = b"" if body is None else json.dumps(body).encode()
    head = (
        f"{method} /v1/{path} HTTP/1.1\r\nHost: replica\r\nAuthorization: Bearer {TOKEN}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content
