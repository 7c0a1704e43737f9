"""What the handlers find in their application."""

from __future__ import annotations

from aiohttp import web

from sidecar.base.metrics import Metrics
from sidecar.base.settings import Settings
from sidecar.core.rooms import Rooms
from sidecar.web.page import Page

ROOMS = web.AppKey("rooms", Rooms)
METRICS = web.AppKey("metrics", Metrics)
SETTINGS = web.AppKey("settings", Settings)
PAGE = web.AppKey("page", Page)
#: In a request: the operator whom the dashboard has logged in.
OPERATOR = "operator"
#: Set when the replica was told to stop; a list because an application is frozen by then.
STOPPING = web.AppKey("stopping", list[bool])
