"""What the handlers find in their application."""

from __future__ import annotations

from aiohttp import web

from sidecar.base.metrics import Metrics
from sidecar.base.settings import Settings
from sidecar.core.rooms import Rooms
from sidecar.store.history import History
from sidecar.web.live import Live
from sidecar.web.operators import Operators
from sidecar.web.page import Page

ROOMS = web.AppKey("rooms", Rooms)
METRICS = web.AppKey("metrics", Metrics)
SETTINGS = web.AppKey("settings", Settings)
#: Missing where no history is kept.
HISTORY = web.AppKey("history", History)
PAGE = web.AppKey("page", Page)
OPERATORS = web.AppKey("operators", Operators)
LIVE = web.AppKey("live", Live)
#: Set when the replica was told to stop; a list because an application is frozen by then.
STOPPING = web.AppKey("stopping", list[bool])
