"""Responses that go out in one write.

aiohttp prepares, writes and ends a response in a dozen calls: a seventh of the cost of a poll.
"""

import re
import time
from collections.abc import Mapping
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from typing import Any, ClassVar

from aiohttp import HttpVersion11, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import SERVER_SOFTWARE

_FIRST_LINES = {each.value: f"HTTP/1.1 {each.value} {each.phrase}\r\n" for each in HTTPStatus}
#: Statuses without a body and without a Content-Length.
_BARE = {100, 101, 102, 103, 204, 304}
#: Control characters, which could begin another header.
_FORBIDDEN = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


class QuickResponse(web.Response):
    """A response that writes itself. aiohttp sends it for HEAD, for another version of HTTP, and on
    a connection that ends or is slow to read."""

    #: False: aiohttp lacks the parts that a direct write needs (PARTS in fast_path.py).
    is_direct: ClassVar[bool] = True

    def __init__(self, *, status: int = 200, headers: Mapping[str, str], body: bytes = b"") -> None:
        """Keep the parts. aiohttp's constructor, which costs as much as the rest, runs later."""
        self._made = status, headers, body

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        status, headers, body = self._made
        transport: Any = request.transport
        is_special = (
            not self.is_direct
            or transport is None
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
        self._eof_sent = True  # aiohttp ends the response without another write
        return None

    def written(self) -> bytes:
        """Return the whole response as bytes. Raises ValueError for a header with a line break."""
        return _written(*self._made)


def _written(status: int, headers: Mapping[str, str], body: bytes) -> bytes:
    lines = [f"{name}: {value}" for name, value in headers.items()]
    text = "".join(lines)
    if not text.isprintable() and _FORBIDDEN.search(text):  # the first check is the faster one
        raise ValueError("a header with a control character")
    lines.append(_head_end(int(time.time())))
    if status in _BARE:
        return (_FIRST_LINES[status] + "\r\n".join(lines)).encode()
    first = f"{_FIRST_LINES[status]}Content-Length: {len(body)}\r\n"
    return (first + "\r\n".join(lines)).encode() + body


@lru_cache(1)
def _head_end(seconds: int) -> str:
    return f"Date: {formatdate(seconds, usegmt=True)}\r\nServer: {SERVER_SOFTWARE}\r\n\r\n"
