"""Where handlers find the rate limits in their application."""

from __future__ import annotations

from aiohttp import web

from sidecar.limits.service import Limits

LIMITS = web.AppKey("limits", Limits)
