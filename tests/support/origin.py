"""The site behind nginx: describes requests, counts them, echoes WebSocket messages."""

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


FORM = """<!doctype html><title>Form</title><h1>Form</h1>
<form method=post action="sent"><input name=text><button>Send</button></form>
<div style="height: 3000px"></div>"""


async def form(request: web.Request) -> web.Response:
    """A page with a form, with the scripts and the referrer policy of the query."""
    scripts = "".join(f'<script src="{each}"></script>' for each in request.query.getall("js", []))
    headers = {"Referrer-Policy": request.query.get("referrer", "same-origin")}
    return web.Response(text=FORM + scripts, content_type="text/html", headers=headers)


async def sent(request: web.Request) -> web.Response:
    """The target of the form, which accepts only POST."""
    text = (await request.post())["text"]
    return web.Response(text=f"<!doctype html><title>Sent</title><h1>Arrived: {text}</h1>",
                        content_type="text/html")  # fmt: skip


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
        web.get("/forms/form", form),
        web.post("/forms/sent", sent),
        web.route("*", "/{rest:.*}", anything),
    ])  # fmt: skip
    web.run_app(app, host="127.0.0.1", port=int(sys.argv[1]), print=None, access_log=None)


main()
