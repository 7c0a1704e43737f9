"""Where handlers find the rooms in their application."""

from __future__ import annotations

from aiohttp import web

from sidecar.rooms.service import Rooms

ROOMS = web.AppKey("rooms", Rooms)
