"""Where handlers find the leases in their application."""

from __future__ import annotations

from aiohttp import web

from sidecar.leases.service import Leases

LEASES = web.AppKey("leases", Leases)
