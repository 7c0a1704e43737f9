"""Where handlers find the leases in their application."""

from aiohttp import web

from sidecar.leases.service import Leases

LEASES = web.AppKey("leases", Leases)
