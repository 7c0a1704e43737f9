"""Keeps requests open (long polls) until their jobs have ended or are called. An announced change
wakes a request, which then reads its job. Several requests share an SQL query."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import ExitStack

from aiohttp import web

from sidecar.http.long_poll import LongPolls, is_gone
from sidecar.jobs.model import ENDED_STATES, Job, State
from sidecar.jobs.service import Jobs, JobView
from sidecar.kit.batch import CallBatcher
from sidecar.kit.tasks import wait_for

#: How often an awaited job is read although no change was announced, in seconds.
POLL_S = 0.25
#: How many awaited jobs are read every POLL_S. If there are more, the pause is longer.
JOBS_PER_POLL = 400
#: How often all jobs of a request that awaits several are read without an announcement, in s.
POLL_SEVERAL_S = 2.0
#: The maximum number of jobs in one query.
BATCH_LIMIT = 200
#: The states that end a long poll.
AWAITED_STATES = ENDED_STATES | {State.CALLED}


class JobPolls(LongPolls):
    """The long polls for jobs that this replica holds open."""

    def __init__(self, jobs: Jobs) -> None:
        super().__init__()
        self._service = jobs
        self._views = CallBatcher(self._find_views, limit=BATCH_LIMIT)

    async def wait(self, request: web.Request, view: JobView, wait_s: float) -> JobView:
        """Wait up to `wait_s` until a job has ended or is called. Return the job's latest view."""
        id_, ends_s = view.job.id, time.monotonic() + wait_s
        with self.keep_open(request) as event, self._service.changes.waiters.listen(id_, event):
            # The first look is now: the job may have ended before this request listened.
            while not (self.is_closed or is_gone(request)):
                event.clear()
                latest = await self._views.submit(id_)
                view = latest or view
                if latest is None or view.state in AWAITED_STATES:
                    break
                pause_s = POLL_S * max(1, len(self._service.changes.waiters) / JOBS_PER_POLL)
                if not await self._pause(event, ends_s, pause_s):
                    break
        return view

    async def wait_for_any(
        self, request: web.Request, ids: Sequence[str], wait_s: float
    ) -> list[JobView]:
        """Wait up to `wait_s` until any of the jobs has ended or is called. Return the views of all
        such jobs, in the order of `ids`."""
        ends_s, views = time.monotonic() + wait_s, list[JobView]()
        with self.keep_open(request) as event, ExitStack() as stack:
            for id_ in ids:
                stack.enter_context(self._service.changes.waiters.listen(id_, event))
            while not (self.is_closed or is_gone(request)):
                event.clear()
                rows = await self._service.store.jobs.find_many(ids)
                views = await self.find_awaited_jobs([rows[id_] for id_ in ids if id_ in rows])
                if views or len(rows) < len(ids):
                    break
                if not await self._pause(event, ends_s, POLL_SEVERAL_S):
                    break
        return views

    async def find_awaited_jobs(self, jobs: Sequence[Job]) -> list[JobView]:
        """Return the views of those jobs that have ended or are called. A job is no longer called
        if its permit was used or is over, which Redis knows earlier than the database."""
        found = [job for job in jobs if job.state in AWAITED_STATES]
        views = await self._service.view(found)
        return [view for view in views if view.job.is_ended or view.permit is not None]

    @staticmethod
    async def _pause(event: asyncio.Event, ends_s: float, pause_s: float) -> bool:
        """Wait for an event, at most `pause_s` or until `ends_s`. Return False after `ends_s`."""
        left_s = ends_s - time.monotonic()
        if left_s > 0:
            await wait_for(event, min(left_s, pause_s))
        return left_s > 0

    async def _find_views(self, ids: Sequence[str]) -> list[JobView | None]:
        rows = await self._service.store.jobs.find_many(set(ids))
        views = {view.job.id: view for view in await self._service.view([*rows.values()])}
        return [views.get(id_) for id_ in ids]


JOB_POLLS = web.AppKey("job polls", JobPolls)
