"""Where handlers find the jobs in their application."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

if TYPE_CHECKING:
    from sidecar.jobs.service import Jobs


#: Missing where there are no targets.
JOBS: web.AppKey[Jobs] = web.AppKey("jobs", object)  # type: ignore[arg-type] # as the history
