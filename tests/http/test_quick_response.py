"""A quick response is, byte by byte, what aiohttp would have sent, but for the order of headers."""

import asyncio
import contextlib
import re

import pytest
from aiohttp import web

from sidecar.http.quick_response import QuickResponse

HEADERS = {"Cache-Control": "no-store", "Content-Type": "application/json", "X-Name": "wért"}


async def answer(kind: type[web.Response], sent: bytes, **made: object) -> tuple[bytes, bool]:
    """All that the server writes, and whether it closes the connection then by itself."""

    async def handle(request: web.Request) -> web.Response:
        await request.read()
        response = kind(**made)
        if "X-Close" in request.headers:
            response.force_close()
        return response

    app = web.Application()
    app.router.add_route("*", "/", handle)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        reader, writer = await asyncio.open_connection(*runner.addresses[0][:2])
        writer.write(sent)
        written, is_closed = b"", False
        while not is_closed and not is_whole(written, sent.count(b" / HTTP")):
            part = await reader.read(65536)
            written, is_closed = written + part, not part
        if not is_closed:
            # A connection that is kept answers once more.
            writer.write(request())
            is_closed = True
            with contextlib.suppress(ConnectionError):
                is_closed = not await reader.read(1)
        writer.close()
        await writer.wait_closed()
    finally:
        await runner.cleanup()
    return written, is_closed


def is_whole(written: bytes, responses: int) -> bool:
    """HEAD's and 204's end with the head."""
    rest = written
    for _ in range(responses):
        head, found, rest = rest.partition(b"\r\n\r\n")
        if not found:
            return False
        length = re.search(rb"Content-Length: (\d+)", head)
        if length and rest and not rest.startswith(b"HTTP/1"):
            if len(rest) < int(length[1]):
                return False
            rest = rest[int(length[1]) :]
        elif length and int(length[1]) and not rest and b"x-head" not in head:
            return False
    return True


def parts(written: bytes) -> list[object]:
    """The lines of each head in order of name, without the time; and what is between heads."""
    found: list[object] = []
    for block in written.split(b"\r\n\r\n"):
        lines = [line for line in block.split(b"\r\n") if not line.startswith(b"Date: ")]
        dates = [line for line in block.split(b"\r\n") if line.startswith(b"Date: ")]
        assert all(re.fullmatch(rb"Date: \w{3}, \d\d \w{3} \d{4} [\d:]{8} GMT", d) for d in dates)
        found.append((lines[:1], sorted(lines[1:]), len(dates)))
    return found


def request(method: str = "GET", version: str = "1.1", more: str = "", body: str = "") -> bytes:
    length = f"Content-Length: {len(body)}\r\n" if body else ""
    return f"{method} / HTTP/{version}\r\nHost: a\r\n{length}{more}\r\n{body}".encode()


@pytest.mark.parametrize(
    "sent",
    [
        request(), request() + request() + request(), request("POST", body="a=b"),
        request(version="1.0"), request(version="1.0", more="Connection: keep-alive\r\n"),
        request(more="Connection: close\r\n"), request(more="X-Close: 1\r\n"),
    ],
    ids=["get", "three at once", "post", "1.0", "1.0 kept", "close", "forced to close"],
)  # fmt: skip
@pytest.mark.parametrize(
    "made",
    [
        {"body": b'{"a": "\xc3\xa9"}', "headers": HEADERS},
        {"status": 401, "headers": {"X-Waitroom-State": "waiting"}},
        {"status": 403, "headers": {}},
        {"status": 204, "headers": {"Set-Cookie": "a=b; Path=/"}},
        {"body": b"x" * 300_000, "headers": HEADERS},
    ],
    ids=["document", "401", "403", "204", "large"],
)
async def test_it_is_what_aiohttp_would_send(sent, made):
    """The same lines, the same body, and the connection kept or closed alike."""
    quick, is_closed = await answer(QuickResponse, sent, **made)
    plain, is_closed_too = await answer(web.Response, sent, **made)
    assert parts(quick) == parts(plain)
    assert is_closed == is_closed_too


async def test_head_has_no_body():
    """And says the length that it would have."""
    made = {"body": b"12345", "headers": {**HEADERS, "x-head": "1"}}
    quick, _ = await answer(QuickResponse, request("HEAD"), **made)
    plain, _ = await answer(web.Response, request("HEAD"), **made)
    assert parts(quick) == parts(plain)
    assert quick.endswith(b"\r\n\r\n")


@pytest.mark.parametrize("value", ["a\r\nSet-Cookie: b=c", "a\nb", "a\0", "a\x7f"])
async def test_a_header_holds_one_header(value):
    """An error, which aiohttp logs, and no second header."""
    for kind in (QuickResponse, web.Response):
        written, is_closed = await answer(kind, request(), headers={"X-Name": value})
        assert (written, is_closed) == (b"", True)
