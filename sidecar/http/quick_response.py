"""A response that is sent with one write.

aiohttp makes a dozen calls to prepare, write and end a response. These calls take a seventh of the
time that it takes to answer a poll.
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

_STATUS_LINES = {s.value: f"HTTP/1.1 {s.value} {s.phrase}\r\n" for s in HTTPStatus}
#: Statuses without a body and without a Content-Length.
_WITHOUT_BODY = {100, 101, 102, 103, 204, 304}
#: Control characters. In the value of a header, a line break would begin another header.
_FORBIDDEN_CHARACTERS = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


class QuickResponse(web.Response):
    """A response that is written to the connection directly. For HEAD, for versions of HTTP other
    than 1.1, and if the connection is closing or the client reads slowly, aiohttp writes it."""

    #: False if aiohttp lacks the parts that a direct write needs (PARTS in fast_path.py).
    is_direct: ClassVar[bool] = True

    def __init__(self, *, status: int = 200, headers: Mapping[str, str], body: bytes = b"") -> None:
        """Store the parts. aiohttp's constructor is slow, so `prepare` calls it only if needed."""
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
        status, headers, body = self._parts
        lines = [f"{name}: {value}" for name, value in headers.items()]
        text = "".join(lines)
        # isprintable is faster, and enough for most headers.
        if not text.isprintable() and _FORBIDDEN_CHARACTERS.search(text):
            raise ValueError("a header with a control character")
        lines.append(_last_lines(int(time.time())))
        if status in _WITHOUT_BODY:
            return (_STATUS_LINES[status] + "\r\n".join(lines)).encode()
        first = f"{_STATUS_LINES[status]}Content-Length: {len(body)}\r\n"
        return (first + "\r\n".join(lines)).encode() + body


@lru_cache(1)
def _last_lines(seconds: int) -> str:
    return f"Date: {formatdate(seconds, usegmt=True)}\r\nServer: {SERVER_SOFTWARE}\r\n\r\n"
