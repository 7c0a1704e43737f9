"""The fast path and quick responses answer as aiohttp would, byte by byte, and their connections
begin and end as aiohttp's do."""

import asyncio
import inspect
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import groupby, pairwise
from types import ModuleType, NoneType

import pytest
import uvloop
from aiohttp import web, web_protocol
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from sidecar.http.fast_path import FAST, PARTS, FastRequest, FastRunner
from sidecar.http.problem_kinds import SCOPE_MISSING
from sidecar.http.problems import ProblemError, problem, problems
from sidecar.http.quick_response import QuickResponse
from sidecar.kit.errors import StoreError, UnknownNameError

#: The last request: after its answer the server closes.
END = b"GET /end HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
#: After how many silent seconds a server waits for more of a request, and after how many seconds a
#: test has failed. A server that answers takes milliseconds.
QUIET_S, HUNG_S = 0.5, 20
READ = 1_000_000
HEADER = re.compile(rb"[A-Za-z-]{1,40}: ")
DATE = re.compile(rb"Date: \w{3}, \d\d \w{3} \d{4} [\d:]{8} GMT")
TRIES = 5


async def echo(request: web.Request) -> web.Response:
    """Respond with all that a handler can see of a request."""
    await asyncio.sleep(0)
    seen = {
        "method": request.method,
        "target": [request.raw_path, request.path, str(request.rel_url)],
        "headers": list(request.headers.items()),
        "cookie": request.headers.get("cookie"),
        "query": list(request.query.items()),
        "has_body": request.can_read_body,
        "body": (await request.read()).decode("latin-1"),
        "content_type": request.content_type,
        "version": list(request.version),
        "is_there": request.transport is not None,
    }
    headers = {"Content-Type": "application/json", "Set-Cookie": "a=b"}
    return QuickResponse(headers=headers, body=json.dumps(seen).encode())


def raises(error: Callable[..., BaseException], *args: object):
    async def handler(_request: web.Request) -> web.Response:
        raise error(*args)

    return handler


async def late(_request: web.Request) -> web.Response:
    for _ in range(5):
        await asyncio.sleep(0)
    return QuickResponse(status=204, headers={"X-Late": "1"})


async def plain(_request: web.Request) -> web.Response:
    return web.Response(text="wért", headers={"X-Plain": "1"})


async def large(_request: web.Request) -> web.Response:
    return QuickResponse(headers={}, body=b"x" * 12_000_000)


async def garbled(_request: web.Request) -> web.Response:
    return QuickResponse(headers={"X-Name": "a\r\nSet-Cookie: b=c"})


async def refused(_request: web.Request) -> web.Response:
    return problem(429, "Too many", retry_after=3)


class Held:
    """A handler that waits until it is told to go on."""

    def __init__(self) -> None:
        self.came, self.go = asyncio.Event(), asyncio.Event()
        self.is_done = self.is_over = False

    async def __call__(self, _request: web.Request) -> web.Response:
        self.came.set()
        try:
            await self.go.wait()
            self.is_done = True
        finally:
            self.is_over = True
        return QuickResponse(headers={}, body=b"done")


HANDLERS = {
    "/echo": echo,
    "/late": late,
    "/plain": plain,
    "/large": large,
    "/garbled": garbled,
    "/refused": refused,
    "/unknown": raises(UnknownNameError, "room", "no"),
    "/away": raises(StoreError, "beat: the store is away"),
    "/denied": raises(ProblemError, SCOPE_MISSING),
    "/gone": raises(web.HTTPGone),
    "/moved": raises(web.HTTPFound, "/echo"),
    "/broken": raises(ZeroDivisionError),
    "/cancelled": raises(asyncio.CancelledError),
}


def make_app(seen: list[bool] | None = None, held: Held | None = None) -> web.Application:
    """Create an application with HANDLERS, and `held` at /held. For each request, it adds to `seen`
    whether the request took the fast path."""

    @web.middleware
    async def note(request, handler):
        if seen is not None:
            seen.append(False)
        return await handler(request)

    def noted(handler):
        async def handle(request):
            if seen is not None and isinstance(request, FastRequest):
                seen.append(True)
            return await handler(request)

        return handle

    app = web.Application(middlewares=[note, problems])
    app[FAST] = {}
    for path, handler in (HANDLERS | ({"/held": held} if held else {})).items():
        asked = noted(handler)
        app.add_routes([web.get(path, asked), web.post(path, asked)])
        app[FAST] |= {("GET", path): asked, ("POST", path): asked}
    app.router.add_route("*", "/end", echo)
    app.router.add_route("*", "/slow-path", echo)
    return app


@asynccontextmanager
async def served(kind: type[web.AppRunner], app: web.Application, **options) -> AsyncIterator:
    """Serve an application. Yield the runner and its address."""
    runner = kind(app, access_log=None, **options)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield runner, runner.addresses[0][:2]
    finally:
        await runner.cleanup()


async def answers(address: tuple[str, int], sent: list[bytes]) -> list[bytes]:
    """Send the parts, and END, after which the server closes the connection. Return the lines of
    all responses. The last is "(open)" if the server waits for the rest of a request."""
    reader, writer = await asyncio.open_connection(*address, limit=READ)
    written = b""
    try:
        for part in [*sent, END]:
            writer.write(part)
            for _ in range(20):
                await asyncio.sleep(0)
        while part := await asyncio.wait_for(reader.read(READ), QUIET_S):
            written += part
    except TimeoutError:
        written += b"(open)"
    except (ConnectionError, RuntimeError):  # closed with something unread; uvloop's word for it
        written += b"(reset)"
    finally:
        writer.close()
    lines = DATE.sub(b"Date: -", written).split(b"\r\n")
    # The headers of a response stand in another order where its client is slow to read.
    runs = groupby(lines, key=lambda line: HEADER.match(line) is not None)
    return [line for is_head, run in runs for line in (sorted(run) if is_head else run)]


async def compare(sent: list[bytes]) -> list[bool]:
    """Compare a FastRunner with aiohttp. Return of each request whether it took the fast path."""
    seen: list[bool] = []
    await compare_apps(FastRunner, make_app(seen), make_app(), sent, seen)
    return seen


async def compare_apps(kind, ours, theirs, sent: list[bytes], seen: list[bool]) -> None:
    """Assert that our application, run by `kind`, answers as theirs, run by aiohttp."""
    async with served(kind, ours) as (_, fast), served(web.AppRunner, theirs) as (_, slow):
        # What was written before a connection is reset may come or not.
        for _ in range(TRIES):
            seen.clear()
            found, wanted = await answers(fast, sent), await answers(slow, sent)
            if found == wanted or b"(reset)" not in found[-1] + wanted[-1]:
                break
        else:
            assert found[-1][-7:] == wanted[-1][-7:]
            return
    assert found == wanted


def run(made):
    """Run a coroutine on the event loop that replicas use."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(made)


def ask(path: str = "/echo", *more: str, method: str = "GET", version: str = "1.1") -> bytes:
    lines = [f"{method} {path} HTTP/{version}", "Host: a", *more, "", ""]
    return "\r\n".join(lines).encode("utf-8", "surrogateescape")


FAST_ONES = {
    "plain": [ask()],
    "post": [ask(method="POST")],
    "an empty body": [ask("/echo", "Content-Length: 0", method="POST")],
    "one after the other": [ask(), ask("/late"), ask()],
    "headers twice": [ask("/echo", "Cookie: a=1", "cookie: b=2", "X-A: ", "X-A:   b  ")],
    "bytes of no charset": [ask("/echo", "X-A: \udcff\udc80é", "Cookie: é=\udce9")],
    "tabs": [ask("/echo", "X-A: a\tb")],
    "another kind of response": [ask("/plain"), ask()],
    "a large response": [ask("/large"), ask()],
    "a problem": [ask("/refused"), ask()],
    **{path: [ask(path), ask()] for path in HANDLERS if not path.startswith(("/echo", "/la"))},
}


@pytest.mark.parametrize("sent", FAST_ONES.values(), ids=FAST_ONES)
def test_the_fast_path_answers_alike(sent):
    """On uvloop, the event loop of a replica. Only the last request takes aiohttp's path."""
    assert run(compare(sent))[:1] == [True]


SLOW_ONES = {
    "another address": [ask("/slow-path")],
    "a query": [ask("/echo?a=1")],
    "an absolute address": [ask("http://a/echo")],
    "encoded": [ask("/%65cho")],
    "head": [ask(method="HEAD")],
    "a method that it does not take": [ask(method="PUT")],
    "an unknown method": [ask(method="NONE")],
    "1.0": [ask(version="1.0")],
    "1.0 kept": [ask("/echo", "Connection: keep-alive", version="1.0")],
    "0.9": [b"GET /echo\r\n\r\n"],
    "closing": [ask("/echo", "Connection: close")],
    "expecting": [ask("/echo", "Expect: 100-continue", "Content-Length: 2", method="POST"), b"ab"],
    "expecting nothing to send": [ask("/echo", "Expect: 100-continue")],
    "expecting something else": [ask("/echo", "Expect: more")],
    "upgrading": [ask("/echo", "Connection: Upgrade", "Upgrade: websocket")],
    "a body": [ask("/echo", "Content-Length: 3", method="POST") + b"abc"],
    "a body that comes later": [ask("/echo", "Content-Length: 3", method="POST"), b"abc"],
    "a body in chunks": [
        ask("/echo", "Transfer-Encoding: chunked", method="POST") + b"2\r\nab\r\n0\r\n\r\n"
    ],
    "both lengths": [
        ask("/echo", "Transfer-Encoding: chunked", "Content-Length: 4", method="POST")
        + b"0\r\n\r\n"
    ],
    "two at once": [ask() + ask()],
    "three at once, one of them large": [ask() + ask("/large") + ask()],
    "more than are read at once": [ask("/late") * 100],
    "half of the next": [ask() + ask()[:20], ask()[20:]],
    "lines that end early": [ask().replace(b"\r\n", b"\n")],
    "a folded header": [ask("/echo", "X-A: a", " b")],
    "a space before the colon": [ask("/echo", "X-A : a")],
    "no name": [ask("/echo", ": a")],
    "no colon": [ask("/echo", "X-A")],
    "a control character": [ask("/echo", "X-A: a\x01b")],
    "a zero byte": [ask("/echo", "X-A: a\x00b")],
    "a bare return": [ask("/echo", "X-A: a\rb")],
    "two hosts": [ask("/echo", "Host: b")],
    "no number": [ask("/echo", "Content-Length: x")],
    "two lengths": [ask("/echo", "Content-Length: 0", "Content-Length: 1")],
    "too long": [ask("/echo", "X-A: " + "a" * 10_000)],
    "too many": [ask("/echo", *["X-A: a"] * 200)],
    "no HTTP": [b"\x16\x03\x01\x02\x00\x01\r\n\r\n"],
}


@pytest.mark.parametrize("sent", SLOW_ONES.values(), ids=SLOW_ONES)
async def test_aiohttp_judges_unusual_requests(sent):
    """Its responses to them, and what it does to their connections, stay the same."""
    await compare(sent)
    # And between two usual requests.
    await compare([ask(), *sent, ask()])


async def test_connections_come_back_to_the_fast_path():
    """After a request that aiohttp answered, and one whose head came in two parts."""
    sent = [ask(), ask("/slow-path"), ask(), ask()[:10], ask()[10:], ask(), ask() + ask(), ask()]
    seen = await compare(sent)
    assert seen == [True, False, True, True, True, False, False, True, False]


_LINES = st.sampled_from([
    "Cookie: a=b", "X-A: ", "x-a: b", "X-A:\tb", "X-É: é", "Content-Length: 0", "Content-Length: 2",
    "Content-Length: +2", "Transfer-Encoding: chunked", "Transfer-Encoding: gzip", "Expect: a",
    "Connection: close", "Connection: keep-alive", "Connection: upgrade", "Upgrade: h2c", " fold",
    "X-A : b", "X-A", "Host: b", "X-A: \x7f", "X-A: \udcff",
])  # fmt: skip
_REQUESTS = st.builds(
    lambda method, path, version, lines, body: ask(
        path, *lines, method=method, version=version
    ) + body,
    st.sampled_from(["GET", "GET", "POST", "HEAD", "get", "CONNECT"]),
    st.sampled_from([*HANDLERS, "/echo", "/echo", "/none", "/echo?a", "*", "//echo", "/echo#a"]),
    st.sampled_from(["1.1", "1.1", "1.1", "1.0", "2.0", "1"]),
    st.lists(_LINES, max_size=3),
    st.sampled_from([b"", b"", b"ab", b"0\r\n\r\n", b"\r\n"]),
)  # fmt: skip


@given(requests=st.lists(_REQUESTS, min_size=1, max_size=4), cuts=st.sets(st.integers(0, 400)))
@settings(max_examples=60, deadline=None)
def test_any_requests_are_answered_alike(requests, cuts):
    """However they are cut into parts."""
    whole = b"".join(requests)
    ends = sorted({0, len(whole), *(cut for cut in cuts if cut < len(whole))})
    run(compare([whole[start:end] for start, end in pairwise(ends)]))


# A version of aiohttp with other private parts.

#: The parts that web_protocol.py alone uses, so that they can be renamed there.
IN_CONNECTION = sorted(
    {name.removeprefix("connection.") for name in PARTS}.intersection(web.RequestHandler.__slots__)
    - {"_task_handler"}
)


@pytest.fixture(autouse=True)
def direct(monkeypatch):
    """Allow direct writes again after a test in which a runner has switched them off."""
    monkeypatch.setattr(QuickResponse, "is_direct", True)


async def compare_plain():
    """Assert that plain aiohttp answers every request. Return the warnings in the log."""
    with capture_logs() as logs:
        assert (
            await compare([ask(), ask("/late"), ask("/refused"), ask(method="POST")]) == [False] * 5
        )
    assert not QuickResponse.is_direct
    return [entry for entry in logs if entry["log_level"] == "warning"]


@pytest.mark.parametrize("part", IN_CONNECTION)
async def test_without_a_part_plain_aiohttp_serves(part, monkeypatch):
    """aiohttp has renamed it: one warning names the part, and every request is answered."""
    renamed = ModuleType("renamed")
    renamed.__package__ = "aiohttp"
    source = re.sub(rf"\b{part}\b", f"{part}_renamed", inspect.getsource(web_protocol))
    exec(compile(source, "renamed", "exec"), vars(renamed))
    monkeypatch.setattr("aiohttp.web_server.RequestHandler", renamed.RequestHandler)
    (warning,) = await compare_plain()
    assert (warning["event"], warning["parts"]) == ("fast_path_off", [f"connection.{part}"])


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("connection._messages", list), ("connection.finish_response", ["request", "resp"]),
        ("connection.data_received", bytes), ("response._keep_alive", bool),
        ("server.none", NoneType), ("response.status", []),
    ],
)  # fmt: skip
async def test_with_a_part_of_another_kind_plain_aiohttp_serves(name, kind, monkeypatch):
    """Of another type, with other parameters, or a value in place of a method."""
    monkeypatch.setitem(PARTS, name, kind)
    (warning,) = await compare_plain()
    assert warning["parts"] == [name]


async def test_without_the_method_that_makes_the_server_plain_aiohttp_serves(monkeypatch):
    """aiohttp no longer calls _make_server."""
    monkeypatch.delattr(FastRunner, "_make_server")
    (warning,) = await compare_plain()
    assert warning["parts"] == ["runner._make_server"]


# A connection's life.


KINDS = pytest.mark.parametrize("kind", [FastRunner, web.AppRunner])


@asynccontextmanager
async def asked(kind, held: Held, **options) -> AsyncIterator:
    """Yield a runner, and a connection on which a request for /held is in progress."""
    async with (
        asyncio.timeout(HUNG_S),
        served(kind, make_app(held=held), **options) as (runner, address),
    ):
        reader, writer = await asyncio.open_connection(*address)
        writer.write(ask("/held"))
        await held.came.wait()
        yield runner, reader, writer
        writer.close()


@KINDS
async def test_a_stop_waits_for_a_request(kind):
    """The response is sent, and then the connection is closed."""
    held = Held()
    async with asked(kind, held) as (runner, reader, _):
        stop = asyncio.create_task(runner.cleanup())
        await asyncio.sleep(0.05)
        assert not stop.done()
        held.go.set()
        assert (await reader.read()).endswith(b"\r\n\r\ndone")
        await stop


@KINDS
async def test_a_stop_waits_for_the_timeout(kind):
    """After that, the handler is cancelled."""
    held = Held()
    async with asked(kind, held, shutdown_timeout=0.05) as (runner, reader, _):
        await runner.cleanup()
        assert await reader.read() == b""
        await asyncio.sleep(0)
        assert (held.is_over, held.is_done) == (True, False)


@KINDS
async def test_the_handler_of_a_client_that_leaves_goes_on(kind):
    """It runs to its end, and a stop waits for that."""
    held = Held()
    async with asked(kind, held) as (runner, _, writer):
        writer.close()
        while runner.server.connections[0].transport is not None:
            await asyncio.sleep(0.01)
        stop = asyncio.create_task(runner.cleanup())
        await asyncio.sleep(0.05)
        assert not stop.done() or kind is web.AppRunner
        held.go.set()
        await stop
        while not held.is_over:
            await asyncio.sleep(0.01)
        assert held.is_done


@KINDS
async def test_requests_that_come_meanwhile_are_answered_in_turn(kind):
    """However many there are, few of them are read ahead."""
    held = Held()
    async with asked(kind, held) as (runner, reader, writer):
        writer.write(ask("/late") * 2_500 + END)
        await asyncio.sleep(0.05)
        (connection,) = runner.server.connections
        assert 0 < len(connection._messages) <= 64
        held.go.set()
        heads = (await reader.read()).split(b"HTTP/1.1 ")
        assert [head[:3] for head in heads[1:]] == [b"200", *[b"204"] * 2_500, b"200"]


@KINDS
async def test_an_idle_connection_is_closed(kind):
    """A connection that waits for a response is not."""
    held = Held()
    async with asked(kind, held, keepalive_timeout=0.05) as (_, reader, _):
        await asyncio.sleep(0.3)
        held.go.set()
        assert (await reader.read()).endswith(b"\r\n\r\ndone")


# A quick response, on aiohttp's own path.

HEADERS = {"Cache-Control": "no-store", "Content-Type": "application/json", "X-Name": "wért"}
RESPONSES = {
    "document": {"body": b'{"a": "\xc3\xa9"}', "headers": HEADERS},
    "401": {"status": 401, "headers": {"X-Waitroom-State": "waiting"}},
    "403": {"status": 403, "headers": {}},
    "204": {"status": 204, "headers": {"Set-Cookie": "a=b; Path=/"}},
    "large": {"body": b"x" * 300_000, "headers": HEADERS},
}
REQUESTS = {
    "get": ask(),
    "head": ask(method="HEAD"),
    "three at once": ask() * 3,
    "post": ask("/", "Content-Length: 3", method="POST") + b"a=b",
    "1.0": ask(version="1.0"),
    "1.0 kept": ask("/", "Connection: keep-alive", version="1.0"),
    "close": ask("/", "Connection: close"),
    "forced to close": ask("/", "X-Close: 1"),
}


def make_response_app(kind: type[web.Response], **made: object) -> web.Application:
    """Create an application that answers every request with a response of this kind."""

    async def handle(request: web.Request) -> web.Response:
        await request.read()
        response = kind(**made)
        if "X-Close" in request.headers:
            response.force_close()
        return response

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    return app


@pytest.mark.parametrize("sent", REQUESTS.values(), ids=REQUESTS)
@pytest.mark.parametrize("made", RESPONSES.values(), ids=RESPONSES)
async def test_a_quick_response_is_what_aiohttp_would_send(sent, made):
    """The same lines, the same body, and the connection kept or closed alike."""
    ours, theirs = (make_response_app(kind, **made) for kind in (QuickResponse, web.Response))
    await compare_apps(web.AppRunner, ours, theirs, [sent], [])


@pytest.mark.parametrize("value", ["a\r\nSet-Cookie: b=c", "a\nb", "a\0", "a\x7f"])
async def test_a_header_holds_one_header(value):
    """A line break in it is an error, which aiohttp logs, and does not begin a second header."""
    for kind in (QuickResponse, web.Response):
        app = make_response_app(kind, headers={"X-Name": value})
        async with served(web.AppRunner, app) as (_, address):
            assert await answers(address, [ask()]) in ([b""], [b"(reset)"])
