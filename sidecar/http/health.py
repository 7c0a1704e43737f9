"""The endpoints /healthz and /metrics, which every process has."""

from typing import Any, Literal

from aiohttp import web

from sidecar.http.endpoint import ANYBODY, Endpoints
from sidecar.http.metrics import METRICS
from sidecar.http.models import NO_JSON, Reply


class Health(Reply):
    status: Literal["ok"]
    """`ok`."""


ENDPOINTS = Endpoints("operations")
_OPTIONS: dict[str, Any] = {"bypasses_models": True, "is_cacheable": True}


@ENDPOINTS.get("/healthz", ANYBODY, replies={200: (Health, "The process answers.")}, **_OPTIONS)
async def is_healthy(_request: web.Request) -> web.Response:
    """Check that the process answers."""
    return web.json_response({"status": "ok"})


@ENDPOINTS.get(
    "/metrics",
    ANYBODY,
    replies={200: (NO_JSON, "The metrics.")},
    other_media={
        "text/plain": "Prometheus' text format, 0.0.4.",
        "application/openmetrics-text": "OpenMetrics, for a client that accepts it.",
    },
    **_OPTIONS,
)
async def get_metrics(request: web.Request) -> web.StreamResponse:
    """Get the metrics as text or OpenMetrics, compressed if the client accepts gzip."""
    return await request.app[METRICS].respond(request)
