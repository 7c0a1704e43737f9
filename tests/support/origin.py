"""The protected site behind nginx: it describes and counts requests, and echoes WebSockets."""

import asyncio
import sys
from typing import Any

from aiohttp import WSMsgType, web

counts: dict[str, int] = {}


async def describe_request(request: web.Request) -> web.StreamResponse:
    """Respond with a description of the request, or with the status in a path /status/N."""
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
        headers={"Set-Cookie": "site=1; Path=/", **request_headers(request)},
    )


def request_headers(request: web.Request) -> dict[str, str]:
    """Return the headers that the query asks for, such as `?say=X-Waitroom-Release:1`."""
    return dict(text.split(":", 1) for text in request.query.getall("say", []))


def make_page(
    title: str, more: str = "", *, heading: str = "", headers: Any = None
) -> web.Response:
    text = f"<!doctype html><title>{title}</title><h1>{heading or title}</h1>{more}"
    return web.Response(text=text, content_type="text/html", headers=headers)


async def show_page(request: web.Request) -> web.Response:
    return make_page("Inside", f"<p id=at>{request.path_qs}</p>")


FORM = """
<form method=post action="sent"><input name=text><button>Send</button></form>
<div style="height: 3000px"></div>"""


async def answer_late(request: web.Request) -> web.Response:
    """Answer after so many milliseconds."""
    await asyncio.sleep(int(request.match_info["ms"]) / 1000)
    return make_page("Late")


async def show_form(request: web.Request) -> web.Response:
    """Return a page with a form. The query sets the page's scripts and its Referrer-Policy."""
    scripts = "".join(f'<script src="{url}"></script>' for url in request.query.getall("js", []))
    headers = {"Referrer-Policy": request.query.get("referrer", "same-origin")}
    return make_page("Form", FORM + scripts, headers=headers)


async def accept_form(request: web.Request) -> web.Response:
    """Accept the form, by POST only."""
    return make_page("Sent", heading=f"Arrived: {(await request.post())['text']}")


async def show_done(_request: web.Request) -> web.Response:
    return make_page("Done", heading="Thank you")


async def show_counts(_request: web.Request) -> web.Response:
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
        web.get("/origin/seen", show_counts),
        web.get("/ws", echo),
        web.get("/done", show_done),

        web.get("/page", show_page),
        web.get("/late/{ms}", answer_late),
        web.get("/page/{rest:.*}", show_page),
        web.get("/forms/form", show_form),
        web.post("/forms/sent", accept_form),
        web.route("*", "/{rest:.*}", describe_request),
    ])  # fmt: skip
    web.run_app(app, host="127.0.0.1", port=int(sys.argv[1]), print=None, access_log=None)


main()
