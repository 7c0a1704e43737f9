"""The log of a process: with log_format "json", every line of it is one JSON document."""

import json
import subprocess
import sys

import pytest

from tests.support.processes import CLEAN

#: Logs as a replica does, and lets aiohttp, alembic, asyncio and a warning of Python log as well.
PROGRAM = """
import asyncio, logging, sys, warnings
import structlog
from aiohttp import web
from sidecar.app.log import start_logging

async def fail(_request):
    raise ValueError("two\\nlines")

async def main():
    structlog.get_logger().info("serving", rooms=["shop"])
    try:
        await fail(None)
    except ValueError:
        structlog.get_logger().exception("own")
    app = web.Application()
    app.add_routes([web.get("/", fail)])
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    reader, writer = await asyncio.open_connection(*runner.addresses[0])
    writer.write(b"GET / HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n")
    await reader.read()
    await runner.cleanup()
    logging.getLogger("alembic.runtime.migration").warning("revision %s", "0001")
    logging.getLogger("alembic.runtime.migration").info("hidden: others log warnings and worse")
    warnings.warn("old\\nname", DeprecationWarning, stacklevel=1)
    asyncio.get_running_loop().create_task(fail(None))
    await asyncio.sleep(0.01)
    raise KeyError("crashed")

start_logging("info", sys.argv[1])
asyncio.run(main())
"""


def log_of(log_format, program=PROGRAM, status=1):
    command = [sys.executable, "-W", "always::DeprecationWarning", "-c", program, log_format]
    done = subprocess.run(
        command, env=CLEAN, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == status
    return done.stderr


def test_every_line_is_json():
    """aiohttp's and alembic's records, Python's warnings, a crash, and all tracebacks too."""
    records = [json.loads(line) for line in log_of("json").splitlines()]
    assert all({"event", "level", "timestamp"} <= record.keys() for record in records)
    serving, own, aiohttp, alembic, warning, *rest = records
    assert (serving["event"], serving["rooms"], serving["level"]) == ("serving", ["shop"], "info")
    assert "ValueError: two\nlines" in own["exception"]
    assert (aiohttp["logger"], aiohttp["level"]) == ("aiohttp.server", "error")
    assert "ValueError: two\nlines" in aiohttp["exception"]
    assert (alembic["event"], alembic["level"]) == ("revision 0001", "warning")
    assert "old\nname" in warning["event"]
    assert {"Task exception was never retrieved", "crashed"} <= {
        record["event"].partition("\n")[0] for record in rest
    }
    assert any("KeyError: 'crashed'" in record.get("exception", "") for record in rest)


def test_a_console_shows_the_same_as_text():
    """One record a line, with its traceback below."""
    text = log_of("console")
    for part in ("serving", "Error handling request", "revision 0001", "KeyError: 'crashed'"):
        assert part in text
    assert "UserWarning" not in text
    with pytest.raises(json.JSONDecodeError):
        json.loads(text.splitlines()[0])


TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
#: Answers two requests on one connection, of which the first has a trace.
TRACED_PROGRAM = f"""
import asyncio, sys
import structlog
from aiohttp import web
from sidecar.app.log import start_logging
from sidecar.http.problems import problems

log = structlog.get_logger()

async def work():
    log.info("background")

async def answer(request):
    await asyncio.sleep(0)
    log.info("request", path=request.path)
    await asyncio.create_task(work())
    if request.path == "/fail":
        raise ValueError
    return web.Response()

async def main():
    app = web.Application(middlewares=[problems])
    app.add_routes([web.get("/{{name}}", answer)])
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    reader, writer = await asyncio.open_connection(*runner.addresses[0])
    writer.write(b"GET /fail HTTP/1.1\\r\\nHost: x\\r\\n"
                 b"traceparent: 00-{TRACE}-00f067aa0ba902b7-01\\r\\n\\r\\n")
    await reader.readuntil(b"}}")
    writer.write(b"GET /next HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n")
    await reader.read()
    await runner.cleanup()

start_logging("info", sys.argv[1])
asyncio.run(main())
"""


def test_the_lines_of_a_request_have_its_trace():
    """Those of the next request on the connection have not, nor those of a task that the request
    started, which may work for others too."""
    lines = log_of("json", TRACED_PROGRAM, status=0).splitlines()
    records = [json.loads(line) for line in lines]
    assert [(record["event"], record.get("trace_id")) for record in records] == [
        ("request", TRACE),
        ("background", None),
        ("unexpected", TRACE),
        ("request", None),
        ("background", None),
    ]
