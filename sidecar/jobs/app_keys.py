"""The key under which handlers find the job services in their application."""

from aiohttp import web

from sidecar.jobs.service import Jobs

#: The job services. The application has no such key if no targets are configured.
JOBS = web.AppKey("jobs", Jobs)
