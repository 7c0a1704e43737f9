"""Responses that are sent with one write.

aiohttp makes a dozen calls to prepare, write and end a response: a seventh of the cost of a poll.
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
_WITHOUT_BODY = {100, 101, 102, 103, 204, 304}
#: Control characters, with which a value could begin another header.
_FORBIDDEN = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


class QuickResponse(web.Response):
    """A response that writes itself to the connection. It leaves that to aiohttp for HEAD, for
    another version of HTTP, and on a connection that is closing or whose client reads slowly."""

    #: False if aiohttp lacks the parts that a direct write needs (PARTS in fast_path.py).
    is_direct: ClassVar[bool] = True

    def __init__(self, *, status: int = 200, headers: Mapping[str, str], body: bytes = b"") -> None:
        """Keep the parts. aiohttp's constructor is slow, so `prepare` calls it only if needed."""
        self._parts = status, headers, body

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        status, headers, body = self._parts
        transport: Any = request.transport
        needs_aiohttp = (
            not self.is_direct
            or transport is None
            or self.prepared
            or self.keep_alive is False
            or not request.keep_alive
            or request.version != HttpVersion11
            or request.method == "HEAD"
            or transport.get_write_buffer_size()
        )
        if needs_aiohttp:
            super().__init__(status=status, headers=headers, body=body or None)
            return await super().prepare(request)
        transport.write(self.to_bytes())
        self._keep_alive = True
        self._eof_sent = True  # aiohttp ends the response without another write
        return None

    def to_bytes(self) -> bytes:
        """Return the response as bytes. Raises ValueError for a header with a control character."""
        return _to_bytes(*self._parts)


def _to_bytes(status: int, headers: Mapping[str, str], body: bytes) -> bytes:
    lines = [f"{name}: {value}" for name, value in headers.items()]
    text = "".join(lines)
    if not text.isprintable() and _FORBIDDEN.search(text):  # the first check is the faster one
        raise ValueError("a header with a control character")
    lines.append(_head_end(int(time.time())))
    if status in _WITHOUT_BODY:
        return (_FIRST_LINES[status] + "\r\n".join(lines)).encode()
    first = f"{_FIRST_LINES[status]}Content-Length: {len(body)}\r\n"
    return (first + "\r\n".join(lines)).encode() + body


@lru_cache(1)
def _head_end(seconds: int) -> str:
    return f"Date: {formatdate(seconds, usegmt=True)}\r\nServer: {SERVER_SOFTWARE}\r\n\r\n"
