"""What the dashboard's handlers find in their application."""

from __future__ import annotations

from aiohttp import web

from sidecar.dashboard.live import Live

LIVE = web.AppKey("live", Live)
