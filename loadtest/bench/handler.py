"""`python -m loadtest.bench.handler SOCKET`: serve a fixed document by aiohttp and uvloop.

Polls of a replica are compared with this server, whose document has the same size.
"""

import json
import sys

import uvloop
from aiohttp import web

#: A document as large as the response to a poll.
DOCUMENT = json.dumps(
    {
        "room": "polls", "state": "waiting", "position": 12_345, "ahead": 12_344,
        "waiting": 16_000, "active": 1, "refresh_after_seconds": 20.0, "paused": False,
        "joined_at": "2026-01-01T00:00:00.000Z", "updated_at": "2026-01-01T00:00:00.000Z",
        "wait_seconds": 1_234, "wait": {"low": 1_000, "high": 2_000}, "filler": "." * 300,
    }
).encode()  # fmt: skip
_HEADERS = {"Content-Type": "application/json; charset=utf-8", "Cache-Control": "no-store"}


async def answer(_request: web.Request) -> web.Response:
    return web.Response(body=DOCUMENT, headers=_HEADERS)


def main() -> None:
    app = web.Application()
    app.router.add_get("/_waitroom/{room}/status", answer)
    uvloop.install()
    web.run_app(app, path=sys.argv[1], print=None, access_log=None, backlog=4096)


if __name__ == "__main__":
    main()
