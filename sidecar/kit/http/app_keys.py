"""What the handlers find in their application."""

from __future__ import annotations

from aiohttp import web

from sidecar.kit.http.auth.operators import Operators
from sidecar.kit.metrics import Metrics
from sidecar.settings import Settings

METRICS = web.AppKey("metrics", Metrics)
SETTINGS = web.AppKey("settings", Settings)
OPERATORS = web.AppKey("operators", Operators)
#: Set when the replica was told to stop; a list because an application is frozen by then.
STOPPING = web.AppKey("stopping", list[bool])
