"""The site behind: says what reached it, keeps counts, echoes WebSocket messages."""

from __future__ import annotations

import sys

from aiohttp import WSMsgType, web

counts: dict[str, int] = {}


async def anything(request: web.Request) -> web.StreamResponse:
    counts[request.path] = counts.get(request.path, 0) + 1
    if request.path.startswith("/status/"):
        status = int(request.path.rsplit("/", 1)[1])
        headers = {"WWW-Authenticate": 'Basic realm="origin"'} if status == 401 else {}
        return web.Response(status=status, text="origin's own", headers=headers)
    received = 0
    async for chunk in request.content.iter_chunked(1 << 16):
        received += len(chunk)
    return web.json_response(
        {
            "path": request.path_qs,
            "method": request.method,
            "headers": dict(request.headers),
            "received": received,
        },
        headers={"Set-Cookie": "site=1; Path=/"},
    )


async def page(request: web.Request) -> web.Response:
    body = f"<!doctype html><title>Inside</title><h1>Inside</h1><p id=at>{request.path_qs}</p>"
    return web.Response(text=body, content_type="text/html")


async def done(_request: web.Request) -> web.Response:
    return web.Response(text="<!doctype html><title>Done</title><h1>Thank you</h1>",
                        content_type="text/html")  # fmt: skip


async def seen(_request: web.Request) -> web.Response:
    return web.json_response(counts)


async def echo(request: web.Request) -> web.WebSocketResponse:
    socket = web.WebSocketResponse()
    await socket.prepare(request)
    async for message in socket:
        if message.type is WSMsgType.TEXT:
            await socket.send_str(message.data)
    return socket


def main() -> None:
    app = web.Application(client_max_size=1 << 30)
    app.add_routes([
        web.get("/origin/seen", seen),
        web.get("/ws", echo),
        web.get("/done", done),
        web.get("/page", page),
        web.get("/page/{rest:.*}", page),
        web.route("*", "/{rest:.*}", anything),
    ])  # fmt: skip
    web.run_app(app, host="127.0.0.1", port=int(sys.argv[1]), print=None, access_log=None)


main()
