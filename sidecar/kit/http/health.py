"""Health and metrics of any process."""

from __future__ import annotations

from aiohttp import web

from sidecar.kit.http.app_keys import METRICS

_TEXT = "text/plain; version=0.0.4; charset=utf-8"


async def healthz(_request: web.Request) -> web.Response:
    """The process answers."""
    return web.json_response({"status": "ok"})


async def metrics(request: web.Request) -> web.Response:
    return web.Response(body=request.app[METRICS].text(), headers={"Content-Type": _TEXT})
