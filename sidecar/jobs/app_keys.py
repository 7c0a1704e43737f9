"""Where handlers find the jobs in their application."""

from aiohttp import web

from sidecar.jobs.service import Jobs

#: Missing where there are no targets.
JOBS = web.AppKey("jobs", Jobs)
