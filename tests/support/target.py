"""A target: an HTTP server that jobs call. It misbehaves on request, and logs each call.

    python tests/support/target.py --port 8099 --log calls.jsonl [--host 127.0.0.1]

It has these endpoints, for any method:

    /ok?seconds=      sends status 200 and JSON {method, path (raw, with the query), headers, body,
                      size}, and so do all paths below /ok/
    /slow?seconds=5   responds as /ok, after a delay
    /status/CODE?retry_after=
                      sends status CODE, with a Retry-After header of this value
    /flaky?times=2&how=503
                      fails `times` times for each Idempotency-Key, and then responds as /ok. `how`
                      is a status, or "close" to close the connection
    /close            closes the connection without a response
    /half             announces 1,000 bytes, sends 500, and closes the connection
    /huge?bytes=&length=1
                      streams that many bytes (0, 1, … 255, 0, …). It sends Content-Length if the
                      query has `length`
    /endless          streams without end
    /garbage?where=   sends bytes that are not HTTP. With where=body only the body is invalid, and
                      with where=head the head does not end
    /redirect?to=&status=302
                      redirects to the URL `to`
    /never            accepts the connection, and does not respond
    /headers?count=&size=
                      sends `count` headers X-0, X-1 …, of `size` letters each
    /gzip?bytes=      sends zeros, compressed

Two endpoints are not logged:

    GET /calls?since=0    returns {"calls": [records from number `since` on], "open": number of
                          calls in progress}
    POST /mood {"mode": "down", "retry_after": "1"}
                          sets how all endpoints respond until the next change: "down" closes the
                          connection, "never" sends no response, a number such as "429" is a status,
                          and "ok" ends the mood

When a call has ended, in whatever way, the target appends a record to the log, as a line of JSON:

    path, method
    job, attempt        the headers Idempotency-Key and X-Waitroom-Attempt, as strings
    open                number of calls in progress when this one began, itself included
    began_ns, ended_ns  timestamps of time.monotonic_ns
    at_ms               the beginning, in ms since 1970
    status              null if no complete response was sent

`run_target` starts a target for a test.
"""

import argparse
import asyncio
import contextlib
import gzip
import itertools
import json
import os
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import web

from tests.support.processes import Process, free_port, wait_until
from tests.support.site import answers

PART = bytes(range(256)) * 256


@dataclass
class Target:
    """A running target. If a test restarts `process`, the port and the log stay the same."""

    port: int
    log: Path
    process: Process

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def calls(self) -> list[dict[str, Any]]:
        """Return the records of all calls that have ended."""
        text = self.log.read_text() if self.log.exists() else ""
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def open(self) -> int:
        """Return the number of calls in progress."""
        with urllib.request.urlopen(f"{self.url}calls?since=1000000000", timeout=5) as reply:
            return json.load(reply)["open"]

    def set_mood(self, mode: str, **more: str) -> None:
        body = json.dumps({"mode": mode, **more}).encode()
        urllib.request.urlopen(f"{self.url}mood", data=body, timeout=5).close()

    def wait(self) -> None:
        """Wait until the target responds."""
        wait_until(lambda: answers(f"{self.url}calls"), "the target's response")


@contextlib.contextmanager
def run_target(folder: Path) -> Iterator[Target]:
    """Start a target on a free port, with its log and output in `folder`."""
    port, log = free_port(), folder / "calls.jsonl"
    command = [sys.executable, __file__, "--port", str(port), "--log", str(log)]
    with Process(command, log=folder / "target.log") as process:
        target = Target(port, log, process)
        target.wait()
        yield target


class Mood:
    """How all endpoints respond, as POST /mood has set it."""

    def __init__(self) -> None:
        self.mood: dict[str, Any] = {"mode": "ok"}

    async def respond(self, request: web.Request) -> web.Response | None:
        """Respond as the mood says. Return None if the endpoint itself must respond."""
        mode = self.mood["mode"]
        if mode == "ok":
            return None
        if mode == "down":
            return await hang_up(request)
        if mode == "never":
            return await stay_silent()
        return make_refusal(int(mode), self.mood.get("retry_after"))


class CallLog:
    """The log of calls that have ended, in a file and in memory."""

    def __init__(self, log: Path) -> None:
        self._file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._lines: list[str] = []
        self.open = 0

    @contextlib.asynccontextmanager
    async def record(self, request: web.Request) -> AsyncIterator[dict[str, Any]]:
        """Yield the record of a call in progress, and log it when the call has ended."""
        self.open += 1
        record = {
            "path": request.raw_path,
            "method": request.method,
            "job": request.headers.get("Idempotency-Key"),
            "attempt": request.headers.get("X-Waitroom-Attempt"),
            "open": self.open,
            "at_ms": time.time_ns() // 1_000_000,
            "began_ns": time.monotonic_ns(),
            "status": None,
        }
        try:
            yield record
        finally:
            self.open -= 1
            record["ended_ns"] = time.monotonic_ns()
            line = json.dumps(record)
            self._lines.append(line)
            os.write(self._file, line.encode() + b"\n")

    async def show(self, request: web.Request) -> web.Response:
        since = int(request.query.get("since", "0"))
        calls = ",".join(self._lines[since:])
        return web.Response(text=f'{{"open": {self.open}, "calls": [{calls}]}}')


async def send_ok(request: web.Request) -> web.Response:
    default = "5" if request.path == "/slow" else "0"
    body = await request.read()
    seconds = float(request.query.get("seconds", default))
    if seconds:
        await asyncio.sleep(seconds)
    document = {
        "method": request.method,
        "path": request.raw_path,
        "headers": dict(request.headers),
        "body": body.decode("utf-8", "backslashreplace"),
        "size": len(body),
    }
    headers = {"Set-Cookie": "target=1; Path=/", "X-Target": "bad"}
    return web.json_response(document, headers=headers)


def make_refusal(status: int, retry_after: str | None) -> web.Response:
    headers = {} if retry_after is None else {"Retry-After": retry_after}
    return web.Response(status=status, text=f"the target's own {status}", headers=headers)


async def send_status(request: web.Request) -> web.Response:
    return make_refusal(int(request.match_info["code"]), request.query.get("retry_after"))


async def stay_silent() -> web.Response:
    """Send nothing until the client disconnects, which cancels this coroutine."""
    await asyncio.sleep(3600)
    return web.Response()


async def hang_up(request: web.Request) -> web.Response:
    assert request.transport is not None
    request.transport.close()
    return await stay_silent()


async def never_respond(_request: web.Request) -> web.Response:
    return await stay_silent()


FAILED: Counter[str] = Counter()


async def fail_at_first(request: web.Request) -> web.Response:
    job, how = request.headers.get("Idempotency-Key", ""), request.query.get("how", "503")
    if FAILED[job] >= int(request.query.get("times", "2")):
        return await send_ok(request)
    FAILED[job] += 1
    return await hang_up(request) if how == "close" else make_refusal(int(how), None)


async def send_half(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    response.content_length = 1000
    await response.prepare(request)
    await response.write(PART[:500])
    return await hang_up(request)


async def send_huge(request: web.Request) -> web.StreamResponse:
    response, size = web.StreamResponse(), int(request.query.get("bytes", "0"))
    if "length" in request.query:
        response.content_length = size
    await response.prepare(request)
    for at in range(0, size if request.method != "HEAD" else 0, len(PART)):
        await response.write(PART[: size - at])
    await response.write_eof()
    return response


async def send_endlessly(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    while True:
        await response.write(PART)


async def send_garbage(request: web.Request) -> web.Response:
    transport, where = request.transport, request.query.get("where")
    assert transport is not None
    if where == "body":
        transport.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nno size\r\n")
    elif where == "head":
        for number in itertools.count():
            transport.write(b"HTTP/1.1 200 OK\r\n" if number == 0 else b"X-%d: a\r\n" % number)
            await asyncio.sleep(0)
    else:
        transport.write(b"\x15\x03\x01\x00\x02 this is no HTTP\r\n\r\n")
    return await hang_up(request)


async def send_redirect(request: web.Request) -> web.Response:
    code = int(request.query.get("status", "302"))
    return web.Response(status=code, headers={"Location": request.query["to"]})


async def send_headers(request: web.Request) -> web.Response:
    count, size = int(request.query["count"]), int(request.query["size"])
    return web.Response(headers={f"X-{number}": "a" * size for number in range(count)})


async def send_gzip(request: web.Request) -> web.Response:
    body = gzip.compress(bytes(int(request.query["bytes"])), compresslevel=1)
    return web.Response(body=body, headers={"Content-Encoding": "gzip"})


def make_app(log: Path) -> web.Application:
    mood, calls = Mood(), CallLog(log)

    @web.middleware
    async def log_call(request: web.Request, handler: Any) -> web.StreamResponse:
        if request.path in {"/calls", "/mood"}:
            return await handler(request)
        async with calls.record(request) as record:
            response = await mood.respond(request) or await handler(request)
            record["status"] = response.status
            return response

    async def change_mood(request: web.Request) -> web.Response:
        mood.mood = await request.json()
        return web.Response()

    app = web.Application(middlewares=[log_call], client_max_size=1 << 24)
    app.add_routes([web.get("/calls", calls.show), web.post("/mood", change_mood)])
    endpoints = {
        "/ok": send_ok, "/ok/{rest:.*}": send_ok, "/slow": send_ok, "/flaky": fail_at_first,
        "/status/{code}": send_status, "/close": hang_up, "/half": send_half, "/huge": send_huge,
        "/endless": send_endlessly, "/garbage": send_garbage, "/redirect": send_redirect,
        "/never": never_respond, "/headers": send_headers, "/gzip": send_gzip,
    }  # fmt: skip
    app.add_routes([web.route("*", path, endpoint) for path, endpoint in endpoints.items()])
    return app


def main() -> None:
    import uvloop

    parser = argparse.ArgumentParser()
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--log", type=Path, required=True)
    args = parser.parse_args()
    web.run_app(
        make_app(args.log), host=args.host, port=args.port, print=None, access_log=None,
        # The record of a call needs the time at which the client disconnects.
        handler_cancellation=True, shutdown_timeout=0.1, loop=uvloop.new_event_loop(), backlog=1024,
    )  # fmt: skip


if __name__ == "__main__":
    main()
