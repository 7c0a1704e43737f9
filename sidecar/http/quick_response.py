"""Responses that go out in one write.

aiohttp takes a seventh of what a poll costs to prepare, write and end a response, in a dozen calls.
That of a poll or a verdict is a head and a few hundred bytes, to nginx, on a connection that stays.
"""

import re
import time
from collections.abc import Mapping
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from typing import Any

from aiohttp import HttpVersion11, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import SERVER_SOFTWARE

_FIRST_LINES = {each.value: f"HTTP/1.1 {each.value} {each.phrase}\r\n" for each in HTTPStatus}
#: Those that have no body, and say no length.
_BARE = {100, 101, 102, 103, 204, 304}
#: In a header they would begin another one.
_FORBIDDEN = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


class QuickResponse(web.Response):
    """Sent by itself where nothing is special, and by aiohttp where something is: HEAD, another
    version of HTTP, a connection that ends or is slow to read."""

    def __init__(self, *, status: int = 200, headers: Mapping[str, str], body: bytes = b"") -> None:
        """aiohttp's own, which costs as much as the whole, is left until it is needed."""
        self._made = status, headers, body

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        status, headers, body = self._made
        transport: Any = request.transport
        is_special = (
            transport is None
            or self.prepared
            or self.keep_alive is False
            or not request.keep_alive
            or request.version != HttpVersion11
            or request.method == "HEAD"
            or transport.get_write_buffer_size()
        )
        if is_special:
            super().__init__(status=status, headers=headers, body=body or None)
            return await super().prepare(request)
        transport.write(self.written())
        self._keep_alive = True
        self._eof_sent = True  # aiohttp ends it without another write
        return None

    def written(self) -> bytes:
        """All of it, as it goes out. Raises ValueError for a header that would be two."""
        return _written(*self._made)


def _written(status: int, headers: Mapping[str, str], body: bytes) -> bytes:
    lines = [f"{name}: {value}" for name, value in headers.items()]
    said = "".join(lines)
    if not said.isprintable() and _FORBIDDEN.search(said):  # the first is the quicker look
        raise ValueError("a header with a control character")
    lines.append(_end(int(time.time())))
    if status in _BARE:
        return (_FIRST_LINES[status] + "\r\n".join(lines)).encode()
    first = f"{_FIRST_LINES[status]}Content-Length: {len(body)}\r\n"
    return (first + "\r\n".join(lines)).encode() + body


@lru_cache(1)
def _end(seconds: int) -> str:
    return f"Date: {formatdate(seconds, usegmt=True)}\r\nServer: {SERVER_SOFTWARE}\r\n\r\n"
