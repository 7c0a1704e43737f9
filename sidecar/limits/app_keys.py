"""Where handlers find the rate limits in their application."""

from aiohttp import web

from sidecar.limits.service import Limits

LIMITS = web.AppKey("limits", Limits)
