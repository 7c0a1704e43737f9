"""Health, metrics, and the document itself."""

from __future__ import annotations

from sidecar.kit.http.openapi import Json, refusals, reply, text, thing, words


def _status(word: str) -> Json:
    return reply(word, thing({"status": {"const": word}}), example={"status": word})


_READY = reply(
    "ready",
    thing({
        "status": {"const": "ready"},
        "store": words("memory", "redis", description="memory: of this replica alone."),
    }),
    example={"status": "ready", "store": "redis"},
)  # fmt: skip
_DOCUMENT = thing({"openapi": text(), "paths": {"type": "object"}})


def paths() -> Json:
    return {
        "/healthz": {
            "get": {
                "operationId": "isHealthy",
                "tags": ["operations"],
                "summary": "The process answers",
                "responses": {"200": _status("ok")},
                "security": [],
            }
        },
        "/readyz": {
            "get": {
                "operationId": "isReady",
                "tags": ["operations"],
                "summary": "The process answers, its store too, and it is not about to stop",
                "responses": {"200": _READY, **refusals("503", away="NotReady")},
                "security": [],
            }
        },
        "/metrics": {
            "get": {
                "operationId": "getMetrics",
                "tags": ["operations"],
                "summary": "For Prometheus",
                "description": "What each means: docs/metrics.md.",
                "responses": {
                    "200": {
                        "description": "Prometheus' text format, 0.0.4.",
                        "content": {"text/plain": {"schema": text()}},
                    }
                },
                "security": [],
            }
        },
        "/openapi.json": {
            "get": {
                "operationId": "getOpenapi",
                "tags": ["operations"],
                "summary": "This document",
                "responses": {
                    "200": {
                        **reply("OpenAPI 3.1.", _DOCUMENT),
                        "headers": {"Cache-Control": {"required": True, "schema": text()}},
                    }
                },
                "security": [],
            }
        },
    }  # fmt: skip
