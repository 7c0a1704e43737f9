"""A single-page application: one page for all addresses, a service worker, an API."""

import sys
from pathlib import Path

from aiohttp import web

counts = {"api": 0}


def main() -> None:
    """Serve on a port, with the scripts of a folder."""
    port, folder = int(sys.argv[1]), Path(sys.argv[2])

    async def page(_request: web.Request) -> web.Response:
        text = (
            "<!doctype html><title>App</title><h1>App</h1><p id=value></p>"
            "<button>Load</button><script src=/assets/app.js></script>"
        )
        return web.Response(text=text, content_type="text/html")

    def script(name: str) -> web.Response:
        return web.Response(text=(folder / name).read_text(), content_type="text/javascript")

    async def app_script(_request: web.Request) -> web.Response:
        return script("app.js")

    async def worker(_request: web.Request) -> web.Response:
        return script("worker.js")

    async def api(_request: web.Request) -> web.Response:
        counts["api"] += 1
        return web.json_response(counts)

    app = web.Application()
    app.add_routes([
        web.get("/assets/app.js", app_script),
        web.get("/worker.js", worker),
        web.get("/api/value", api),
        web.get("/{rest:.*}", page),
    ])  # fmt: skip
    web.run_app(app, host="127.0.0.1", port=port, print=None, access_log=None)


if __name__ == "__main__":
    main()
