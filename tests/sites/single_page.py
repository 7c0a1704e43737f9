"""A server of a single-page application: one page for all paths, a service worker, and an API."""

import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path

from aiohttp import web

PAGE = (
    "<!doctype html><title>App</title><h1>App</h1><p id=value></p>"
    "<button>Load</button><script src=/assets/app.js></script>"
)


def main(port: int, folder: Path) -> None:
    """Serve the application on a port, with the scripts app.js and worker.js in `folder`."""

    numbers = count(1)

    def serve(path: str, respond: Callable[[], web.Response]) -> web.RouteDef:
        async def handle(_request: web.Request) -> web.Response:
            return respond()

        return web.get(path, handle)

    def script(name: str) -> web.Response:
        return web.Response(text=(folder / name).read_text(), content_type="text/javascript")

    app = web.Application()
    app.add_routes([
        serve("/assets/app.js", lambda: script("app.js")),
        serve("/worker.js", lambda: script("worker.js")),
        serve("/api/value", lambda: web.json_response({"api": next(numbers)})),
        serve("/{rest:.*}", lambda: web.Response(text=PAGE, content_type="text/html")),
    ])  # fmt: skip
    web.run_app(app, host="127.0.0.1", port=port, print=None, access_log=None)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
